"""What the ledger holds at most, how long it keeps it, and what it says when it can't."""

from __future__ import annotations

import time

import pytest
import redis
from pagemill.extraction.ledger import (
    Ledger,
    LedgerLimits,
    connect,
)
from pagemill.extraction.reason import Reason, Refused

from .submissions import claim_all, die, page


def test_a_schema_is_needed_as_long_as_a_page_may_run(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    first, second = ledger.submit([page(0), page(1)])
    assert ledger.needs_schema("product@1")
    assert not ledger.needs_schema("product@2")
    [lease] = ledger.claim("w", 1, want=first.page_id)
    ledger.commit(lease, b"{}", "done")
    assert ledger.needs_schema("product@1")
    die(ledger)
    assert ledger.needs_schema("product@1")  # it may be tried again
    ledger.drop([second.page_id])
    assert not ledger.needs_schema("product@1")


def test_over_its_marks_the_ledger_refuses(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client, limits=LedgerLimits(max_queued=3, max_page_bytes=100))
    ledger.submit([page(n) for n in range(3)])
    with pytest.raises(Refused) as refused:
        ledger.submit([page(3)])
    assert refused.value.reason == Reason.LEDGER_FULL
    assert ledger.submit([page(1)])[0].state == "queued"  # known pages are always answered
    [lease, *_] = ledger.claim("w", 1)
    ledger.commit(lease, b"{}", "done")
    assert ledger.submit([page(3)])[0].created
    with pytest.raises(Refused) as refused:
        ledger.submit([page(5, body=b"x" * 101)])
    assert refused.value.reason == Reason.PAGE_TOO_LARGE
    small = Ledger(redis_client, namespace="small", limits=LedgerLimits(max_bytes=10))
    with pytest.raises(Refused, match="bytes"):
        small.submit([page()])


def test_bodies_are_kept_once_and_no_longer_than_needed(
    single: Ledger, redis_client: redis.Redis
) -> None:
    single.submit([page(schema="a@1"), page(schema="b@1")])
    assert len(redis_client.keys("*:body:*")) == 1
    first, second = (lease for lease in claim_all(single))
    single.commit(first, b"{}", "done")
    assert len(redis_client.keys("*:body:*")) == 1
    single.commit(second, b"{}", "done")
    left = {key.decode().split(":", 2)[2].split(":")[0] for key in redis_client.keys("{*")}
    assert left == {"seq", "claims", "counters", "terminal", "page", "latest"}


def test_a_page_whose_body_is_gone_is_leased_without(
    single: Ledger, redis_client: redis.Redis
) -> None:
    single.submit([page()])
    redis_client.delete(*redis_client.keys("*:body:*"))
    [lease] = single.claim("w", 1)
    assert lease.body is None
    assert single.commit(lease, b"{}", "failed")


def test_retention_drops_old_records_and_all_that_belongs_to_them(
    redis_client: redis.Redis,
) -> None:
    keeper = Ledger(redis_client, limits=LedgerLimits(retention_s=0.05))
    keeper.submit([page(0), page(1)], batch="b")
    for lease in claim_all(keeper):
        keeper.commit(lease, b"{}", "done")
    keeper.submit([page(2)])
    time.sleep(0.06)
    report = keeper.reap()
    assert (report.dropped, report.batches_dropped) == (2, 1)
    assert keeper.batch("b") is None
    assert keeper.depth().queued == 1
    assert len(redis_client.keys("*:page:*")) == 1
    assert keeper.submit([page(0)])[0].created


def test_records_go_early_when_they_take_too_much(redis_client: redis.Redis) -> None:
    keeper = Ledger(redis_client, limits=LedgerLimits(max_kept_bytes=60))
    accepted = keeper.submit([page(n) for n in range(4)], batch="b")
    for n, lease in enumerate(claim_all(keeper, 1)):
        keeper.commit(lease, bytes(range(n, n + 20)), "done")
        time.sleep(0.002)  # ends are kept in milliseconds
    keeper.reap()
    kept = [keeper.page(answer.page_id) is not None for answer in accepted]
    assert kept == sorted(kept)
    assert True in kept
    assert False in kept
    expired = keeper.records("b")[0][0]
    assert expired.result is None
    assert expired.error is not None
    assert expired.error.reason == Reason.RECORD_EXPIRED


def test_a_full_redis_refuses_submissions_but_finishes_work(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    ledger.submit([page(n) for n in range(3)])
    redis_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Refused) as refused:
            ledger.submit([page(9)])
        assert refused.value.reason == Reason.LEDGER_FULL
        leases = ledger.claim("w", 2)
        assert ledger.heartbeat(leases) == []
        assert ledger.commit(leases[0], b"{}", "done")
        assert ledger.release(leases[1:], "unused") == 1
        ledger.reap()
    finally:
        redis_client.config_set("maxmemory", 0)
    depth = ledger.depth()
    assert (depth.queued, depth.leased, depth.done, depth.submitted) == (2, 0, 1, 3)


def test_without_redis_the_ledger_says_so() -> None:
    for url in ("unix:///nonexistent/redis.sock", "redis+socket:///nonexistent/redis.sock"):
        with pytest.raises(Refused) as refused:
            Ledger(connect(url)).submit([page()])
        assert refused.value.reason == Reason.LEDGER_UNAVAILABLE
    with pytest.raises(Refused, match="address"):
        connect("http://127.0.0.1")
