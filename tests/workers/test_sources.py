"""Sources on a real server, pumped into a real ledger."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import redis
import zstandard
from pagemill.extraction.ledger import Lease, Ledger, LedgerLimits
from pagemill.extraction.reason import Reason, Refused
from pagemill.workers.sources import (
    FieldMap,
    FileSource,
    PumpReport,
    RedisHashSource,
    RedisListSource,
    Source,
    decode_body,
    pump,
)

LIMIT = 1000


def run(source: Source, ledger: Ledger, **options: Any) -> PumpReport:
    return pump(source, ledger, schema="product@1", model="m", options=b"{}", **options)


def leased(ledger: Ledger) -> dict[str | None, Lease]:
    leases = ledger.claim("w", 100)
    return {lease.url: lease for lease in leases}


def test_scrapy_items(redis_client: redis.Redis) -> None:
    items = [
        {
            "url": "https://a.example/1",
            "body": "<p>één</p>",
            "headers": {"Content-Type": ["text/html"]},
        },
        {
            "url": "https://a.example/2",
            "html": base64.b64encode(gzip.compress(b"<p>\xe9</p>")).decode(),
            "body_encoding": "base64",
        },
        {"url": "https://a.example/3"},
        {"url": "https://a.example/4", "body": "%", "body_encoding": "base64"},
        {"url": "https://a.example/5", "body": "é", "body_encoding": "base64"},
    ]
    redis_client.rpush("spider:items", *map(json.dumps, items), "not json", '{"a":' + "[" * 3000)
    ledger = Ledger(redis_client)
    source = RedisListSource(redis_client, "spider:items", max_page_bytes=LIMIT)
    assert run(source, ledger, batch="crawl") == PumpReport(submitted=2, rejected=5)
    pages = leased(ledger)
    first, second = pages["https://a.example/1"], pages["https://a.example/2"]
    assert (first.body, first.encoding, first.content_type) == (
        "<p>één</p>".encode(),
        "utf-8",
        "text/html",
    )
    assert (second.body, second.encoding) == (b"<p>\xe9</p>", None)
    batch = ledger.batch("crawl")
    assert batch is not None
    assert batch.total == 2
    assert redis_client.keys("spider:*") == []


def test_items_that_an_earlier_consumer_left_are_taken_up(redis_client: redis.Redis) -> None:
    items = [json.dumps({"url": f"https://a.example/{n}", "html": "x"}) for n in range(5)]
    redis_client.rpush("spider:items", *items)
    full = Ledger(redis_client, limits=LedgerLimits(max_queued=2))
    source = RedisListSource(redis_client, "spider:items", max_page_bytes=LIMIT)
    run(source, full, group_size=2, stop=lambda: full.waiting() == 2)
    with pytest.raises(Refused) as refused:
        run(source, full, group_size=2, stop=lambda: True)
    assert refused.value.reason == Reason.LEDGER_FULL
    left = redis_client.llen("spider:items") + redis_client.llen("spider:items:pagemill")
    assert left == 3
    ledger = Ledger(redis_client)
    again = RedisListSource(redis_client, "spider:items", max_page_bytes=LIMIT)
    assert run(again, ledger).submitted == 3
    assert len(leased(ledger)) == 5


def test_a_full_ledger_is_waited_for(redis_client: redis.Redis) -> None:
    redis_client.rpush("k", *[json.dumps({"html": f"{n}"}) for n in range(6)])
    ledger = Ledger(redis_client, limits=LedgerLimits(max_queued=2))

    def work() -> None:
        for lease in ledger.claim("w", 10):
            ledger.commit(lease, b"{}", "done")

    source = RedisListSource(redis_client, "k", max_page_bytes=LIMIT)
    report = run(source, ledger, group_size=2, ring=work, full_pause_s=0.01)
    assert report.submitted == 6
    assert ledger.depth().done == 6


def test_hashes(redis_client: redis.Redis) -> None:
    redis_client.hset("page:1", mapping={"url": "https://a.example/1", "html": "<p>1"})
    redis_client.hset("page:2", mapping={"url": "https://a.example/2", "body": zlib.compress(b"2")})
    redis_client.hset("page:3", mapping={"url": "https://a.example/3"})
    redis_client.set("page:4", "a string")
    redis_client.hset("page:5", mapping={"body": b"x" * (LIMIT + 1)})
    ledger = Ledger(redis_client)
    source = RedisHashSource(redis_client, "page:*", max_page_bytes=LIMIT)
    assert run(source, ledger) == PumpReport(submitted=2, rejected=2)
    assert {lease.body for lease in leased(ledger).values()} == {b"<p>1", b"2"}
    assert run(source, ledger).known == 2


def test_files(redis_client: redis.Redis, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(b"<p>a")
    (tmp_path / "b.ndjson").write_text(
        '{"id":"b1","url":"https://b.example/","html":"<p>b"}\n{\n{"html":"c","schema":"article"}\n'
    )
    ledger = Ledger(redis_client)
    source = FileSource([str(tmp_path)], max_page_bytes=LIMIT)
    assert run(source, ledger) == PumpReport(submitted=2, rejected=2)
    assert {lease.body for lease in ledger.claim("w", 9)} == {b"<p>a", b"<p>b"}


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, zstandard.compress, bytes])
def test_bodies_are_unpacked_within_their_bound(pack: Any) -> None:
    assert decode_body(pack(b"page" * 100), 400) == b"page" * 100
    with pytest.raises(Refused) as refused:
        decode_body(pack(b"\0" * 10_000_000), 400)
    assert refused.value.reason == Reason.PAGE_TOO_LARGE


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, zstandard.compress])
def test_a_body_that_is_cut_off_is_damaged(pack: Any) -> None:
    packed = pack(bytes(range(256)))
    with pytest.raises(Refused) as refused:
        decode_body(packed[:-8], 400)
    assert refused.value.reason == Reason.BODY_ENCODING_INVALID


def test_damaged_bodies_and_field_maps_are_refused() -> None:
    with pytest.raises(Refused, match="damaged"):
        decode_body(b"\x28\xb5\x2f\xfd nonsense", 100)
    assert FieldMap.parse("html=a|b url=link").html == ("a", "b")
    with pytest.raises(Refused, match="field map"):
        FieldMap.parse("nonsense=1")


def test_what_a_body_is_wrapped_in_may_be_named() -> None:
    inner = gzip.compress(b"<p>x</p>")
    assert decode_body(base64.b64encode(inner), LIMIT, "base64+gzip") == b"<p>x</p>"
    assert decode_body(base64.b64encode(inner), LIMIT, "base64") == b"<p>x</p>"
    assert decode_body(b"<p>x</p>", LIMIT, "utf-8") == b"<p>x</p>"
    for data, encoding in ((b"%", "base64"), (b"x", "rot13")):
        with pytest.raises(Refused) as refused:
            decode_body(data, LIMIT, encoding)
        assert refused.value.reason == Reason.BODY_ENCODING_INVALID
