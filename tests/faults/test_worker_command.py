"""`pagemill worker` as an operator runs it: it outlives its Celery, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from pagemill.extraction.child import wait_until
from pagemill.workers.config import celery_settings

if TYPE_CHECKING:
    from .conftest import Line
else:
    Line = Any

pytestmark = pytest.mark.model


@contextmanager
def worker_command(
    line: Line, folder: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """`pagemill worker` on the line's services, with its log in FOLDER/log."""
    line.worker.close()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pagemill.extraction.cli", "worker", *options],
            env={**os.environ, **(environment or line.settings.environment())},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def starts(folder: Path) -> int:
    return (folder / "log").read_bytes().count(b" ready.")


def test_a_celery_that_ends_is_started_again(line: Line, tmp_path: Path) -> None:
    with worker_command(line, tmp_path) as process:
        assert wait_until(lambda: starts(tmp_path) == 1, 60)
        line.ledger.submit([line.page(number) for number in range(40)], batch="b")
        line.wait_finished("b", 5)
        os.kill(child_of(process.pid), signal.SIGKILL)
        line.wait_finished("b", 40)
        assert starts(tmp_path) == 2
        assert process.poll() is None
        log = (tmp_path / "log").read_bytes()
        assert log.count(b'"event": "started_again"') == 1
        assert b'"exit_status": 137' in log


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_in_order(
    line: Line, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    with worker_command(line, tmp_path) as process:
        assert wait_until(lambda: starts(tmp_path) == 1, 60)
        line.ledger.submit([line.page(number) for number in range(40)], batch="b")
        line.wait_finished("b", 5)
        process.send_signal(number)
        assert process.wait(60) == status
        depth = line.ledger.depth()
        assert (depth.leased, depth.lost) == (0, 0)
        assert depth.queued + depth.done == 40
        assert b"started_again" not in (tmp_path / "log").read_bytes()


def test_wrong_options_end_it_with_a_usage_error(line: Line, tmp_path: Path) -> None:
    with worker_command(line, tmp_path, "--no-such-option") as process:
        assert process.wait(60) == 2
    assert b"no-such-option" in (tmp_path / "log").read_bytes()


def test_a_worker_that_consumes_nothing_starts_itself_again(line: Line, tmp_path: Path) -> None:
    """As after some reconnects: it is told to read its queue no more, and goes on living."""
    environment = {**line.settings.environment(), "PAGEMILL_STALL_S": "2"}
    with worker_command(line, tmp_path, environment=environment) as process:
        assert wait_until(lambda: starts(tmp_path) == 1, 60)
        app = Celery()
        app.conf.update(celery_settings(line.settings))
        replies = app.control.cancel_consumer(line.settings.queue, reply=True, timeout=10)
        assert replies
        line.ledger.submit([line.page(number) for number in range(10)], batch="b")
        line.wait_finished("b", 10, 90)
        assert process.poll() is None
    log = (tmp_path / "log").read_bytes()
    assert b'"event": "stalled"' in log
    assert b'"exit_status": 70' in log
