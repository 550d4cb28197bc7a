"""Several processes at one ledger, killed at random: each page gets one record, made once."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time

import redis
from pagemill.extraction.ledger import Ledger, PageSubmission, connect

PAGES = 400
LEASE_S = 0.15
SEED = 20261201


def work(url: str, seed: int) -> None:
    """Claim bursts and commit them page by page, at a random pace."""
    chance = random.Random(seed)
    ledger = Ledger(connect(url), shards=2)
    worker = f"{os.getpid()}"
    while True:
        leases = ledger.claim(worker, chance.randint(1, 12), lease_s=LEASE_S)
        if not leases:
            time.sleep(0.01)
        for lease in leases:
            time.sleep(chance.uniform(0, 0.004))
            ledger.commit(lease, f"{worker}:{lease.token}".encode(), "done")


def test_processes_that_are_killed(redis_client: redis.Redis, redis_server: object) -> None:
    url = redis_server.url  # type: ignore[attr-defined]
    chance = random.Random(SEED)
    ledger = Ledger(redis_client, shards=2)
    accepted = ledger.submit(
        [
            PageSubmission(body=b"x" * n, url=f"https://example.com/{n}", schema=f"s@{n % 2}")
            for n in range(PAGES)
        ],
        batch="b",
    )
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=work, args=(url, seed)) for seed in range(4)]
    for process in workers:
        process.start()
    first_seen: dict[str, bytes | None] = {}
    kills = 0
    deadline = time.monotonic() + 60
    try:
        while True:
            status = ledger.batch("b")
            assert status is not None
            for record in ledger.records("b", count=10 * PAGES)[0]:
                assert first_seen.setdefault(record.page_id, record.result) == record.result
            if status.finished:
                break
            assert time.monotonic() < deadline
            if kills < 12 and chance.random() < 0.5:
                victim = chance.randrange(len(workers))
                pid = workers[victim].pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                workers[victim].join()
                kills += 1
                workers[victim] = fork.Process(target=work, args=(url, 100 + kills))
                workers[victim].start()
            ledger.reap()
            time.sleep(0.03)
    finally:
        for process in workers:
            process.kill()
            process.join()
    assert kills > 0
    assert set(first_seen) == {answer.page_id for answer in accepted}
    depth = ledger.depth()
    assert (depth.submitted, depth.done, depth.queued, depth.leased) == (PAGES, PAGES, 0, 0)
    assert depth.dead == 0
    assert not redis_client.keys("*:queue:*")
    assert not redis_client.keys("*:body:*")
