"""What may befall `pagemill extract`: whole lines in its output, and a clear end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pagemill.engine import store
from pagemill.engine.store import ModelFiles
from pagemill.extraction.child import wait_until
from pagemill.extraction.stack import EngineProcess

from .conftest import SCHEMA

pytestmark = pytest.mark.model


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    """A folder with 60 pages and a schema beside it."""
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "crawl").mkdir()
    for number in range(60):
        (tmp_path / f"crawl/{number:02}.html").write_text(f"<h1>Lamp {number}</h1><p>EUR 5</p>")
    return tmp_path


@pytest.fixture
def engine(model_files: ModelFiles) -> Iterator[EngineProcess]:
    """An engine that takes its time, so that there is a middle of the run."""
    with EngineProcess(
        options=["--executor", "fake", "--fake-step-ms", "20", "--max-num-seqs", "4"]
    ) as engine:
        yield engine


@contextmanager
def extract(folder: Path, *options: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """`pagemill extract crawl --out out.jsonl` in FOLDER, its stderr in FOLDER/err."""
    command = [sys.executable, "-m", "pagemill.extraction.cli", "extract", "crawl"]
    command += ["--schema", "schema.json", "--max-tokens", "64", "--out", "out.jsonl", *options]
    with (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **settings}, stderr=err, start_new_session=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def written(folder: Path) -> list[dict[str, object]]:
    """The output's lines, each of which is whole."""
    out = folder / "out.jsonl"
    data = out.read_bytes() if out.exists() else b""
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def count(folder: Path) -> int:
    out = folder / "out.jsonl"
    return out.read_bytes().count(b"\n") if out.exists() else 0


def descendants(pid: int) -> dict[int, str]:
    """Processes below `pid`, with their command lines."""
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*"):
            with suppress(OSError):  # threads and processes end while they are looked at
                for child in (task / "children").read_text().split():
                    line = Path(f"/proc/{child}/cmdline").read_bytes()
                    found[int(child)] = line.replace(b"\0", b" ").decode()
                    waiting.append(int(child))
    return found


def server_of(pid: int) -> int:
    [server] = [
        child
        for child, line in descendants(pid).items()
        if "unixsocket" in line and "supervisor.py" not in line
    ]
    return server


def test_ctrl_c_leaves_whole_lines_and_no_process(crawl: Path, engine: EngineProcess) -> None:
    with extract(crawl, "--engine", engine.endpoint) as process:
        assert wait_until(lambda: count(crawl) >= 5, 60)
        below = set(descendants(process.pid))
        assert below
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert (crawl / "err").read_text() == "pagemill: interrupted\n"
    assert 5 <= len(written(crawl)) < 60
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), 20)


def test_what_an_interrupted_run_did_costs_the_next_nothing(
    crawl: Path, engine: EngineProcess
) -> None:
    options = ("--engine", engine.endpoint, "--state", "state")
    with extract(crawl, *options) as process:
        assert wait_until(lambda: count(crawl) >= 5, 60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    before = {line["id"]: line for line in written(crawl)}
    with extract(crawl, *options) as process:
        assert process.wait(120) == 0
    after = {line["id"]: line for line in written(crawl)}
    assert len(after) == 60
    assert {name: after[name] for name in before} == before


def test_a_lost_server_ends_the_run_and_says_so(crawl: Path, engine: EngineProcess) -> None:
    with extract(crawl, "--engine", engine.endpoint, "-q") as process:
        assert wait_until(lambda: count(crawl) >= 5, 60)
        os.kill(server_of(process.pid), signal.SIGKILL)
        assert process.wait(60) == 4
    [line] = (crawl / "err").read_text().splitlines()
    assert line.startswith("pagemill: ledger_unavailable: ")
    lines = written(crawl)
    assert 5 <= len(lines) < 60
    assert {entry["status"] for entry in lines} == {"done"}


def test_with_a_state_folder_a_lost_server_loses_nothing(
    crawl: Path, engine: EngineProcess
) -> None:
    options = ("--engine", engine.endpoint, "--state", "state", "-q")
    with extract(crawl, *options) as process:
        assert wait_until(lambda: count(crawl) >= 5, 60)
        os.kill(server_of(process.pid), signal.SIGKILL)
        assert process.wait(60) == 4
    with extract(crawl, *options) as process:
        assert process.wait(120) == 0
    names = Counter(line["id"] for line in written(crawl))
    assert names == Counter(f"crawl/{number:02}.html" for number in range(60))


def test_a_lost_engine_of_somebody_else_ends_the_run_and_says_so(
    crawl: Path, engine: EngineProcess
) -> None:
    with extract(crawl, "--engine", engine.endpoint, "-q") as process:
        assert wait_until(lambda: count(crawl) >= 5, 60)
        engine.kill()
        assert process.wait(60) == 3
    [line] = (crawl / "err").read_text().splitlines()
    assert line.startswith("pagemill: engine_unavailable: ")
    assert 5 <= len(written(crawl)) < 60


@pytest.mark.slow
def test_a_lost_engine_of_its_own_is_started_again(crawl: Path, model_files: ModelFiles) -> None:
    """With the real model: each page has one line in the end."""
    # More pages than one burst holds, so that the first lines come well before the end.
    with extract(crawl, "-q") as process:
        assert wait_until(lambda: count(crawl) >= 1, 200)
        [pid] = [
            child
            for child, line in descendants(process.pid).items()
            if "pagemill.engine" in line and "supervisor.py" not in line
        ]
        os.kill(pid, signal.SIGKILL)
        assert process.wait(280) == 0
    lines = written(crawl)
    assert Counter(line["status"] for line in lines) == {"done": 60}
    assert len({line["id"] for line in lines}) == 60


def test_a_cache_that_cannot_be_written_costs_time_only(
    crawl: Path, engine: EngineProcess, model_files: ModelFiles
) -> None:
    """Models are read from it; where grammars would be kept is no folder."""
    cache = crawl / "cache"
    cache.mkdir()
    (cache / "models").symlink_to(store.cache_directory() / "models")
    (cache / "grammars").write_text("")
    cache.chmod(0o500)
    options = ("--engine", engine.endpoint, "--limit", "3")
    with extract(crawl, *options, PAGEMILL_CACHE=str(cache)) as process:
        assert process.wait(120) == 0
    assert len(written(crawl)) == 3
