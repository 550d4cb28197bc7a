"""Who is served next: classes, tenants, sites; caps in flight; what a tenant may submit."""

from __future__ import annotations

import time
from collections import Counter

import msgspec
import pytest
import redis
from pagemill.extraction.ledger import Ledger, LedgerLimits, PageSubmission, QueueClass
from pagemill.extraction.ledger.keys import site_of
from pagemill.extraction.reason import Reason, Refused


def page(
    number: int,
    site: str = "a.example",
    *,
    size: int = 100,
    tenant: str = "",
    schema: str = "s@1",
    queue_class: QueueClass = "bulk",
) -> PageSubmission:
    return PageSubmission(
        body=f"{number} ".encode().ljust(size, b"x"),
        url=f"https://{site}/{number}",
        schema=schema,
        options=msgspec.json.encode({"tenant": tenant}),
        queue_class=queue_class,
    )


def serve(ledger: Ledger, burst: int, *, commit: bool = True) -> list[str]:
    """Work off the queue; the URLs in the order of being claimed."""
    order = []
    while leases := ledger.claim("w", burst):
        order += [str(lease.url) for lease in leases]
        if commit:
            for lease in leases:
                assert ledger.commit(lease, b"{}", "done")
    return order


def sites(urls: list[str]) -> list[str]:
    return [site_of(url) for url in urls]


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("https://Shop.Example:8080/a?b#c", "shop.example"),
        ("http://user:pass@h.example", "h.example"),
        ("http://[::1]:80/x", "__1".replace("__", "::")),
        ("http://a|b!.example/", "a_b_.example"),
        ("no url", "no_url"),
        ("http://[broken/", "_broken"),
        (None, ""),
    ],
)
def test_a_site_is_a_host_that_can_stand_in_a_queues_name(url: str | None, site: str) -> None:
    assert site_of(url) == site


def test_a_large_site_doesnt_hold_up_the_small_ones(redis_client: redis.Redis) -> None:
    """Each of 20 small sites has its n-th page out before twice its share of all was served."""
    ledger = Ledger(redis_client)
    ledger.submit([page(n, "large.example") for n in range(1000)])
    small = [f"small{number}.example" for number in range(20)]
    ledger.submit([page(n, site) for n in range(40) for site in small])
    seen: Counter[str] = Counter()
    for place, site in enumerate(sites(serve(ledger, 32)), 1):
        seen[site] += 1
        if site != "large.example" and seen[site] % 8 == 0:
            assert place <= 2 * seen[site] * 21
    assert seen == {"large.example": 1000, **dict.fromkeys(small, 40)}


def test_turns_are_counted_in_tokens(redis_client: redis.Redis) -> None:
    """Of a site whose pages are four times as long, a quarter as many are served meanwhile."""
    ledger = Ledger(redis_client)
    ledger.submit([page(n, "long.example", size=16 * 3 * 256) for n in range(400)])
    ledger.submit([page(n, "short.example", size=0) for n in range(400)])
    first = Counter(sites(serve(ledger, 32))[:300])
    assert 3 < first["short.example"] / first["long.example"] < 5


def test_a_tenant_with_many_sites_and_schemas_has_one_share(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    for number in range(200):
        many = page(number, f"s{number % 20}.example", tenant="many", schema=f"s{number % 5}@1")
        ledger.submit([many, page(number, "t.example", tenant="one")])
    first = Counter(site == "t.example" for site in sites(serve(ledger, 8))[:160])
    assert abs(first[True] - first[False]) <= 16


def test_who_comes_back_has_not_lost_what_he_was_charged(redis_client: redis.Redis) -> None:
    """A site that hands its pages over one by one gets no more than one that waits in a line."""
    ledger = Ledger(redis_client)
    ledger.submit([page(n, f"line{n % 4}.example") for n in range(400)])
    order = []
    for number in range(100):
        ledger.submit([page(1000 + number, "drop.example")])
        leases = ledger.claim("w", 2)
        order += sites([str(lease.url) for lease in leases])
        for lease in leases:
            ledger.commit(lease, b"{}", "done")
    assert Counter(order)["drop.example"] <= len(order) / 5 + 2


def test_a_cap_holds_a_site_back_and_lets_it_in_again(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client, limits=LedgerLimits(max_site_in_flight=3))
    ledger.submit([page(n, "a.example", schema=f"s{n % 2}@1") for n in range(10)])
    ledger.submit([page(n, "b.example") for n in range(2)])
    held = []
    while leases := ledger.claim("w", 8):
        held += leases
    assert Counter(sites([str(lease.url) for lease in held])) == {"a.example": 3, "b.example": 2}
    first, second, third = [lease for lease in held if site_of(lease.url) == "a.example"]
    assert all(ledger.commit(lease, b"{}", "done") for lease in held if "b.ex" in str(lease.url))
    ledger.commit(first, b"{}", "done")
    ledger.release([second], "unused")
    ledger.release([third], "crashed")
    more = []
    while leases := ledger.claim("w", 8):
        more += leases
    # The lost one runs alone, beyond the cap.
    assert sorted(lease.alone for lease in more) == [False, False, False, True]
    for lease in more:
        ledger.commit(lease, b"{}", "done")
    assert len(serve(ledger, 8)) == 5
    assert not redis_client.keys("*:parked:*")
    assert not redis_client.keys("*:inflight")


def test_who_waits_is_beyond_the_cap(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client, limits=LedgerLimits(max_site_in_flight=1))
    ledger.submit([page(0)])
    ledger.claim("w", 8)
    [wanted] = ledger.submit([page(1, queue_class="interactive")])
    assert ledger.claim("w", 8) == []
    assert [lease.page_id for lease in ledger.claim("w", 8, want=wanted.page_id)] == [
        wanted.page_id
    ]


def test_bulk_pages_that_waited_long_get_every_second_claim(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client, limits=LedgerLimits(ageing_s=0.05))
    ledger.submit([page(n, "bulk.example") for n in range(40)])
    ledger.submit([page(n, "now.example", queue_class="interactive") for n in range(40)])
    time.sleep(0.06)
    order = [site_of(ledger.claim("w", 1)[0].url) for _ in range(20)]
    assert Counter(order)["bulk.example"] == 10


def test_a_tenants_rate_in_pages(redis_client: redis.Redis) -> None:
    """A burst, then a refusal that says when; others and known pages aren't concerned."""
    limits = LedgerLimits(tenant_pages_per_s=5.0, tenant_burst_s=2.0)
    ledger = Ledger(redis_client, limits=limits)
    ledger.submit([page(n, tenant="a") for n in range(10)])
    with pytest.raises(Refused) as refused:
        ledger.submit([page(10, tenant="a")])
    assert refused.value.reason == Reason.RATE_LIMITED
    assert refused.value.advice == "submit again in 1 s"
    assert not ledger.submit([page(n, tenant="a") for n in range(10)])[9].created
    ledger.submit([page(n, tenant="b") for n in range(10)])
    time.sleep(0.3)
    assert ledger.submit([page(10, tenant="a")])[0].created


def test_a_tenants_rate_in_tokens(redis_client: redis.Redis) -> None:
    """A call may overdraw; then the debt is paid before the next."""
    limits = LedgerLimits(tenant_tokens_per_s=256.0, tenant_burst_s=1.0)
    ledger = Ledger(redis_client, limits=limits)
    ledger.submit([page(n, size=0, tenant="a") for n in range(4)])
    with pytest.raises(Refused) as refused:
        ledger.submit([page(4, tenant="a")])
    assert refused.value.advice == "submit again in 3 s"
    assert ledger.depth().queued == 4
