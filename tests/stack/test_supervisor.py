"""A command that is kept alive: started again, ended in order, given up when it is used wrongly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pagemill.extraction import supervisor
from pagemill.extraction.child import kept_alive, wait_until

# Runs the supervisor with other times.
QUICK = """
import runpy, sys
from importlib import util
spec = util.spec_from_file_location("supervisor", sys.argv[1])
module = util.module_from_spec(spec)
spec.loader.exec_module(module)
module._FIRST_PAUSE_S, module._LONGEST_PAUSE_S, module._HEALTHY_S = map(float, sys.argv[2].split())
del sys.argv[1:3]
sys.exit(module.main())
"""


@contextmanager
def keep(
    script: str, folder: Path, times: str = "0.01 0.05 60"
) -> Iterator[subprocess.Popen[bytes]]:
    """A shell script that is kept alive; it ends with the block."""
    command = [sys.executable, "-c", QUICK, supervisor.__file__, times, "--restart", "--"]
    with (folder / "err").open("wb") as err:
        process = subprocess.Popen([*command, "/bin/sh", "-c", script], cwd=folder, stderr=err)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def events(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "err").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_the_command_of_pagemill_worker() -> None:
    command = kept_alive(["celery", "worker"])
    assert command[0] == sys.executable
    assert command[-4:] == ["--restart", "--", "celery", "worker"]


def test_a_command_that_ends_is_started_again_after_doubling_pauses(tmp_path: Path) -> None:
    with keep("echo x >> runs; exit 3", tmp_path):
        assert wait_until(lambda: len(events(tmp_path)) >= 6, 30)
    told = events(tmp_path)
    assert {(event["event"], event["exit_status"]) for event in told} == {("started_again", 3)}
    assert [event["pause_s"] for event in told[:5]] == [0.01, 0.02, 0.04, 0.05, 0.05]
    assert (tmp_path / "runs").read_text().count("x") >= 6


def test_a_killed_command_is_told_by_its_signal(tmp_path: Path) -> None:
    with keep("kill -9 $$", tmp_path):
        assert wait_until(lambda: bool(events(tmp_path)), 30)
    assert events(tmp_path)[0]["exit_status"] == 137


def test_after_a_healthy_run_the_pause_is_short_again(tmp_path: Path) -> None:
    with keep("exit 3", tmp_path, times="0.01 5 0"):
        assert wait_until(lambda: len(events(tmp_path)) >= 5, 30)
    assert {event["pause_s"] for event in events(tmp_path)} == {0.01}


@pytest.mark.parametrize("status", [0, 2])
def test_what_ends_well_or_is_used_wrongly_is_not_started_again(
    tmp_path: Path, status: int
) -> None:
    with keep(f"exit {status}", tmp_path) as process:
        assert process.wait(30) == status
    assert events(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "name", "status"),
    [
        (signal.SIGTERM, "TERM", 7),
        (signal.SIGINT, "INT", 130),
        (signal.SIGQUIT, "QUIT", 7),
        (signal.SIGHUP, "TERM", 7),
    ],
)
def test_signals_reach_the_command_and_its_status_comes_back(
    tmp_path: Path, number: signal.Signals, name: str, status: int
) -> None:
    script = f"trap 'echo got > {name}; exit 7' {name}; touch up; while :; do sleep 0.02; done"
    with keep(script, tmp_path) as process:
        assert wait_until((tmp_path / "up").exists, 30)
        process.send_signal(number)
        assert process.wait(30) == status
    assert (tmp_path / name).exists()
    assert events(tmp_path) == []


def test_a_second_signal_is_passed_on_too(tmp_path: Path) -> None:
    script = (
        "trap 'echo x >> got' INT; touch got up; "
        "while [ $(wc -l < got) -lt 2 ]; do sleep 0.02; done; exit 4"
    )
    with keep(script, tmp_path) as process:
        assert wait_until((tmp_path / "up").exists, 30)
        process.send_signal(signal.SIGINT)
        assert wait_until(lambda: (tmp_path / "got").stat().st_size > 0, 30)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_it_can_be_stopped_in_a_pause(tmp_path: Path) -> None:
    with keep("exit 3", tmp_path, times="600 600 60") as process:
        assert wait_until(lambda: bool(events(tmp_path)), 30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 3


def test_what_a_run_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    with keep("sleep 60 & echo $! >> left; exit 3", tmp_path):
        assert wait_until(lambda: len(events(tmp_path)) >= 2, 30)
    for pid in (tmp_path / "left").read_text().split():
        assert wait_until(lambda pid=pid: ended(int(pid)), 10)  # type: ignore[misc]


def test_a_command_ends_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with keep("echo $$ > pid.new; mv pid.new pid; exec sleep 60", tmp_path) as process:
        assert wait_until((tmp_path / "pid").exists, 30)
        process.kill()
        pid = int((tmp_path / "pid").read_text())
        assert wait_until(lambda: ended(pid), 10)


def ended(pid: int) -> bool:
    """Gone, or a zombie that nobody has asked for."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    done = subprocess.run(kept_alive(["/no/such/program"]), capture_output=True, timeout=30)
    assert done.returncode == 127
    assert b"/no/such/program" in done.stderr
