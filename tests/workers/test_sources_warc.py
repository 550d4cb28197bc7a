"""WARC files and brotli bodies; both need the packages of the extra `warc`."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
import redis
from pagemill.extraction.inputs import BadInput
from pagemill.extraction.ledger import Ledger
from pagemill.extraction.reason import Reason, Refused
from pagemill.extraction.record import PageInput
from pagemill.workers.sources import (
    PumpReport,
    RedisHashSource,
    RedisListSource,
    WarcSource,
    decode_body,
    pump,
)

pytest.importorskip("fastwarc")
brotli = pytest.importorskip("brotli")

LIMIT = 1000


def record(number: int, http: bytes, kind: str = "response") -> bytes:
    """One WARC/1.1 record, as a file may hold many."""
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{number}>\r\n"
        f"WARC-Target-URI: https://a.example/{number}\r\nWARC-Date: 2026-12-01T00:00:00Z\r\n"
        f"Content-Type: application/http; msgtype={kind}\r\nContent-Length: {len(http)}\r\n\r\n"
    )
    return head.encode() + http + b"\r\n\r\n"


def response(body: bytes, *headers: str, status: str = "200 OK", kind: str = "text/html") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


RECORDS = [
    record(0, b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "request"),
    record(1, response(b"<p>plain</p>", kind="text/html; charset=latin-1")),
    record(2, response(gzip.compress(b"<p>gzip</p>"), "Content-Encoding: gzip")),
    record(3, response(brotli.compress(b"<p>br</p>"), "Content-Encoding: br")),
    record(4, response(b"4\r\n<p>c\r\n0\r\n\r\n", "Transfer-Encoding: chunked")),
    record(5, response(b"", status="301 Moved", kind="text/html")),
    record(6, response(b"\x89PNG", kind="image/png")),
    record(7, response(b"x" * (LIMIT + 1))),
    record(8, response(gzip.compress(b"0" * 10_000_000), "Content-Encoding: gzip")),
    record(9, response(b"<p>last</p>")),
]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip members"])
def test_responses_are_pages(tmp_path: Path, packed: bool) -> None:
    file = tmp_path / ("a.warc.gz" if packed else "a.warc")
    file.write_bytes(b"".join(gzip.compress(one) if packed else one for one in RECORDS))
    found = [item.page for item in WarcSource([str(file)], max_page_bytes=LIMIT).pages() if item]
    pages = {page.url: page for page in found if isinstance(page, PageInput)}
    assert {url: page.body for url, page in pages.items()} == {
        "https://a.example/1": b"<p>plain</p>",
        "https://a.example/2": b"<p>gzip</p>",
        "https://a.example/3": b"<p>br</p>",
        "https://a.example/4": b"<p>c",
        "https://a.example/9": b"<p>last</p>",
    }
    first = pages["https://a.example/1"]
    assert (first.id, first.content_type) == ("urn:uuid:1", "text/html; charset=latin-1")
    refused = {page.url: page.reason for page in found if isinstance(page, BadInput)}
    assert refused == {
        "https://a.example/7": Reason.PAGE_TOO_LARGE,
        "https://a.example/8": Reason.PAGE_TOO_LARGE,
    }


def test_a_damaged_file_costs_only_itself(redis_client: redis.Redis, tmp_path: Path) -> None:
    whole = gzip.compress(RECORDS[1])
    (tmp_path / "a.warc.gz").write_bytes(whole + b"no gzip member")
    (tmp_path / "b.warc").write_bytes(b"no WARC at all\n" * 100)
    (tmp_path / "c.warc").write_bytes(RECORDS[9])
    ledger = Ledger(redis_client)
    source = WarcSource([str(tmp_path / "*.warc*")], max_page_bytes=LIMIT)
    report = pump(source, ledger, schema="product@1", model="m")
    assert report.submitted == 2
    assert report.rejected >= 1
    assert {lease.body for lease in ledger.claim("w", 10)} == {b"<p>plain</p>", b"<p>last</p>"}


def test_a_file_that_isnt_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        WarcSource([str(tmp_path / "no.warc")], max_page_bytes=LIMIT)


def test_brotli_has_to_be_named(redis_client: redis.Redis) -> None:
    packed = brotli.compress(b"<p>brotli</p>")
    redis_client.hset("page:1", mapping={"body": packed, "body_encoding": "br"})
    item = {"body": base64.b64encode(packed).decode(), "body_encoding": "br"}
    redis_client.rpush("items", json.dumps({**item, "url": "https://a.example/"}))
    ledger = Ledger(redis_client)
    for source in (
        RedisHashSource(redis_client, "page:*", max_page_bytes=LIMIT),
        RedisListSource(redis_client, "items", max_page_bytes=LIMIT),
    ):
        assert pump(source, ledger, schema="product@1", model="m") == PumpReport(submitted=1)
    assert {lease.body for lease in ledger.claim("w", 10)} == {b"<p>brotli</p>"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (brotli.compress(b"0" * 10_000_000), Reason.PAGE_TOO_LARGE),
        (brotli.compress(b"<p>cut</p>" * 50)[:-3], Reason.BODY_ENCODING_INVALID),
        (b"\xff no brotli", Reason.BODY_ENCODING_INVALID),
        (b"", Reason.BODY_ENCODING_INVALID),
    ],
    ids=["bomb", "cut", "damaged", "empty"],
)
def test_brotli_bodies_are_bounded(data: bytes, reason: Reason) -> None:
    with pytest.raises(Refused) as refused:
        decode_body(data, LIMIT, "br")
    assert refused.value.reason == reason
