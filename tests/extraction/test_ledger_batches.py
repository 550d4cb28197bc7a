"""Progress and records of batches, and the dead letters that belong to them."""

from __future__ import annotations

import pytest
import redis
from pagemill.extraction.ledger import (
    Ledger,
    LedgerLimits,
)
from pagemill.extraction.reason import Reason, Refused

from .submissions import claim_all, die, page


def test_a_batch_counts_and_lists_what_is_finished(ledger: Ledger) -> None:
    ledger.submit([page(0)])
    [lease] = ledger.claim("w", 1)
    ledger.commit(lease, b"0", "done")
    ledger.submit([page(n) for n in range(6)], batch="b1")
    ledger.submit([page(n) for n in range(6)], batch="b1")  # repeated after a lost answer
    ledger.submit([page(3, client_id="mine")], batch="b2")
    batch = ledger.batch("b1")
    assert batch is not None
    assert (batch.total, batch.done, batch.pending, batch.finished) == (6, 1, 5, False)
    assert batch.finished_s == 0
    for n, lease in enumerate(claim_all(ledger)):
        ledger.commit(lease, str(n).encode(), "failed" if n == 2 else "done")
    batch = ledger.batch("b1")
    assert batch is not None
    assert (batch.done, batch.failed, batch.finished) == (5, 1, True)
    assert batch.finished_s >= batch.created_s > 0
    seen, cursor = [], ""
    while True:
        records, cursor = ledger.records("b1", cursor, 2)
        if not records:
            break
        seen += records
    assert sorted(record.client_id for record in seen) == [f"c{n}" for n in range(6)]
    assert all(record.result == ledger.result(record.page_id) for record in seen)
    [mine], _ = ledger.records("b2")
    assert mine.client_id == "mine"


def test_a_batch_tells_of_dead_pages(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client, limits=LedgerLimits(max_attempts=1))
    ledger.submit([page()], batch="b")
    ledger.release(ledger.claim("w", 1), "crashed", message="boom")
    batch = ledger.batch("b")
    assert batch is not None
    assert (batch.dead, batch.finished) == (1, True)
    [record], _ = ledger.records("b")
    assert (record.state, record.result) == ("dead", None)
    assert record.error is not None
    assert (record.error.reason, record.error.message) == ("internal_error", "boom")


def test_a_dead_page_that_is_tried_again_is_as_it_was(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client, limits=LedgerLimits(max_attempts=2))
    [dead] = ledger.submit([page()], batch="b")
    die(ledger)
    assert ledger.body(dead.page_id) == b"<p>page 0</p>"
    seen, cursor = ledger.records("b")
    assert [record.state for record in seen] == ["dead"]
    assert ledger.retry([dead.page_id, "0" * 64]) == [dead.page_id]
    assert ledger.retry([dead.page_id]) == []  # it waits already
    status = ledger.page(dead.page_id)
    assert status is not None
    assert (status.state, status.attempts, status.finished_s) == ("queued", 0, 0)
    batch = ledger.batch("b")
    assert batch is not None
    assert (batch.total, batch.dead, batch.pending) == (1, 0, 1)
    assert ledger.records("b")[0] == []
    [lease] = ledger.claim("w", 9)
    assert (lease.alone, lease.attempt, lease.body) == (True, 1, b"<p>page 0</p>")
    assert ledger.commit(lease, b"{}", "done")
    # Who has read up to the dead page goes on from there; who starts anew sees the page once.
    for [record], _ in (ledger.records("b", cursor), ledger.records("b")):
        assert (record.state, record.result) == ("done", b"{}")
    assert ledger.dead_letters() == []
    assert ledger.body(dead.page_id) is None


def test_a_page_tried_again_has_all_its_attempts(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client, limits=LedgerLimits(max_attempts=3))
    [dead] = ledger.submit([page()], batch="b")
    die(ledger)
    ledger.retry([dead.page_id])
    attempts = 0
    while leases := ledger.claim("w", 1):
        attempts += 1
        ledger.release(leases, "crashed")
    assert attempts == 3
    assert [letter.page_id for letter in ledger.dead_letters()] == [dead.page_id]
    assert len(ledger.records("b")[0]) == 1


def test_a_dead_page_without_a_body_is_not_tried_again(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    [dead] = ledger.submit([page()])
    die(ledger)
    for key in redis_client.scan_iter("*:body:*"):
        redis_client.delete(key)
    assert ledger.retry([dead.page_id]) == []
    assert [letter.page_id for letter in ledger.dead_letters()] == [dead.page_id]


def test_a_dropped_page_leaves_nothing_and_may_come_again(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    dead, other = ledger.submit([page(0), page(1)], batch="b")
    [lease] = ledger.claim("w", 1, want=other.page_id)
    ledger.commit(lease, b"{}", "done")
    die(ledger)
    assert ledger.drop([dead.page_id, other.page_id]) == [dead.page_id]
    batch = ledger.batch("b")
    assert batch is not None
    assert (batch.total, batch.dead, batch.pending, batch.finished) == (1, 0, 0, True)
    assert [record.page_id for record in ledger.records("b")[0]] == [other.page_id]
    assert not list(redis_client.scan_iter("*:body:*"))
    assert not list(redis_client.scan_iter(f"*{dead.page_id}*"))
    [again] = ledger.submit([page(0)], batch="b")
    assert (again.page_id, again.state, again.created) == (dead.page_id, "queued", True)


def test_dead_letters_can_be_tried_when_redis_is_full(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    first, second = ledger.submit([page(0), page(1)], batch="b")
    die(ledger)
    redis_client.config_set("maxmemory", 1)
    try:
        assert ledger.retry([first.page_id]) == [first.page_id]
        assert ledger.drop([second.page_id]) == [second.page_id]
    finally:
        redis_client.config_set("maxmemory", 0)
    assert ledger.depth().queued == 1


def test_unknown_batches_cursors_and_ids_are_refused(ledger: Ledger) -> None:
    with pytest.raises(Refused) as refused:
        ledger.records("nope")
    assert refused.value.reason == Reason.BATCH_UNKNOWN
    ledger.submit([], batch="empty")
    assert ledger.records("empty")[0] == []
    status = ledger.batch("empty")
    assert status is not None
    assert status.finished
    with pytest.raises(Refused, match="cursor"):
        ledger.records("empty", "x;y")
    with pytest.raises(Refused, match="batch id"):
        ledger.submit([], batch="a b")
    with pytest.raises(Refused, match="page id"):
        ledger.result("../etc")
    assert ledger.batch("nope") is None
