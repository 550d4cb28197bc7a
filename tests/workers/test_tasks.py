"""Tasks by name, through a real broker and worker."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis
from celery import chord, group
from pagemill.extraction.assembly import open_ledger
from pagemill.extraction.intake import fix_schema, parse_options, submission
from pagemill.extraction.ledger import connect
from pagemill.schemas import SchemaRegistry

if TYPE_CHECKING:
    from .conftest import Crawler
else:
    Crawler = Any

pytestmark = pytest.mark.model

WAIT_S = 60
SCHEMA = {
    "type": "object",
    "properties": {"in_stock": {"type": "boolean"}},
    "required": ["in_stock"],
}


def extract(crawler: Crawler, **arguments: Any) -> Any:
    arguments = {"schema": SCHEMA, "max_tokens": 64, **arguments}
    return crawler.app.signature("pagemill.extract", kwargs=arguments, queue=crawler.settings.queue)


def result(crawler: Crawler, **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = extract(crawler, **arguments).apply_async().get(timeout=WAIT_S)
    return answer


def test_extract_returns_the_record_and_again_the_same(crawler: Crawler) -> None:
    first = result(crawler, url="https://shop.example/1", html="<h1>Lamp</h1>", id="mine")
    assert first["status"] == "done"
    assert isinstance(first["record"]["in_stock"], bool)
    assert (first["id"], first["url"]) == ("mine", "https://shop.example/1")
    again = result(crawler, url="https://SHOP.example/1", html="<h1>Lamp</h1>", id="mine")
    assert again["record"] == first["record"]
    assert again["timings"] == first["timings"]  # it wasn't made again


def test_pages_as_bytes_and_under_a_key(crawler: Crawler) -> None:
    body = "<h1>Lámpara</h1>".encode("latin-1")
    store = redis.Redis.from_url(crawler.settings.redis_url)
    store.set("crawl:1", body)
    store.hset("crawl:2", mapping={"url": "https://shop.example/2", "body": body})
    by_value = result(crawler, body_base64=base64.b64encode(body).decode(), encoding="latin-1")
    by_key = result(crawler, page_key="crawl:1", encoding="latin-1")
    by_hash = result(crawler, page_key="crawl:2", encoding="latin-1")
    assert [r["status"] for r in (by_value, by_key, by_hash)] == ["done"] * 3
    assert by_hash["url"] == "https://shop.example/2"
    assert by_key["record"] == by_value["record"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"html": "x", "schema": "no_such_schema"}, "schema_unknown"),
        ({"html": "x", "schema": None}, "input_invalid"),
        ({"html": "x", "schema": {"type": "nonsense"}}, "schema_invalid"),
        ({"html": "x", "schema": [1]}, "input_invalid"),
        ({"html": "x", "id": "\ud800"}, "input_invalid"),
        ({"html": "x", "content_type": "\ud800"}, "input_invalid"),
        ({"html": "x", "id": ["a"]}, "input_invalid"),
        ({"html": ""}, "page_empty"),
        ({}, "input_invalid"),
        ({"body_base64": "%%%"}, "body_encoding_invalid"),
        ({"page_key": "no:such:key"}, "body_missing"),
        ({"html": "x", "max_tokenz": 1}, "request_invalid"),
        ({"html": "x" * (9 << 20)}, "page_too_large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_input_that_cannot_be_used_is_a_failed_result(
    crawler: Crawler, arguments: dict[str, Any], reason: str
) -> None:
    answer = result(crawler, url="https://shop.example/bad", **arguments)
    assert answer["status"] == "failed"
    assert answer["record"] is None
    assert answer["error"]["reason"] == reason
    assert answer["error"]["message"]


def test_canvas(crawler: Crawler) -> None:
    """Ten extractions on a pool of one: none waits for another, and a chord's end sees all."""
    pages = [
        extract(crawler, url=f"https://shop.example/canvas/{n}", html=f"<p>{n}</p>")
        for n in range(10)
    ]
    answers = group(pages).apply_async().get(timeout=WAIT_S)
    assert [answer["url"] for answer in answers] == [
        f"https://shop.example/canvas/{n}" for n in range(10)
    ]
    assert {answer["status"] for answer in answers} == {"done"}
    after = chord(pages[:3])(
        crawler.app.signature(
            "pagemill.submit",
            args=([],),
            kwargs={"schema": SCHEMA},
            queue=crawler.settings.queue,
            immutable=True,
        )
    )
    assert after.get(timeout=WAIT_S) == []


def test_submit_rings_and_the_batch_is_drained(crawler: Crawler) -> None:
    pages = [
        {"id": f"p{n}", "url": f"https://shop.example/many/{n}", "html": f"<p>Lamp {n}</p>"}
        for n in range(30)
    ]
    accepted = crawler.app.send_task(
        "pagemill.submit",
        kwargs={"pages": pages, "schema": SCHEMA, "batch": "many", "max_tokens": 64},
        queue=crawler.settings.queue,
    ).get(timeout=WAIT_S)
    assert [answer["id"] for answer in accepted] == [f"p{n}" for n in range(30)]
    wait_for_batch(crawler, "many", 30)


@pytest.mark.parametrize(
    ("arguments", "reason", "word"),
    [
        ({"pages": [{"html": "x"}], "schema": "no_such_schema"}, "schema_unknown", "no schema"),
        ({"pages": [{"html": "x"}], "schema": {"type": "nonsense"}}, "schema_invalid", "nonsense"),
        ({"pages": [{"html": "x"}]}, "input_invalid", "give schema=NAME"),
        ({"pages": [{}], "schema": SCHEMA}, "input_invalid", "html"),
        ({"pages": {"html": "x"}, "schema": SCHEMA}, "input_invalid", "a list of objects"),
        ({"pages": ["x"], "schema": SCHEMA}, "input_invalid", "page 1"),
        ({"pages": [], "schema": SCHEMA, "batch": "a b"}, "request_invalid", "batch id"),
        ({"pages": [], "schema": SCHEMA, "max_tokenz": 1}, "request_invalid", "max_tokenz"),
    ],
)
def test_a_refused_submission_reads_well_in_another_project(
    crawler: Crawler, arguments: dict[str, Any], reason: str, word: str
) -> None:
    """As a caller without this package sees it: by the JSON of the result alone."""
    sent = crawler.app.send_task("pagemill.submit", kwargs=arguments, queue=crawler.settings.queue)
    error = sent.get(timeout=WAIT_S, propagate=False)
    assert type(error).__name__ == "TaskRefused"
    assert str(error).startswith(f"{reason}: ")
    assert word in str(error)
    stored = crawler.app.backend.get(crawler.app.backend.get_key_for_task(sent.id))
    meta = json.loads(stored)
    assert meta["result"]["exc_message"] == [str(error)]


def test_pages_that_nobody_was_rung_for_are_found(crawler: Crawler) -> None:
    """As after the loss of every message: the ledger has pages, the broker has none."""
    ledger = open_ledger(crawler.settings)
    registry = SchemaRegistry(connect(crawler.settings.redis_url), crawler.settings.namespace)
    schema = fix_schema(registry, SCHEMA)
    ledger.submit(
        [
            submission(
                f"<p>forgotten {n}</p>".encode(),
                schema=schema,
                model=crawler.settings.model,
                options=parse_options({"max_tokens": 64}),
            )
            for n in range(12)
        ],
        batch="forgotten",
    )
    wait_for_batch(crawler, "forgotten", 12)


def wait_for_batch(crawler: Crawler, batch: str, count: int) -> None:
    ledger = open_ledger(crawler.settings)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        status = ledger.batch(batch)
        if status is not None and status.done == count:
            return
        time.sleep(0.05)
    pytest.fail(f"{ledger.batch(batch)} after {WAIT_S} s")


def test_workers_import_no_torch() -> None:
    code = (
        "import sys, pagemill.workers.tasks\n"
        "found = {'torch', 'transformers', 'fastapi'} & set(sys.modules)\n"
        "sys.exit(f'imported: {found}' if found else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
