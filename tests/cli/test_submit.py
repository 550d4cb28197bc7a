"""`submit`, `batch`, `results`, `config show`, `top` and `up` on real services."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pagemill.extraction.child import wait_until
from pagemill.extraction.config import load_settings
from pagemill.extraction.stack import WorkerProcess

from .conftest import STOCK, Command, Services

pytestmark = pytest.mark.model
HTML = "<html><body><h1>Kettle</h1><p>In stock.</p></body></html>"


@pytest.fixture
def stock(tmp_path: Path) -> str:
    (tmp_path / "stock.json").write_text(json.dumps(STOCK))
    return "stock.json"


@pytest.fixture(scope="module")
def worker(services: Services) -> Iterator[None]:
    settings = load_settings(redis_url=services.redis_url, engine_endpoint=services.endpoint)
    with WorkerProcess(settings, options=["--pool", "threads"]):
        yield


def lines(count: int) -> bytes:
    rows = [json.dumps({"id": f"p{n}", "html": f"{HTML}{n}"}) for n in range(count)]
    return "\n".join(rows).encode()


def test_pages_go_in_and_records_come_out(
    with_services: Command, stock: str, worker: None, tmp_path: Path
) -> None:
    stdin = lines(5) + b'\n{"id": "odd", "colour": 1}'
    done = with_services("submit", "-", "--schema", stock, "--batch", "monday", stdin=stdin)
    assert done.status == 1  # The odd line.
    assert "odd: input_invalid" in done.err
    [told] = done.lines
    assert told == {"batch": "monday", "accepted": 5, "created": 5, "rejected": 1}

    [state] = with_services("batch", "monday", "--wait").lines
    assert (state["total"], state["pending"], state["done"]) == (5, 0, 5)

    found = with_services("results", "monday", "--follow")
    assert sorted(line["id"] for line in found.lines) == [f"p{n}" for n in range(5)]
    assert "5 pages, 0 of them without a record; next cursor" in found.err
    cursor = found.err.split()[-1]
    assert with_services("results", "monday", "--cursor", cursor).lines == []

    assert with_services("results", "monday", "--out", "t.csv").status == 0
    rows = list(csv.DictReader((tmp_path / "t.csv").open(newline="")))
    assert {row["in_stock"] for row in rows} <= {"true", "false"}
    assert len(rows) == 5

    again = with_services("submit", "-", "--schema", stock, "--batch", "monday", stdin=lines(5))
    assert again.lines[0]["created"] == 0
    assert with_services("batch", "monday").lines[0]["total"] == 5


def test_extract_writes_parquet(with_services: Command, stock: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    done = with_services("extract", "-", "--schema", stock, "--out", "t.parquet", stdin=lines(3))
    assert done.status == 0, done.err
    rows = parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert sorted(row["id"] for row in rows) == ["p0", "p1", "p2"]
    assert all(isinstance(row["in_stock"], bool) for row in rows)


def test_resume_goes_on_where_a_run_ended(
    with_services: Command, stock: str, tmp_path: Path
) -> None:
    out = tmp_path / "r.jsonl"
    run = ("extract", "-", "--schema", stock, "--out", "r.jsonl", "--resume")
    assert with_services(*run, stdin=lines(2)).status == 0
    before = out.read_bytes()
    gone = {"id": "p2", "url": None, "status": "failed", "error": {"reason": "engine_unavailable"}}
    empty = {"id": "p3", "url": None, "status": "failed", "error": {"reason": "page_empty"}}
    out.write_bytes(before + json.dumps(gone).encode() + b"\n" + json.dumps(empty).encode() + b"\n")
    with out.open("ab") as torn:
        torn.write(b'{"id": "p4", "status": "do')
    done = with_services(*run, stdin=lines(6))
    assert done.status == 0, done.err
    assert out.read_bytes().startswith(before)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(line["id"] for line in found) == [f"p{n}" for n in range(6)]
    states = {line["id"]: line["status"] for line in found}
    assert states["p3"] == "failed"  # Its failure was its own.
    assert states["p2"] == states["p4"] == "done"
    assert "3 pages, 3 done" in done.err
    assert list(tmp_path.glob(".r.jsonl*")) == []


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("extract", "-", "--schema", "product", "--resume"), "--out FILE"),
        (("extract", "-", "--schema", "product", "--resume", "--out", "x.csv"), "NDJSON"),
        (("extract", "-", "--schema", "product", "--resume", "--out", "notes.txt"), "no result"),
        (("extract", "-", "--schema", "product", "--format", "xml"), "xml"),
        (("batch", "never-was"), "no batch 'never-was'"),
        (("results", "never-was"), "no batch 'never-was'"),
        (("results", "a b"), "no batch 'a b'"),
        (("submit", "no-such-file", "--schema", "product"), "no such file"),
        (("submit", "-", "--schema", "no-such-schema"), "schema_unknown"),
        (("submit", "-", "--schema", "product", "--batch", "a b"), "not a batch id"),
        (("up", "--redis-url", "redis://localhost", "--state", "x"), "--state"),
        (("top", "--interval", "0"), "interval"),
    ],
)
def test_wrong_calls_say_what_to_do(
    with_services: Command, tmp_path: Path, arguments: tuple[str, ...], part: str
) -> None:
    (tmp_path / "notes.txt").write_text("dear diary\n")
    done = with_services(*arguments, stdin=lines(1))
    assert done.status == 2
    assert part in done.err
    assert (tmp_path / "notes.txt").read_text() == "dear diary\n"


def test_config_show_tells_sources_and_hides_passwords(
    pagemill: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "p.toml").write_text('burst_size = 7\nport = 81\nnamespace = "x"\n')
    monkeypatch.setenv("PAGEMILL_CONFIG", str(tmp_path / "p.toml"))
    monkeypatch.setenv("PAGEMILL_REDIS_URL", "redis://me:geheim@db.example:6379/1")
    monkeypatch.setenv("PAGEMILL_PORT", "82")
    done = pagemill("config", "show")
    [rows] = done.lines
    assert rows["burst_size"] == {"value": 7, "source": str(tmp_path / "p.toml")}
    assert rows["port"] == {"value": 82, "source": "PAGEMILL_PORT"}
    assert rows["lease_s"]["source"] == "default"
    assert rows["redis_url"]["value"] == "redis://me:***@db.example:6379/1"
    assert "geheim" not in done.out.decode()
    assert "geheim" in pagemill("config", "show", "--no-redact").out.decode()
    monkeypatch.setenv("PAGEMILL_BURST_SIZ", "3")
    assert "did you mean PAGEMILL_BURST_SIZE?" in pagemill("config", "show").err


def test_top_shows_what_answers(with_services: Command, stock: str) -> None:
    [seen] = with_services("top", "--once", "--json", "--interval", "0.2").lines
    assert seen["queue"]["queued"] == 0
    assert seen["engine"]["running"] == 0
    assert set(seen["rates"]) == {"pages_done", "pages_failed", "prompt_tokens", "output_tokens"}


def test_top_outlives_what_does_not_answer(
    pagemill: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PAGEMILL_REDIS_URL", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("PAGEMILL_ENGINE_ENDPOINT", f"ipc://{tmp_path}/none")
    [seen] = pagemill("top", "--once", "--json", "--interval", "0.2").lines
    assert (seen["queue"], seen["engine"]) == (None, None)
    assert set(seen["rates"].values()) == {None}


def _get(url: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as reply:
        return json.load(reply)


def test_up_serves_and_ends_whole(services: Services, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PAGEMILL_")}
    cache = os.environ.get("PAGEMILL_CACHE")
    environment |= {"PAGEMILL_ENGINE_ENDPOINT": services.endpoint, "XDG_RUNTIME_DIR": str(tmp_path)}
    environment |= {"PAGEMILL_CACHE": cache} if cache else {}
    command = [sys.executable, "-m", "pagemill.extraction.cli", "up", "--port", "0"]
    with subprocess.Popen(
        [*command, "--state", str(tmp_path / "state")],
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "err").open("wb"),
        env=environment,
    ) as up:
        assert up.stdout is not None
        ready = json.loads(up.stdout.readline())
        assert _get(f"{ready['url']}/readyz")["status"] == "ready"
        up.send_signal(signal.SIGTERM)
        assert up.wait(60) == 0
    folder = Path(ready["redis_url"].removeprefix("unix://")).parent
    assert wait_until(lambda: not folder.exists(), 10)
    with pytest.raises(OSError, match="refused"):
        _get(f"{ready['url']}/healthz")
