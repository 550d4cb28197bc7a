"""The ledger's door: one method per move of a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from ..reason import Reason, Refused
from . import keys, rows
from .admission import Admission, chunks
from .bodies import pack
from .reader import LedgerReader, checked_page_id, is_batch_id
from .types import (
    Commit,
    Lease,
    PageSubmission,
    ReapReport,
    Release,
    Submitted,
)

_DEAD_AT_ONCE = 500
_COMMITS_AT_ONCE = 64
_CANCELLED_AT_ONCE = 1000
# Pages of one site that follow each other: they share what their site's template has in common.
_SITE_RUN = 8
_LOSSES = {"engine_lost": Reason.ENGINE_UNAVAILABLE, "crashed": Reason.INTERNAL_ERROR}


class Ledger(LedgerReader):
    """Page states in Redis: queued -> leased -> done | failed | dead.

    Every method is one Lua script per shard it touches (`submit`: per group of pages) and raises
    Refused(LEDGER_UNAVAILABLE) when Redis can't serve. Thread-safe; make a new one after a fork.
    """

    def submit(
        self, pages: Sequence[PageSubmission], *, batch: str | None = None
    ) -> list[Submitted]:
        """Accept pages, in order; a known page is returned as it stands, nothing is doubled.

        Repeating a submission is harmless, within a batch too (a pair of client id and page
        counts once). A batch exists from its first submission on, an empty one too. Raises
        Refused: PAGE_TOO_LARGE before anything is accepted, LEDGER_FULL over the marks; then
        pages of the call may have been accepted, and submitting all of them again is right.
        """
        if batch is not None and not is_batch_id(batch):
            raise Refused(
                Reason.REQUEST_INVALID,
                f"not a batch id: {batch[:140]!r}",
                advice="use up to 128 letters, digits, or any of _ . : -",
            )
        entries = [Admission.of(page, self.limits) for page in pages]
        by_shard: dict[int, list[int]] = defaultdict(list)
        for at, entry in enumerate(entries):
            by_shard[keys.shard_of(entry.page_id, len(self._prefixes))].append(at)
        if not entries and batch is not None:
            by_shard[0] = []
        answers: list[Submitted | None] = [None] * len(entries)
        for shard, places in by_shard.items():
            for chunk in chunks(places, entries) or [[]]:
                self._submit_chunk(shard, [entries[at] for at in chunk], chunk, batch, answers)
        return [answer for answer in answers if answer is not None]

    def _submit_chunk(
        self,
        shard: int,
        entries: Sequence[Admission],
        places: Sequence[int],
        batch: str | None,
        answers: list[Submitted | None],
    ) -> None:
        limits, shards = self.limits, len(self._prefixes)
        arguments: list[Any] = [
            batch or "",
            limits.max_queued,
            limits.max_bytes,
            limits.tenant_pages_per_s / shards,
            limits.tenant_tokens_per_s / shards,
            limits.tenant_burst_s,
        ]
        for entry in entries:
            arguments += entry.arguments()
        reply = self._run("submit", shard, *arguments)
        if reply and reply[0] == b"full":
            what = "waiting pages" if reply[1] == b"pages" else "bytes of pages and records"
            raise Refused(
                Reason.LEDGER_FULL,
                f"the ledger has reached its limit of {what}",
                advice="wait until pages are done, then submit again",
            )
        if reply and reply[0] == b"closed":
            raise Refused(
                Reason.REQUEST_INVALID,
                "the batch was cancelled and takes no more pages",
                advice="submit under another batch or Idempotency-Key",
            )
        if reply and reply[0] == b"limited":
            raise Refused(
                Reason.RATE_LIMITED,
                "the tenant has submitted more pages or tokens than its rate allows",
                advice=f"submit again in {max(1, round(int(reply[1]) / 1000))} s",
            )
        for place, entry, (state, created) in zip(places, entries, reply, strict=True):
            answers[place] = Submitted(
                entry.page_id, entry.client_id, state.decode(), bool(created)
            )

    def claim(
        self, worker: str, count: int, *, lease_s: float = 60.0, want: str | None = None
    ) -> list[Lease]:
        """Lease at most `count` waiting pages of one tenant, schema and set of options.

        `want` names a page that must be among them: [] when it isn't waiting. A page that was
        lost before comes alone.
        """
        if count < 1:
            return []
        if want is not None:
            shards: Iterable[int] = [keys.shard_of(checked_page_id(want), len(self._prefixes))]
        else:
            first = self._next_shard
            self._next_shard = (first + 1) % len(self._prefixes)
            shards = ((first + at) % len(self._prefixes) for at in range(len(self._prefixes)))
        lease_ms = _milliseconds(lease_s)
        for shard in shards:
            now, pages = self._run(
                "claim",
                shard,
                worker,
                count,
                lease_ms,
                self.limits.max_burst_bytes,
                want or "",
                self.limits.max_site_in_flight,
                _SITE_RUN,
                _milliseconds(self.limits.ageing_s),
            )
            if pages:
                deadline_s = (int(now) + lease_ms) / 1000
                return [
                    rows.lease(page, worker=worker, deadline_s=deadline_s, limits=self.limits)
                    for page in pages
                ]
        return []

    def heartbeat(self, leases: Sequence[Lease], *, lease_s: float = 60.0) -> list[str]:
        """Extend leases to `lease_s` from now; return the ids of pages whose lease is lost."""
        lost: list[str] = []
        for shard, held in self._by_shard(leases):
            lost += [
                page.decode()
                for page in self._run("heartbeat", shard, _milliseconds(lease_s), *held)
            ]
        return lost

    def commit(self, lease: Lease, result: bytes, state: Literal["done", "failed"]) -> bool:
        """Write one result for good: `commit_all` of it alone."""
        return self.commit_all([Commit(lease, result, state)])[0]

    def commit_all(self, commits: Sequence[Commit]) -> list[bool]:
        """Write results for good; False for each whose lease is no longer valid.

        Of each page result, state, counters, batch progress and acknowledgement are one
        transaction; 64 pages of a shard share it. Calling again after a lost answer is harmless.
        """
        by_shard: dict[int, list[int]] = defaultdict(list)
        for at, commit in enumerate(commits):
            if commit.state not in ("done", "failed"):
                raise ValueError(f"a result is done or failed, not {commit.state!r}")
            if len(commit.result) > self.limits.max_result_bytes:
                size, limit = len(commit.result), self.limits.max_result_bytes
                raise ValueError(f"a result of {size} bytes, the limit is {limit}")
            shard = keys.shard_of(commit.lease.page_id, len(self._prefixes))
            by_shard[shard].append(at)
        accepted = [False] * len(commits)
        for shard, all_places in by_shard.items():
            for first in range(0, len(all_places), _COMMITS_AT_ONCE):
                places = all_places[first : first + _COMMITS_AT_ONCE]
                arguments: list[Any] = []
                for at in places:
                    commit = commits[at]
                    lease = commit.lease
                    arguments += [lease.page_id, lease.token, commit.state, pack(commit.result)]
                reply = self._run("commit", shard, *arguments)
                for at, valid in zip(places, reply, strict=True):
                    accepted[at] = bool(valid)
        return accepted

    def release(self, leases: Sequence[Lease], reason: Release, *, message: str = "") -> int:
        """Give pages back to the queue; return how many were still held.

        "unused" and "engine_down" hold nothing against the pages. After "engine_lost" and
        "crashed" they are claimed alone; one that was alone already is charged an attempt.
        """
        kind = _LOSSES[reason].value if reason in _LOSSES else "unused"
        return sum(
            int(self._run("release", shard, kind, message[:500], self.limits.max_attempts, *held))
            for shard, held in self._by_shard(leases)
        )

    def retry(self, page_ids: Sequence[str]) -> list[str]:
        """Put dead pages back into the queue; return the ids of those for which that was done.

        Others aren't dead, or their body is gone. A page keeps its id and its last error, runs
        alone and has `max_attempts` before it again; batches that list it as dead wait for it
        again, and their cursors stay valid.
        """
        return self._each_dead("retry", page_ids)

    def drop(self, page_ids: Sequence[str]) -> list[str]:
        """Forget dead pages with their bodies; return the ids of those for which that was done.

        Batches no longer count or list such a page. Submitted again, it is a new one.
        """
        return self._each_dead("drop", page_ids)

    def _each_dead(self, script: str, page_ids: Sequence[str]) -> list[str]:
        by_shard: dict[int, list[str]] = defaultdict(list)
        for page_id in page_ids:
            by_shard[keys.shard_of(checked_page_id(page_id), len(self._prefixes))].append(page_id)
        return [
            page.decode()
            for shard, ids in by_shard.items()
            for at in range(0, len(ids), _DEAD_AT_ONCE)
            for page in self._run(script, shard, *ids[at : at + _DEAD_AT_ONCE])
        ]

    def cancel(self, batch: str) -> int:
        """Cancel a batch; return for how many of its pages it waits no longer.

        Waiting pages that neither another batch nor anybody else wants are forgotten; submitted
        again, they are new. Leased pages finish, and count. Calling again is harmless. Raises
        Refused(BATCH_UNKNOWN).
        """
        shards = range(len(self._prefixes)) if is_batch_id(batch) else range(0)
        counts = {shard: self._cancel_in(shard, batch, known=False) for shard in shards}
        if all(count is None for count in counts.values()):
            raise Refused(Reason.BATCH_UNKNOWN, f"no batch {batch[:128]!r}")
        # The others must not take pages of it either, from an upload that is still going on.
        later = [
            self._cancel_in(shard, batch, known=True)
            for shard, count in counts.items()
            if count is None
        ]
        return sum(count or 0 for count in [*counts.values(), *later])

    def _cancel_in(self, shard: int, batch: str, *, known: bool) -> int | None:
        """Cancel what a shard has of a batch; None where it has nothing, and nobody knows it."""
        cursor, ended = b"0", 0
        while True:
            reply = self._run("cancel", shard, batch, cursor, _CANCELLED_AT_ONCE, int(known))
            if reply is None:
                return None
            cursor, ended = reply[0], ended + int(reply[1])
            if cursor == b"0":
                return ended

    def reap(self, *, limit: int = 200) -> ReapReport:
        """Return expired leases, give up hopeless pages, drop what has passed its retention.

        At most `limit` of each per shard; any number of processes may call it.
        """
        sums = [0, 0, 0, 0]
        for shard in range(len(self._prefixes)):
            report = self._run(
                "reap",
                shard,
                self.limits.max_attempts,
                _milliseconds(self.limits.retention_s),
                self.limits.max_kept_bytes,
                limit,
            )
            sums = [total + int(part) for total, part in zip(sums, report, strict=True)]
        return ReapReport(*sums)

    def _by_shard(self, leases: Sequence[Lease]) -> Iterator[tuple[int, list[Any]]]:
        held: dict[int, list[Any]] = defaultdict(list)
        for lease in leases:
            shard = keys.shard_of(lease.page_id, len(self._prefixes))
            held[shard] += [lease.page_id, lease.token]
        yield from held.items()


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
