"""`POST /v1/extract`: a page by value, one record back, or a problem that says what to do."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import httpx
import pytest

from .conftest import HTML, STOCK, expect_problem

pytestmark = pytest.mark.model


def ask(api: httpx.Client, **fields: Any) -> httpx.Response:
    return api.post("/v1/extract", json={"schema": STOCK, **fields})


def raw(api: httpx.Client, body: bytes | str, kind: str, **query: Any) -> httpx.Response:
    return api.post("/v1/extract", content=body, params=query, headers={"content-type": kind})


@pytest.mark.parametrize(
    "page",
    [
        {"html": HTML},
        {"text": "Kettle. In stock."},
        {"body": base64.b64encode(HTML.encode()).decode(), "body_encoding": "base64"},
        {"body": HTML, "body_encoding": "utf-8", "content_type": "text/html"},
    ],
    ids=["html", "text", "base64", "utf-8"],
)
def test_a_page_comes_in_any_form(api: httpx.Client, page: dict[str, str]) -> None:
    reply = ask(api, id="one", url="https://shop.example/1", **page)
    assert reply.status_code == 200, reply.text
    result = reply.json()
    assert (result["id"], result["url"], result["status"]) == (
        "one",
        "https://shop.example/1",
        "done",
    )
    assert isinstance(result["record"]["in_stock"], bool)
    assert result["usage"]["completion_tokens"] > 0
    assert result["model"]
    assert result["schema"]


def test_a_raw_page_has_its_options_in_the_query(api: httpx.Client) -> None:
    api.put("/v1/schemas/stock", json=STOCK)
    reply = raw(api, HTML, "text/html; charset=utf-8", schema="stock", id="two", evidence="false")
    assert reply.status_code == 200, reply.text
    assert reply.json()["schema"] == "stock@1"
    assert reply.json()["id"] == "two"


def test_a_compressed_body_is_read(api: httpx.Client) -> None:
    api.put("/v1/schemas/stock", json=STOCK)
    reply = api.post(
        "/v1/extract",
        content=gzip.compress(HTML.encode()),
        params={"schema": "stock"},
        headers={"content-type": "text/html", "content-encoding": "gzip"},
    )
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(
    ("fields", "status", "reason", "word"),
    [
        ({"html": ""}, 422, "page_empty", ""),
        ({"html": "<html><body></body></html>"}, 422, "page_empty", ""),
        ({"html": "x" * 500_000}, 413, "page_too_large", "400000"),
        ({"html": "<div>" * 50_000 + "deep"}, 422, "page_too_deep", ""),
        ({"html": HTML, "schema": "nothing"}, 404, "schema_unknown", "nothing"),
        ({"html": HTML, "schema": {"type": "nonsense"}}, 422, "schema_invalid", ""),
        ({"html": HTML, "body": "x", "body_encoding": "utf-8"}, 400, "input_invalid", "html"),
        ({"html": HTML, "text": "x"}, 400, "request_invalid", "text"),
        ({"text": "x", "content_type": "text/html"}, 400, "request_invalid", "content_type"),
        ({}, 400, "input_invalid", "html or body"),
        ({"body": "***", "body_encoding": "base64"}, 400, "body_encoding_invalid", "base64"),
        ({"hmtl": HTML}, 422, "request_invalid", "did you mean html"),
        ({"html": HTML, "options": {"max_token": 1}}, 422, "request_invalid", "max_token"),
        ({"html": HTML, "options": {"max_tokens": 0}}, 422, "request_invalid", "max_tokens"),
        ({"html": HTML, "options": {"max_tokens": 1}}, 422, "budget_too_small", "max_tokens"),
        ({"html": 7}, 422, "request_invalid", "/html"),
    ],
)
def test_what_is_wrong_is_said(
    api: httpx.Client, fields: dict[str, Any], status: int, reason: str, word: str
) -> None:
    expect_problem(ask(api, **fields), status, reason, word)


def test_an_unsupported_keyword_is_pointed_at(api: httpx.Client) -> None:
    schema = {
        "type": "object",
        "properties": {"tags": {"type": "array", "items": {"type": "string"}, "nullable": True}},
        "required": ["tags"],
    }
    reply = ask(api, html=HTML, schema=schema)
    assert reply.json()["reason"] in ("keyword_unsupported", "schema_invalid")
    assert "/properties/tags" in reply.json()["at"]


@pytest.mark.parametrize(
    ("body", "kind", "query", "status", "reason"),
    [
        (b"\x00\x01\x02\xff" * 200, "application/pdf", {}, 415, "unsupported_content_type"),
        (b"%PDF-1.7\n" + b"\x00\xff" * 400, "text/html", {"schema": "product"}, None, None),
        (HTML.encode(), "text/html", {}, 400, "request_invalid"),
        (HTML.encode(), "", {"schema": "product"}, 415, "unsupported_content_type"),
        (HTML.encode(), "text/html", {"schema": "product", "shcema": "x"}, 422, "request_invalid"),
        (b'{"html": ', "application/json", {}, 400, "request_invalid"),
        (b'{"html": "x"}', "application/json", {"schema": "product"}, 400, "request_invalid"),
    ],
)
def test_a_wrong_body_is_refused(
    api: httpx.Client,
    body: bytes,
    kind: str,
    query: dict[str, str],
    status: int | None,
    reason: str | None,
) -> None:
    reply = raw(api, body, kind, **query)
    if status is None or reason is None:
        # What isn't a page is the page reader's to name.
        assert reply.status_code in (415, 422)
        assert reply.json()["reason"] in ("unsupported_content_type", "page_unreadable")
    else:
        expect_problem(reply, status, reason)


def test_deep_nesting_costs_no_more_than_the_page(api: httpx.Client) -> None:
    reply = ask(api, html="<div>" * 5000 + "in stock, forty euros")
    assert reply.status_code in (200, 422)
    assert api.get("/healthz").status_code == 200


def test_a_body_over_the_limit_is_refused(api: httpx.Client) -> None:
    expect_problem(ask(api, html="x" * (2 << 20)), 413, "request_too_large")


def test_invalid_utf8_is_read_anyway(api: httpx.Client) -> None:
    body = b"<html><body><p>Kettle \xff\xfe in stock, forty euros.</p></body></html>"
    encoded = base64.b64encode(body).decode()
    reply = ask(api, body=encoded, body_encoding="base64")
    assert reply.status_code == 200, reply.text


def test_a_control_token_in_a_page_is_text(api: httpx.Client) -> None:
    plain = ask(api, html=f"{HTML}<p>abc</p>").json()
    control = ask(api, html=f"{HTML}<p>&lt;|im_start|&gt;</p>").json()
    # One control token would be one token; as text it takes several.
    assert control["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"] + 2


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/extract/x"])
def test_an_unknown_path_is_a_problem(api: httpx.Client, path: str) -> None:
    expect_problem(api.get(path), 404, "request_invalid")


def test_a_wrong_method_is_a_problem(api: httpx.Client) -> None:
    expect_problem(api.get("/v1/extract"), 405, "request_invalid")


def test_the_callers_request_id_comes_back(api: httpx.Client) -> None:
    reply = api.get("/healthz", headers={"x-request-id": "crawl-7"})
    assert reply.headers["x-request-id"] == "crawl-7"
    odd = api.get("/healthz", headers={"x-request-id": "a b\tc"})
    assert len(odd.headers["x-request-id"]) == 32


def events_of(reply: httpx.Response) -> list[tuple[str, Any]]:
    assert reply.headers["content-type"].startswith("text/event-stream"), reply.text
    events = []
    for block in reply.text.strip().split("\n\n"):
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def test_a_record_streams_as_it_grows(api: httpx.Client) -> None:
    events = events_of(ask(api, id="s", html=HTML, stream=True))
    *deltas, (name, result) = events
    assert name == "result"
    assert {kind for kind, _ in deltas} == {"delta"}
    assert json.loads("".join(delta["text"] for _, delta in deltas)) == result["record"]
    assert result["id"] == "s"
    query = {"schema": "product", "stream": "true"}
    assert events_of(raw(api, HTML, "text/html", **query))[-1][0] in ("result", "error")


def test_each_window_of_a_long_page_streams(api: httpx.Client) -> None:
    html = "<h1>Kettle</h1>" + "<p>It is made of steel and glass.</p>" * 60
    options = {"max_page_tokens": 128, "max_windows": 3}
    *deltas, (name, result) = events_of(ask(api, html=html, options=options, stream=True))
    assert name == "result"
    assert {delta["window"] for _, delta in deltas} == {0, 1, 2}
    assert (result["windows"], result["page_cut"]) == (3, True)


def test_what_fails_before_the_first_text_has_its_status(api: httpx.Client) -> None:
    expect_problem(ask(api, html="  ", stream=True), 422, "page_empty")
    expect_problem(ask(api, html=HTML, stream="maybe"), 422, "request_invalid")
