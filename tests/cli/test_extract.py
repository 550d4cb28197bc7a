"""`pagemill extract`: a line for each page, one line for an error, exit statuses as documented."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pagemill.extraction.child import wait_until

from .conftest import STOCK, Command, Services

pytestmark = pytest.mark.model
HTML = "<html><body><h1>Kettle</h1><p>In stock.</p></body></html>"


@pytest.fixture
def stock(tmp_path: Path) -> str:
    (tmp_path / "stock.json").write_text(json.dumps(STOCK))
    return "stock.json"


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    folder = tmp_path / "crawl"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.html").write_text(f"{HTML}{number}")
    return folder


def test_a_folder_becomes_lines(with_services: Command, stock: str, crawl: Path) -> None:
    done = with_services("extract", "crawl", "--schema", stock)
    assert done.status == 0, done.err
    assert sorted(line["id"] for line in done.lines) == [f"crawl/{n}.html" for n in range(5)]
    for line in done.lines:
        assert line["status"] == "done"
        assert isinstance(line["record"]["in_stock"], bool)
        assert {"url", "error", "evidence", "usage", "schema", "model"} <= set(line)
    assert "5 pages, 5 done, 0 failed" in done.err


def test_limit_and_out(with_services: Command, stock: str, crawl: Path, tmp_path: Path) -> None:
    done = with_services(
        "extract", "crawl/*.html", "--schema", stock, "--limit", 2, "--out", "out.jsonl", "-q"
    )
    assert (done.status, done.out, done.err) == (0, b"", "")
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == ["crawl/0.html", "crawl/1.html"]


def test_a_failed_page_costs_only_itself(with_services: Command, stock: str) -> None:
    body = base64.b64encode(HTML.encode()).decode()
    stdin = "\n".join(
        [
            json.dumps({"id": "good", "url": "https://a.example/", "html": HTML}),
            json.dumps({"id": 2, "body": body, "body_encoding": "base64"}),
            json.dumps({"id": "empty", "html": "<html></html>"}),
            json.dumps({"id": "odd", "html": HTML, "colour": 1}),
            json.dumps({"id": "other", "html": HTML, "schema": "no-such-schema"}),
            "{broken",
        ]
    )
    done = with_services("extract", "-", "--schema", stock, stdin=stdin.encode())
    assert done.status == 1
    found = {line["id"]: line for line in done.lines}
    reasons = {name: (line["error"] or {}).get("reason") for name, line in found.items()}
    assert reasons == {
        "good": None,
        "2": None,
        "empty": "page_empty",
        "odd": "input_invalid",
        "other": "schema_unknown",
        "-:6": "input_invalid",
    }
    assert found["good"]["url"] == "https://a.example/"
    assert "6 pages, 2 done, 4 failed" in done.err


def test_equal_pages_under_different_ids_each_get_a_line(
    with_services: Command, stock: str
) -> None:
    stdin = "\n".join(json.dumps({"id": name, "html": HTML}) for name in ("a", "b", "a"))
    done = with_services("extract", "-", "--schema", stock, stdin=stdin.encode())
    assert done.status == 0, done.err
    assert sorted(line["id"] for line in done.lines) == ["a", "b"]


def test_state_is_taken_up_again(
    pagemill: Command, services: object, stock: str, crawl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = services.endpoint  # type: ignore[attr-defined]
    monkeypatch.setenv("PAGEMILL_ENGINE_ENDPOINT", endpoint)
    arguments = ("extract", "crawl", "--schema", stock, "--state", "state")
    first = pagemill(*arguments, "--limit", 3)
    second = pagemill(*arguments)
    assert (first.status, second.status) == (0, 0), second.err
    before = {line["id"]: line for line in first.lines}
    after = {line["id"]: line for line in second.lines}
    assert len(after) == 5
    # Timings too: the record is the one that was committed, not a new one.
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (["crawl"], 2, "usage"),
        (["crawl", "--schema", "stock.json", "--limit", "0"], 2, "usage"),
        (["crawl", "--schema", "stock.json", "--limt", "1"], 2, "usage"),
        (["nowhere", "--schema", "stock.json"], 2, "input_invalid"),
        (["crawl", "--schema", "nothing"], 2, "schema_unknown"),
        (["crawl", "--schema", "missing.json"], 2, "input_invalid"),
        (["crawl", "--schema", "broken.json"], 2, "schema_invalid"),
        (["crawl", "--schema", "unsupported.json"], 2, "keyword_unsupported"),
        (["crawl", "--schema", "stock.json", "--out", "no/such/folder"], 2, "input_invalid"),
        (["crawl", "--schema", "stock.json", "--out", "/dev/full"], 2, "input_invalid"),
        (["crawl", "--schema", "stock.json", "--model", "no-such-model"], 3, "model_invalid"),
        (["crawl", "--schema", "stock.json", "--redis-url", "redis://127.0.0.1:1/0"], 4, None),
        (["crawl", "--schema", "stock.json", "--redis-url", "http://x"], 2, "input_invalid"),
        (["crawl", "--schema", "stock.json", "--redis-url", "redis://h:no"], 2, "input_invalid"),
        (["crawl", "--schema", "stock.json", "--redis-url", "unix:x"], 2, "input_invalid"),
        (["crawl", "--schema", "stock.json", "--engine", "zzz"], 2, "input_invalid"),
        (["crawl", "--schema", "stock.json", "--engine", "ipc://e.sock"], 2, "input_invalid"),
        (["crawl", "--schema", "stock.json", "--engine", "tcp://127.0.0.1"], 2, "input_invalid"),
    ],
)
def test_an_error_is_one_line_and_a_status(
    with_services: Command,
    stock: str,
    crawl: Path,
    tmp_path: Path,
    arguments: list[str],
    status: int,
    reason: str | None,
) -> None:
    (tmp_path / "broken.json").write_text('{"type": "nonsense"}')
    unsupported = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    (tmp_path / "unsupported.json").write_text(json.dumps(unsupported))
    done = with_services("extract", *arguments)
    assert done.status == status, done.err
    assert done.out == b""
    (line,) = done.err.splitlines()
    assert line.startswith(f"pagemill: {reason or 'ledger_unavailable'}: ")


def test_an_engine_that_is_down_is_status_3(
    with_services: Command, stock: str, crawl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = with_services(
        "extract", "crawl", "--schema", stock, "--engine", "ipc:///nonexistent/engine.sock"
    )
    assert done.status == 3
    assert done.err.startswith("pagemill: engine_unavailable: ")


@pytest.mark.parametrize("command", ["extract", "doctor", "serve", "worker", "engine"])
def test_an_engine_endpoint_that_is_none_is_a_wrong_setting(
    pagemill: Command, crawl: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("PAGEMILL_ENGINE_ENDPOINT", "zzz")
    done = pagemill(command, *(["crawl", "--schema", "product"] if command == "extract" else []))
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert line.startswith("pagemill: input_invalid: setting engine_endpoint: the endpoint zzz ")


def test_an_engine_in_a_folder_open_to_others_is_not_asked(
    with_services: Command, stock: str, crawl: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    endpoint = f"ipc://{shared}/e.sock"
    done = with_services("extract", "crawl", "--schema", stock, "--engine", endpoint)
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert line.startswith("pagemill: config_invalid: the socket's folder ")
    assert "0700" in line


@pytest.mark.parametrize(
    "arguments", [["extract", "-", "--schema", "stock.json"], ["schema", "show", "product"]]
)
def test_a_closed_pipe_ends_the_command_quietly(
    services: Services, stock: str, tmp_path: Path, arguments: list[str]
) -> None:
    environment = {
        **os.environ,
        "PAGEMILL_REDIS_URL": services.redis_url,
        "PAGEMILL_ENGINE_ENDPOINT": services.endpoint,
    }
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pagemill.extraction.cli", *arguments],
            cwd=tmp_path,
            env=environment,
            input=json.dumps({"id": "k", "html": HTML}).encode(),
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=120,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("closing", "status", "word"),
    [
        ("<&-", 2, "input_invalid: standard input is closed"),
        (">&-", 2, "input_invalid: standard output is closed: give --out"),
        ("2>&-", 0, ""),
    ],
)
def test_closed_streams(
    services: Services, stock: str, tmp_path: Path, closing: str, status: int, word: str
) -> None:
    environment = {
        **os.environ,
        "PAGEMILL_REDIS_URL": services.redis_url,
        "PAGEMILL_ENGINE_ENDPOINT": services.endpoint,
    }
    command = f"{sys.executable} -m pagemill.extraction.cli extract - --schema {stock} -q {closing}"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=tmp_path,
        env=environment,
        input=json.dumps({"id": "k", "html": HTML}).encode(),
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == status, done.stderr
    assert done.stderr.decode() == (f"pagemill: {word}\n" if word else "")
    assert (b'"done"' in done.stdout) == (status == 0)


def test_a_setting_that_does_not_exist_is_named(
    pagemill: Command, crawl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEMILL_REDIS", "x")
    done = pagemill("extract", "crawl", "--schema", "product")
    assert done.status == 2
    assert "did you mean PAGEMILL_REDIS_URL?" in done.err


def test_nothing_is_left_running_after_kill_9(stock: str, crawl: Path, tmp_path: Path) -> None:
    """The command starts a server and an engine of its own; they go with it."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "pagemill.extraction.cli", "extract", "crawl", "--schema", stock],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert wait_until(lambda: children_of(process.pid) != set(), 60)
        children = children_of(process.pid)
    finally:
        process.kill()
        process.wait()
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), 20)


def children_of(pid: int) -> set[int]:
    """All descendants of a process, by /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {child for child, parent in parents.items() if parent == pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found
