"""The whole line on sample pages: server, engine, worker and API start, records come out, all end.

`make demo` runs it. The table goes to stdout, progress to stderr, the records to
demo/records.jsonl; the last line of stdout is `demo: P pages, D done, F failed, S s`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pagemill.extraction.config import load_settings
from pagemill.extraction.stack import ApiProcess, EmbeddedRedis, EngineProcess, WorkerProcess
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
PAGES = HERE / "pages"
RECORDS = HERE / "records.jsonl"
TIMEOUT_S = 1200.0

stderr = Console(stderr=True, highlight=False)


def sample_pages() -> Iterator[dict[str, Any]]:
    """The pages of the manifest as lines of a batch: bytes untouched, each with its schema."""
    for entry in json.loads((PAGES / "manifest.json").read_text(encoding="utf-8")):
        body = (PAGES / entry["file"]).read_bytes()
        yield {
            "id": entry["file"],
            "url": entry["url"],
            "schema": entry["schema"],
            "content_type": entry["content_type"],
            "body": base64.b64encode(body).decode(),
            "body_encoding": "base64",
        }


class Api:
    """The few calls that the demo makes, with the standard library alone."""

    def __init__(self, url: str) -> None:
        self._url = url
        # Loopback: never through a proxy.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def submit(self, pages: list[dict[str, Any]]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self._url}/v1/batches",
            data="".join(json.dumps(page) + "\n" for page in pages).encode(),
            headers={"Content-Type": "application/x-ndjson"},
        )
        return self._json(request)

    def progress(self, batch: str) -> dict[str, Any]:
        return self._json(urllib.request.Request(f"{self._url}/v1/batches/{batch}"))

    def records(self, batch: str) -> list[dict[str, Any]]:
        url = f"{self._url}/v1/batches/{batch}/records?limit=1000"
        with self._opener.open(url, timeout=30) as reply:
            return [json.loads(line) for line in reply]

    def _json(self, request: urllib.request.Request) -> dict[str, Any]:
        with self._opener.open(request, timeout=60) as reply:
            answer: dict[str, Any] = json.load(reply)
            return answer


def wait_finished(api: Api, batch: str, total: int) -> None:
    """Show progress until every page of the batch has ended."""
    deadline = time.monotonic() + TIMEOUT_S
    seen = -1
    with stderr.status("the first pages are read") as status:
        while True:
            state = api.progress(batch)
            finished = state["total"] - state["pending"]
            if finished != seen:
                seen = finished
                line = f"{finished}/{total} pages, {state['failed']} failed"
                status.update(line)
                if not stderr.is_terminal:
                    stderr.print(line)
            if state["finished"]:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"demo: {state['pending']} pages after {TIMEOUT_S:.0f} s")
            time.sleep(0.2)


def summary(record: dict[str, Any]) -> str:
    """The filled fields of a record, or why there is none."""
    if record["status"] != "done":
        return f"{record['error']['reason']}: {record['error']['message']}"
    filled = [
        f"{name}={json.dumps(value, ensure_ascii=False)}"
        for name, value in record["record"].items()
        if value not in (None, "", [])
    ]
    text = ", ".join(filled)
    return text if len(text) <= 200 else text[:199] + "…"


def show(records: list[dict[str, Any]]) -> None:
    table = Table("page", "schema", "status", "record", show_lines=True)
    for record in records:
        table.add_row(record["id"], record["schema"], record["status"], summary(record))
    Console(width=None if sys.stdout.isatty() else 120, highlight=False, markup=False).print(table)


def main() -> None:
    started = time.monotonic()
    pages = list(sample_pages())
    with contextlib.ExitStack() as stack:
        stderr.print("starting server, engine, worker, API")
        redis = stack.enter_context(EmbeddedRedis())
        engine = stack.enter_context(EngineProcess(model=load_settings().model))
        settings = load_settings(redis_url=redis.url, engine_endpoint=engine.endpoint)
        # Four slots: the bursts of the four schemas meet in the engine.
        worker = WorkerProcess(settings, concurrency=4, options=["--pool", "threads"])
        stack.enter_context(worker)
        api = Api(stack.enter_context(ApiProcess(settings)).url)
        accepted = api.submit(pages)
        wait_finished(api, accepted["id"], len(pages))
        records = api.records(accepted["id"])
    order = {page["id"]: number for number, page in enumerate(pages)}
    records.sort(key=lambda record: order[record["id"]])
    RECORDS.write_text(
        "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records),
        encoding="utf-8",
    )
    show(records)
    done = sum(record["status"] == "done" for record in records)
    seconds = time.monotonic() - started
    failed = len(pages) - done
    print(f"demo: {len(pages)} pages, {done} done, {failed} failed, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
