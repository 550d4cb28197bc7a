"""`/v1/batches`: pages in, progress, records out, through ledger, Celery worker and engine."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import httpx
import pytest

from .conftest import HTML, STOCK, expect_problem

pytestmark = pytest.mark.model
NDJSON = {"content-type": "application/x-ndjson"}


def page(name: object, **more: Any) -> dict[str, Any]:
    return {"id": str(name), "html": f"{HTML}<p>{name}</p>", **more}


def lines(*pages: dict[str, Any] | str) -> str:
    return "".join((p if isinstance(p, str) else json.dumps(p)) + "\n" for p in pages)


def finished(api: httpx.Client, batch: str) -> dict[str, Any]:
    deadline = time.monotonic() + 90
    while not (state := api.get(f"/v1/batches/{batch}").json())["finished"]:
        assert time.monotonic() < deadline, state
        time.sleep(0.1)
    return dict(state)


def records(api: httpx.Client, batch: str, limit: int = 100) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        reply = api.get(f"/v1/batches/{batch}/records", params={"cursor": cursor, "limit": limit})
        assert reply.headers["content-type"].startswith("application/x-ndjson")
        if not reply.content:
            return found
        found += [json.loads(line) for line in reply.text.splitlines()]
        cursor = reply.headers["pagemill-cursor"]


def test_json_pages_become_records(api: httpx.Client) -> None:
    reply = api.post("/v1/batches", json={"schema": STOCK, "pages": [page(n) for n in range(5)]})
    assert reply.status_code == 202, reply.text
    accepted = reply.json()
    assert (accepted["accepted"], accepted["rejected"]) == (5, 0)
    state = finished(api, accepted["id"])
    assert (state["total"], state["done"], state["pending"]) == (5, 5, 0)
    got = records(api, accepted["id"], limit=2)
    assert sorted(record["id"] for record in got) == ["0", "1", "2", "3", "4"]
    assert all(isinstance(record["record"]["in_stock"], bool) for record in got)


def test_a_bad_line_costs_only_itself(api: httpx.Client) -> None:
    body = lines(
        page("a"),
        "{broken",
        {"id": "b", "body": base64.b64encode(b"<p>in stock</p>").decode(), "body_encoding": "x"},
        {"id": "empty", "html": "<html></html>"},
        page("c", schema="no-such-schema"),
        page("d", surprise=1),
        page("e"),
    )
    api.put("/v1/schemas/stock", json=STOCK)
    reply = api.post("/v1/batches", content=body, params={"schema": "stock"}, headers=NDJSON)
    assert reply.status_code == 202, reply.text
    accepted = reply.json()
    assert (accepted["accepted"], accepted["rejected"]) == (3, 4)
    assert [(bad["number"], bad["reason"]) for bad in accepted["rejections"]] == [
        (2, "input_invalid"),
        (3, "input_invalid"),
        (5, "schema_unknown"),
        (6, "input_invalid"),
    ]
    state = finished(api, accepted["id"])
    assert (state["done"], state["failed"]) == (2, 1)
    failed = [record for record in records(api, accepted["id"]) if record["status"] == "failed"]
    assert [(record["id"], record["error"]["reason"]) for record in failed] == [
        ("empty", "page_empty")
    ]


def test_the_same_upload_again_continues_its_batch(api: httpx.Client) -> None:
    api.put("/v1/schemas/stock", json=STOCK)
    body = lines(page("i"), page("j"))
    headers = {**NDJSON, "idempotency-key": "nightly-1"}
    first, second = (
        api.post("/v1/batches", content=body, params={"schema": "stock"}, headers=headers).json()
        for _ in range(2)
    )
    assert first["id"] == second["id"]
    assert (first["created"], second["created"]) == (2, 0)
    assert finished(api, first["id"])["total"] == 2


def test_pages_of_several_schemas_share_a_batch(api: httpx.Client) -> None:
    api.put("/v1/schemas/stock", json=STOCK)
    other = {**STOCK, "properties": {"sold": {"type": "boolean"}}, "required": ["sold"]}
    api.put("/v1/schemas/sold", json=other)
    body = lines(page("s", schema="stock"), page("t", schema="sold@1"))
    accepted = api.post("/v1/batches", content=body, headers=NDJSON).json()
    finished(api, accepted["id"])
    found = {record["id"]: record for record in records(api, accepted["id"])}
    assert list(found["s"]["record"]) == ["in_stock"]
    assert list(found["t"]["record"]) == ["sold"]
    assert found["t"]["schema"] == "sold@1"


@pytest.mark.parametrize(
    ("content", "params", "headers", "status", "reason"),
    [
        ("", {"schema": "product"}, NDJSON, 400, "request_invalid"),
        ("{bad\n", {"schema": "product"}, NDJSON, 400, "input_invalid"),
        (lines(page(1)), {}, NDJSON, 400, "request_invalid"),
        (lines(page(1)), {"schema": "nothing"}, NDJSON, 404, "schema_unknown"),
        (lines(page(1)), {"schem": "product"}, NDJSON, 422, "request_invalid"),
        (lines(page(1)), {}, {"content-type": "text/csv"}, 415, "unsupported_content_type"),
        ('{"pages": []}', {}, {"content-type": "application/json"}, 422, "request_invalid"),
    ],
)
def test_a_wrong_batch_is_refused(
    api: httpx.Client,
    content: str,
    params: dict[str, str],
    headers: dict[str, str],
    status: int,
    reason: str,
) -> None:
    reply = api.post("/v1/batches", content=content, params=params, headers=headers)
    expect_problem(reply, status, reason)


def test_over_the_limit_says_what_was_accepted(api: httpx.Client) -> None:
    api.put("/v1/schemas/stock", json=STOCK)
    body = lines(*(page(f"many-{n}") for n in range(201)))
    reply = api.post("/v1/batches", content=body, params={"schema": "stock"}, headers=NDJSON)
    expect_problem(reply, 413, "request_too_large", "200 pages")
    assert reply.json()["accepted"] > 0
    assert api.get(f"/v1/batches/{reply.json()['id']}").status_code == 200


@pytest.mark.parametrize("path", ["", "/records"])
def test_an_unknown_batch_is_a_problem(api: httpx.Client, path: str) -> None:
    expect_problem(api.get(f"/v1/batches/none{path}"), 404, "batch_unknown")


def test_a_made_up_cursor_is_refused(api: httpx.Client) -> None:
    accepted = api.post("/v1/batches", json={"schema": STOCK, "pages": [page("z")]}).json()
    reply = api.get(f"/v1/batches/{accepted['id']}/records", params={"cursor": "moon"})
    expect_problem(reply, 400, "request_invalid")


def test_a_cancelled_batch_is_over_and_takes_no_more(api: httpx.Client) -> None:
    pages = [page(f"cancel {n}") for n in range(60)]
    key = {"idempotency-key": "to-be-cancelled"}
    batch = api.post("/v1/batches", json={"schema": STOCK, "pages": pages}, headers=key).json()
    reply = api.post(f"/v1/batches/{batch['id']}/cancel")
    assert reply.status_code == 200, reply.text
    assert reply.json()["total"] == 60
    state = finished(api, batch["id"])
    assert state["done"] + state["cancelled"] == 60
    assert len(records(api, batch["id"])) == state["done"]
    again = api.post("/v1/batches", json={"schema": STOCK, "pages": pages}, headers=key)
    expect_problem(again, 400, "request_invalid", "another batch")
    # What was forgotten is new to another batch.
    other = api.post("/v1/batches", json={"schema": STOCK, "pages": pages}).json()
    assert other["created"] == state["cancelled"]
    assert finished(api, other["id"])["done"] == 60


def test_progress_comes_as_events(api: httpx.Client) -> None:
    pages = [page(f"event {n}") for n in range(20)]
    batch = api.post("/v1/batches", json={"schema": STOCK, "pages": pages}).json()
    events: list[tuple[str, dict[str, Any]]] = []
    with api.stream("GET", f"/v1/batches/{batch['id']}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                events.append((name, json.loads(line.removeprefix("data: "))))
    *progress, (last, state) = events
    assert {kind for kind, _ in progress} <= {"progress"}
    assert (last, state["done"], state["finished"]) == ("finished", 20, True)
    done = [told["done"] for _, told in events]
    assert done == sorted(done)


@pytest.mark.parametrize("what", ["", "/events", "/records"])
def test_a_batch_that_is_not_there(api: httpx.Client, what: str) -> None:
    expect_problem(api.get(f"/v1/batches/nothing{what}"), 404, "batch_unknown")


def test_a_batch_that_is_not_there_is_not_cancelled(api: httpx.Client) -> None:
    expect_problem(api.post("/v1/batches/nothing/cancel"), 404, "batch_unknown")
