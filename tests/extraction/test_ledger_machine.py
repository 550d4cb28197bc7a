"""The ledger beside a plain model of it: random moves, and what must hold after each."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pagemill.extraction.ledger import Lease, Ledger, LedgerLimits, PageSubmission

MAX_ATTEMPTS = 2
SCHEMAS = ("a@1", "b@1")
BATCHES = ("one", "two")


@dataclass
class Page:
    schema: str
    state: str = "queued"
    alone: bool = False
    company: int = 0
    losses: int = 0
    blamed: int = 0
    result: bytes | None = None
    waiters: list[tuple[str, str]] = field(default_factory=list)

    def lose(self) -> None:
        self.losses += 1
        self.alone = True
        if self.company == 1:
            self.blamed += 1
        self.state = "dead" if self.blamed >= MAX_ATTEMPTS else "queued"


class LedgerMachine(RuleBasedStateMachine):
    """Leases live 60 s; one expires when the machine shortens it."""

    client: redis.Redis
    shards: int

    def __init__(self) -> None:
        super().__init__()
        self.client.flushall()
        self.ledger = Ledger(
            self.client, shards=self.shards, limits=LedgerLimits(max_attempts=MAX_ATTEMPTS)
        )
        self.pages: dict[str, Page] = {}
        self.live: list[Lease] = []
        self.ended: list[tuple[Lease, bool]] = []  # with whether its own commit made the record
        self.batches: dict[str, set[tuple[str, str]]] = {}
        self.finished: dict[str, list[tuple[str, str]]] = {}
        self.zombies = 0
        self.submitted = 0
        self.dropped = 0
        self.lost = 0
        self.events: dict[str, list[tuple[str, str]]] = {}  # all that a follower has to see
        self.seen: dict[str, list[tuple[str, str]]] = {}
        self.cursors: dict[str, str] = {}

    # --- moves --------------------------------------------------------------------------------

    @rule(
        numbers=st.lists(st.integers(0, 9), max_size=5),
        schema=st.sampled_from(SCHEMAS),
        batch=st.none() | st.sampled_from(BATCHES),
        client=st.sampled_from(("", "mine")),
        urgent=st.booleans(),
    )
    def submit(
        self, numbers: list[int], schema: str, batch: str | None, client: str, urgent: bool
    ) -> None:
        pages = [
            PageSubmission(
                body=f"page {number % 7}".encode(),  # some pages share a body
                url=f"https://example.com/{number}",
                schema=schema,
                client_id=client,
                queue_class="interactive" if urgent else "bulk",
            )
            for number in numbers
        ]
        answers = self.ledger.submit(pages, batch=batch)
        assert len(answers) == len(pages)
        if batch is not None:
            self.batches.setdefault(batch, set())
            self.finished.setdefault(batch, [])
            self.events.setdefault(batch, [])
        for answer in answers:
            known = self.pages.get(answer.page_id)
            assert answer.created == (known is None)
            if known is None:
                known = self.pages[answer.page_id] = Page(schema)
                self.submitted += 1
            assert answer.state == known.state
            pair = (answer.page_id, client or answer.page_id)
            if batch is not None and pair not in self.batches[batch]:
                self.batches[batch].add(pair)
                if known.state in ("queued", "leased", "dead"):
                    known.waiters.append((batch, pair[1]))
                if known.state not in ("queued", "leased"):
                    self.finished[batch].append(pair)
                    self.events[batch].append(pair)

    def _leased(self, leases: list[Lease]) -> None:
        tokens = {lease.token for lease in leases}
        assert len(tokens) == len(leases)
        for lease in leases:
            page = self.pages[lease.page_id]
            assert page.state == "queued"
            assert lease.attempt == page.losses + 1
            assert lease.alone == page.alone
            assert lease.schema == page.schema
            page.state, page.company = "leased", len(leases)
            self.live.append(lease)
        assert len({lease.schema for lease in leases}) <= 1
        assert not any(lease.alone for lease in leases) or len(leases) == 1

    @rule(count=st.integers(1, 4))
    def claim(self, count: int) -> None:
        leases = self.ledger.claim("w", count)
        assert len(leases) <= count
        assert leases or not any(page.state == "queued" for page in self.pages.values())
        self._leased(leases)

    @precondition(lambda self: self.pages)
    @rule(data=st.data(), count=st.integers(1, 4))
    def claim_wanted(self, data: st.DataObject, count: int) -> None:
        want = data.draw(st.sampled_from(sorted(self.pages)))
        leases = self.ledger.claim("w", count, want=want)
        if self.pages[want].state == "queued":
            assert leases[0].page_id == want
        else:
            assert leases == []
        self._leased(leases)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), state=st.sampled_from(("done", "failed")))
    def commit(self, data: st.DataObject, state: str) -> None:
        lease = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        page = self.pages[lease.page_id]
        page.state, page.result = state, f"{lease.token}".encode()
        assert self.ledger.commit(lease, page.result, state)  # type: ignore[arg-type]
        self._finish(lease.page_id)
        self.ended.append((lease, True))

    def _finish(self, page_id: str) -> None:
        page = self.pages[page_id]
        for batch, client in page.waiters:
            self.finished[batch].append((page_id, client))
            self.events[batch].append((page_id, client))
        if page.state != "dead":
            page.waiters.clear()

    @precondition(lambda self: any(page.state == "queued" for page in self.pages.values()))
    @rule(data=st.data())
    def poison(self, data: st.DataObject) -> None:
        """A page that kills whoever works on it."""
        queued = sorted(page_id for page_id, page in self.pages.items() if page.state == "queued")
        page_id = data.draw(st.sampled_from(queued))
        while self.pages[page_id].state == "queued":
            leases = self.ledger.claim("w", 1, want=page_id)
            self._leased(leases)
            assert self.ledger.release(leases, "crashed") == 1
            self._end(leases[0], lost=True)

    @precondition(lambda self: any(page.state == "dead" for page in self.pages.values()))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        picked = data.draw(st.lists(st.sampled_from(sorted(self.pages)), unique=True, max_size=3))
        dead = {page_id for page_id in picked if self.pages[page_id].state == "dead"}
        assert set(self.ledger.retry(picked)) == dead
        for page_id in dead:
            page = self.pages[page_id]
            page.state, page.blamed, page.losses = "queued", 0, 0
            for batch, client in page.waiters:
                self.finished[batch].remove((page_id, client))

    @precondition(lambda self: any(page.state == "dead" for page in self.pages.values()))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        picked = data.draw(st.lists(st.sampled_from(sorted(self.pages)), unique=True, max_size=3))
        dead = {page_id for page_id in picked if self.pages[page_id].state == "dead"}
        assert set(self.ledger.drop(picked)) == dead
        for page_id in dead:
            for batch, client in self.pages.pop(page_id).waiters:
                self.finished[batch].remove((page_id, client))
                self.batches[batch].remove((page_id, client))
            self.dropped += 1

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def commit_again(self, data: st.DataObject) -> None:
        """A worker that woke up late, or one that repeats a commit whose answer it lost."""
        lease, own = data.draw(st.sampled_from(self.ended))
        assert self.ledger.commit(lease, b"something else", "done") == own
        self.zombies += not own

    @precondition(lambda self: self.live)
    @rule(data=st.data(), kind=st.sampled_from(("unused", "engine_down", "engine_lost", "crashed")))
    def release(self, data: st.DataObject, kind: str) -> None:
        picked = data.draw(st.sets(st.integers(0, len(self.live) - 1), min_size=1, max_size=3))
        leases = [self.live[at] for at in picked]
        assert self.ledger.release(leases, kind) == len(leases)  # type: ignore[arg-type]
        for lease in leases:
            self._end(lease, lost=kind in ("engine_lost", "crashed"))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        picked = data.draw(st.sets(st.integers(0, len(self.live) - 1), min_size=1, max_size=3))
        leases = [self.live[at] for at in picked]
        assert self.ledger.heartbeat(leases, lease_s=0.001) == []
        time.sleep(0.003)
        report = self.ledger.reap()
        assert report.requeued + report.dead == len(leases)
        for lease in leases:
            self._end(lease, lost=True)

    def _end(self, lease: Lease, *, lost: bool) -> None:
        self.live.remove(lease)
        self.ended.append((lease, False))
        page = self.pages[lease.page_id]
        if lost:
            self.lost += 1
            page.lose()
        else:
            page.state = "queued"
        if page.state == "dead":
            self._finish(lease.page_id)

    @precondition(lambda self: self.live or self.ended)
    @rule()
    def heartbeat(self) -> None:
        ended = [lease for lease, _ in self.ended]
        lost = self.ledger.heartbeat([*self.live, *ended])
        assert Counter(lost) == Counter(lease.page_id for lease in ended)

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def counters_agree(self) -> None:
        depth = self.ledger.depth()
        states = Counter(page.state for page in self.pages.values())
        counted = {
            name: getattr(depth, name) for name in ("queued", "leased", "done", "failed", "dead")
        }
        states["dead"] += self.dropped  # what died and was forgotten has died
        assert counted == {name: states[name] for name in counted}
        assert depth.submitted == self.submitted == sum(counted.values())
        assert depth.zombie_commits == self.zombies
        assert depth.lost == self.lost
        assert (depth.oldest_s > 0) <= (depth.queued + depth.leased > 0)

    @invariant()
    def pages_agree(self) -> None:
        for page_id, page in self.pages.items():
            status = self.ledger.page(page_id)
            assert status is not None
            assert status.state == page.state
            assert status.attempts <= MAX_ATTEMPTS + 1
            assert self.ledger.result(page_id) == page.result

    @invariant()
    def batches_agree(self) -> None:
        for name, pairs in self.batches.items():
            status = self.ledger.batch(name)
            assert status is not None
            assert status.total == len(pairs)
            assert status.pending == len(pairs) - len(self.finished[name])
            records, _ = self.ledger.records(name, count=1000)
            listed = [(record.page_id, record.client_id) for record in records]
            assert Counter(listed) == Counter(self.finished[name])
            more, self.cursors[name] = self.ledger.records(name, self.cursors.get(name, ""), 1000)
            self.seen.setdefault(name, []).extend((r.page_id, r.client_id) for r in more)
            assert Counter(self.seen[name]) == Counter(self.events[name])
            for record in records:
                assert record.state == self.pages[record.page_id].state
                assert record.result == self.pages[record.page_id].result

    @invariant()
    def nothing_is_left_behind(self) -> None:
        kinds = Counter(key.split(b"}:")[1].split(b":")[0] for key in self.client.scan_iter("{*"))
        needed = {
            page_id: page
            for page_id, page in self.pages.items()
            if page.state in ("queued", "leased", "dead")
        }
        assert (kinds[b"body"] > 0) == bool(needed)
        waiting = {page_id for page_id, page in self.pages.items() if page.waiters}
        assert kinds[b"waiters"] == len(waiting)
        pending = sum(self.client.llen(key) for key in self.client.scan_iter("*:queue:*"))
        in_work = [page for page in self.pages.values() if page.state in ("queued", "leased")]
        assert pending == sum(page.state == "queued" for page in in_work)
        assert self._leases() == sum(page.state == "leased" for page in in_work)

    def _leases(self) -> int:
        return sum(self.client.zcard(key) for key in self.client.scan_iter("*:leases"))

    def teardown(self) -> None:
        """Whatever happened before: the rest can be worked off, and then nothing is left."""
        if self.live:
            self.ledger.release(self.live, "unused")
        while leases := self.ledger.claim("w", 10):
            for lease in leases:
                assert self.ledger.commit(lease, b"end", "done")
        depth = self.ledger.depth()
        assert (depth.queued, depth.leased) == (0, 0)
        assert depth.done + depth.failed + depth.dead == depth.submitted
        assert self._leases() == 0
        assert not list(self.client.scan_iter("*:queue:*"))
        assert len(list(self.client.scan_iter("*:waiters:*"))) == sum(
            bool(page.waiters) for page in self.pages.values() if page.state == "dead"
        )
        for name in self.batches:
            status = self.ledger.batch(name)
            assert status is not None
            assert status.finished


@pytest.mark.parametrize("shards", [1, 2])
def test_the_ledger_agrees_with_its_model(redis_client: redis.Redis, shards: int) -> None:
    machine = type("Machine", (LedgerMachine,), {"client": redis_client, "shards": shards})
    case = machine.TestCase
    case.settings = settings(
        max_examples=25,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    case("runTest").runTest()
