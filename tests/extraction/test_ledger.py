"""The ledger's moves, each on a real server."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import redis
from pagemill.extraction.ledger import (
    Lease,
    Ledger,
    LedgerLimits,
    PageSubmission,
    connect,
    normalise_url,
    page_id,
)
from pagemill.extraction.reason import Reason, Refused


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def ledger(redis_client: redis.Redis, request: pytest.FixtureRequest) -> Ledger:
    return Ledger(redis_client, shards=request.param)


@pytest.fixture
def single(redis_client: redis.Redis) -> Ledger:
    return Ledger(redis_client)


def page(number: int = 0, **changes: object) -> PageSubmission:
    fields: dict[str, object] = {
        "body": f"<p>page {number}</p>".encode(),
        "schema": "product@1",
        "url": f"https://shop.example/{number}",
        "client_id": f"c{number}",
    }
    return PageSubmission(**{**fields, **changes})  # type: ignore[arg-type]


def claim_all(ledger: Ledger, count: int = 100) -> Iterator[Lease]:
    while leases := ledger.claim("w", count):
        yield from leases


def test_a_page_goes_through(ledger: Ledger) -> None:
    [accepted] = ledger.submit([page(encoding="utf-8", options=b'{"max_tokens":9}')])
    assert (accepted.state, accepted.created, accepted.client_id) == ("queued", True, "c0")
    [lease] = ledger.claim("w1", 10)
    assert lease.body == b"<p>page 0</p>"
    assert (lease.url, lease.schema, lease.encoding) == (
        "https://shop.example/0",
        "product@1",
        "utf-8",
    )
    assert lease.options == b'{"max_tokens":9}'
    status = ledger.page(lease.page_id)
    assert status is not None
    assert (status.state, status.worker, status.attempts) == ("leased", "w1", 1)
    assert ledger.commit(lease, b'{"record":1}', "done")
    assert ledger.result(accepted.page_id) == b'{"record":1}'
    depth = ledger.depth()
    assert (depth.queued, depth.leased, depth.done) == (0, 0, 1)


def test_a_resubmission_gets_the_same_record(ledger: Ledger) -> None:
    [first] = ledger.submit([page()])
    [again] = ledger.submit([page(url="HTTPS://Shop.example:443/0#top", client_id="other")])
    assert (again.page_id, again.created, again.client_id) == (first.page_id, False, "other")
    [lease] = ledger.claim("w", 10)
    ledger.commit(lease, b"{}", "failed")
    [late] = ledger.submit([page()])
    assert (late.page_id, late.state, late.created) == (first.page_id, "failed", False)
    assert ledger.claim("w", 10) == []
    assert ledger.depth().resubmitted == 2


@pytest.mark.parametrize(
    "change",
    [
        {"url": "https://shop.example/other"},
        {"body": b"other"},
        {"schema": "product@2"},
        {"options": b'{"max_tokens":1}'},
        {"model": "larger"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_makes_another_page(single: Ledger, change: dict[str, object]) -> None:
    first, other = single.submit([page(), page(**change)])
    assert first.page_id != other.page_id
    assert single.depth().queued == 2


def test_the_latest_version_of_a_url_is_one_lookup_away(ledger: Ledger) -> None:
    ledger.submit([page()])
    [second] = ledger.submit([page(body=b"newer")])
    assert ledger.latest("https://SHOP.example/0") == second.page_id
    assert ledger.latest("https://shop.example/unknown") is None


def test_a_burst_has_one_schema_and_one_set_of_options(single: Ledger) -> None:
    pages = [
        page(n, schema=f"s{n % 2}@1", options=[b"{}", b'{"seed":1}'][n % 3 == 0]) for n in range(12)
    ]
    single.submit(pages)
    bursts = []
    while leases := single.claim("w", 50):
        bursts.append({(lease.schema, lease.options) for lease in leases})
    assert [len(burst) for burst in bursts] == [1, 1, 1, 1]
    assert len(set.union(*bursts)) == 4


def test_interactive_pages_go_first_but_bulk_keeps_a_share(single: Ledger) -> None:
    single.submit([page(n) for n in range(40)])
    single.submit([page(100 + n, queue_class="interactive") for n in range(40)])
    order = [single.claim("w", 1)[0].url for _ in range(8)]
    interactive = [url for url in order if int(str(url).rsplit("/", 1)[1]) >= 100]
    assert len(interactive) == 6


def test_schemas_take_turns(single: Ledger) -> None:
    single.submit([page(n, schema="large@1") for n in range(30)])
    single.submit([page(n, schema="small@1") for n in range(3)])
    order = [single.claim("w", 3)[0].schema for _ in range(3)]
    assert "small@1" in order[:2]


def test_a_claim_with_want_holds_that_page(ledger: Ledger) -> None:
    accepted = ledger.submit([page(n) for n in range(20)])
    wanted = accepted[15].page_id
    leases = ledger.claim("w", 4, want=wanted)
    assert leases[0].page_id == wanted
    assert len({lease.page_id for lease in leases}) == len(leases) <= 4
    assert ledger.claim("other", 4, want=wanted) == []
    rest = [lease.page_id for lease in claim_all(ledger)]
    assert sorted([lease.page_id for lease in leases] + rest) == sorted(
        answer.page_id for answer in accepted
    )


def test_a_zombie_is_refused_and_counted(ledger: Ledger) -> None:
    ledger.submit([page()])
    [old] = ledger.claim("zombie", 1, lease_s=0.001)
    time.sleep(0.005)
    assert ledger.reap().requeued == 1
    [new] = ledger.claim("w", 1)
    assert new.token > old.token
    assert ledger.heartbeat([old]) == [old.page_id]
    assert not ledger.commit(old, b"late", "done")
    assert ledger.commit(new, b"right", "done")
    assert not ledger.commit(old, b"later", "done")
    assert ledger.release([old], "crashed") == 0
    assert ledger.result(new.page_id) == b"right"
    assert ledger.depth().zombie_commits == 2


def test_a_commit_may_be_repeated(single: Ledger) -> None:
    single.submit([page()])
    [lease] = single.claim("w", 1)
    assert single.commit(lease, b"1", "done")
    assert single.commit(lease, b"1", "done")
    assert single.depth().done == 1
    assert single.depth().zombie_commits == 0


def test_a_heartbeat_keeps_a_lease(single: Ledger) -> None:
    single.submit([page()])
    [lease] = single.claim("w", 1, lease_s=0.05)
    assert single.heartbeat([lease], lease_s=60) == []
    time.sleep(0.06)
    assert single.reap().requeued == 0
    assert single.commit(lease, b"{}", "done")


def test_a_page_that_kills_its_worker_is_set_apart_then_given_up(single: Ledger) -> None:
    poison, *innocent = single.submit([page(n) for n in range(5)])
    assert len(single.claim("w", 5, lease_s=0.001)) == 5
    for _ in range(50):
        time.sleep(0.002)
        single.reap()
        leases = single.claim("w", 5, lease_s=0.001)
        if not leases:
            break
        assert len(leases) == 1
        assert leases[0].alone
        if leases[0].page_id != poison.page_id:
            assert single.commit(leases[0], b"{}", "done")
    status = single.page(poison.page_id)
    assert status is not None
    assert (status.state, status.attempts) == ("dead", 4)
    assert status.error is not None
    assert status.error.reason == Reason.LEASE_EXPIRED
    depth = single.depth()
    assert (depth.done, depth.dead, depth.queued, depth.leased) == (4, 1, 0, 0)
    assert [letter.page_id for letter in single.dead_letters()] == [poison.page_id]
    assert all(single.result(page.page_id) == b"{}" for page in innocent)


def test_giving_back_unused_pages_holds_nothing_against_them(single: Ledger) -> None:
    single.submit([page(n) for n in range(3)])
    for _ in range(10):
        assert single.release(single.claim("w", 3), "engine_down", message="no engine") == 3
    leases = single.claim("w", 3)
    assert [lease.attempt for lease in leases] == [1, 1, 1]
    assert single.depth().lost == 0


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


def die(ledger: Ledger) -> None:
    """Lose whatever waits until it is dead."""
    while leases := ledger.claim("w", 1):
        ledger.release(leases, "crashed", message="boom")


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


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTP://Example.COM", "http://example.com/"),
        ("https://example.com:443/a?b=1#c", "https://example.com/a?b=1"),
        ("http://example.com:8080/%7Ea", "http://example.com:8080/%7Ea"),
        ("http://user@[2001:DB8::1]:80/", "http://[2001:db8::1]/"),
        ("  https://example.com./x ", "https://example.com/x"),
        ("urn:isbn:1", "urn:isbn:1"),
        ("http://[bad", "http://[bad"),
        (None, ""),
    ],
)
def test_normal_form_of_urls(url: str | None, normal: str) -> None:
    assert normalise_url(url) == normal


def test_ids_of_one_url_share_their_beginning() -> None:
    ids = {
        page_id(url="http://a.example/", content=c * 64, schema="s@1", options=b"{}", model="")
        for c in "abc"
    }
    assert len(ids) == 3
    assert len({identity[:16] for identity in ids}) == 1


def test_a_page_sent_again_with_another_encoding_is_read_again() -> None:
    def identity(**said: str) -> str:
        return page_id(url=None, content="c" * 64, schema="s@1", options=b"", model="", **said)

    ids = [identity(), identity(encoding="gb18030"), identity(content_type="text/plain")]
    assert len(set(ids)) == 3
