"""The ledger's moves, each on a real server."""

from __future__ import annotations

import time

import pytest
from pagemill.extraction.ledger import (
    Ledger,
)
from pagemill.extraction.reason import Reason

from .submissions import claim_all, page


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
