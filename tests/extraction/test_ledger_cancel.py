"""Cancelling a batch: what waits for it alone is forgotten, what others want stays."""

from __future__ import annotations

import random
import threading

import pytest
import redis
from pagemill.extraction.ledger import BatchStatus, Ledger, LedgerLimits
from pagemill.extraction.reason import Reason, Refused

from .submissions import claim_all, page


def status(ledger: Ledger, batch: str) -> BatchStatus:
    found = ledger.batch(batch)
    assert found is not None
    return found


def test_waiting_pages_are_forgotten_and_leased_ones_finish(ledger: Ledger) -> None:
    pages = ledger.submit([page(n) for n in range(12)], batch="b")
    leases = ledger.claim("w", 1)
    assert ledger.cancel("b") == 12 - len(leases)
    before = status(ledger, "b")
    assert (before.total, before.cancelled, before.pending) == (12, 11, 1)
    assert not before.finished
    assert ledger.claim("w", 20) == []
    for lease in leases:
        assert ledger.commit(lease, b"{}", "done")
    after = status(ledger, "b")
    assert (after.done, after.cancelled, after.finished) == (1, 11, True)
    assert after.finished_s > 0
    assert ledger.cancel("b") == 0
    leased = {lease.page_id for lease in leases}
    for submitted in pages:
        known = ledger.page(submitted.page_id)
        assert (known is not None) == (submitted.page_id in leased)
    depth = ledger.depth()
    assert (depth.queued, depth.leased, depth.done, depth.cancelled) == (0, 0, 1, 11)
    records, _ = ledger.records("b")
    assert [record.page_id for record in records] == [lease.page_id for lease in leases]


def test_what_others_want_stays(ledger: Ledger) -> None:
    ledger.submit([page(n) for n in range(4)], batch="b")
    ledger.submit([page(0)], batch="other")
    ledger.submit([page(1)])
    assert ledger.cancel("b") == 4
    leases = list(claim_all(ledger))
    assert {lease.url for lease in leases} == {page(0).url, page(1).url}
    for lease in leases:
        ledger.commit(lease, b"{}", "done")
    assert (status(ledger, "other").done, status(ledger, "other").finished) == (1, True)
    assert (status(ledger, "b").done, status(ledger, "b").cancelled) == (0, 4)


def test_a_page_that_somebody_submitted_before_the_batch_stays(ledger: Ledger) -> None:
    ledger.submit([page(0)])
    ledger.submit([page(0), page(1)], batch="b")
    ledger.cancel("b")
    assert [lease.url for lease in claim_all(ledger)] == [page(0).url]


def test_bodies_and_needs_of_forgotten_pages_go(ledger: Ledger, redis_client: redis.Redis) -> None:
    ledger.submit([page(n) for n in range(30)], batch="b")
    schema = page(0).schema
    assert ledger.needs_schema(schema)
    ledger.cancel("b")
    assert not ledger.needs_schema(schema)
    assert ledger.depth().bytes == 0
    left = {key.split(b":")[2] for key in redis_client.scan_iter("*")}
    assert not left & {b"page", b"body", b"queue", b"waiters", b"schemas"}, left
    [again] = ledger.submit([page(0)])
    assert again.created
    assert [lease.page_id for lease in claim_all(ledger)] == [again.page_id]


def test_a_page_that_was_lost_before_is_forgotten_too(ledger: Ledger) -> None:
    ledger.submit([page(0), page(1)], batch="b")
    ledger.release(ledger.claim("w", 2), "engine_lost")
    ledger.cancel("b")
    assert list(claim_all(ledger)) == []
    assert ledger.depth().queued == 0


def test_a_dead_page_can_be_tried_again(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client, limits=LedgerLimits(max_attempts=1))
    [dead] = ledger.submit([page()], batch="b")
    ledger.release(ledger.claim("w", 1), "crashed")
    assert ledger.cancel("b") == 0
    assert ledger.retry([dead.page_id]) == [dead.page_id]
    [lease] = ledger.claim("w", 1)
    ledger.commit(lease, b"{}", "done")
    assert (status(ledger, "b").done, status(ledger, "b").finished) == (1, True)


def test_a_cancelled_batch_takes_no_more_pages(ledger: Ledger) -> None:
    ledger.submit([page(0)], batch="b")
    ledger.cancel("b")
    for n in range(8):  # in whatever shard
        with pytest.raises(Refused) as refused:
            ledger.submit([page(n)], batch="b")
        assert refused.value.reason is Reason.REQUEST_INVALID
    assert ledger.depth().queued == 0


@pytest.mark.parametrize("batch", ["nothing", "", "no batch", "x" * 200])
def test_an_unknown_batch_is_said(ledger: Ledger, batch: str) -> None:
    with pytest.raises(Refused) as refused:
        ledger.cancel(batch)
    assert refused.value.reason is Reason.BATCH_UNKNOWN


def test_cancelled_batches_pass_their_retention(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client, limits=LedgerLimits(retention_s=0.001))
    ledger.submit([page(n) for n in range(3)], batch="b")
    ledger.cancel("b")
    while ledger.reap().batches_dropped == 0:
        pass
    assert ledger.batch("b") is None


@pytest.mark.parametrize("seed", range(3))
def test_races(redis_client: redis.Redis, seed: int) -> None:
    """Two batches of common pages are submitted, worked on and one of them cancelled at once."""
    random_ = random.Random(seed)
    ledgers = [Ledger(redis_client, shards=2) for _ in range(4)]
    numbers = list(range(60))
    work = threading.Event()
    work.set()

    def submit(batch: str, ledger: Ledger, chosen: list[int]) -> None:
        for n in chosen:
            try:
                ledger.submit([page(n)], batch=batch)
            except Refused:  # It is cancelled by now.
                return

    def consume() -> None:
        while work.is_set() or ledgers[2].depth().queued:
            for lease in ledgers[2].claim("w", 3):
                ledgers[2].commit(lease, b"{}", "done")

    shared = random_.sample(numbers, 30)
    threads = [
        threading.Thread(target=submit, args=("b", ledgers[0], random_.sample(numbers, 60))),
        threading.Thread(target=submit, args=("kept", ledgers[1], shared)),
    ]
    consumer = threading.Thread(target=consume)
    ledgers[0].submit([page(numbers[0])], batch="b")
    for thread in [*threads, consumer]:
        thread.start()
    while status(ledgers[3], "b").total < 20:
        pass
    ledgers[3].cancel("b")
    for thread in threads:
        thread.join()
    ledgers[3].cancel("b")
    work.clear()
    consumer.join()
    kept, cancelled = status(ledgers[3], "kept"), status(ledgers[3], "b")
    assert (kept.done, kept.total, kept.finished) == (30, 30, True)
    assert cancelled.finished
    assert cancelled.total == cancelled.done + cancelled.cancelled
    depth = ledgers[3].depth()
    assert (depth.queued, depth.leased) == (0, 0)
    assert depth.submitted == depth.done + depth.cancelled
