"""The ledger's door: one method per move of a page."""

from __future__ import annotations

from collections.abc import Sequence

from redis import Redis

from .types import (
    BatchRecord,
    BatchStatus,
    Lease,
    LedgerLimits,
    PageStatus,
    PageSubmission,
    QueueDepth,
    ReapReport,
    Release,
    Submitted,
)


class Ledger:
    """Page states in Redis: queued -> leased -> done | failed | dead.

    Every method is one Lua script per shard it touches and raises Refused(LEDGER_UNAVAILABLE)
    when Redis can't serve. Thread-safe; make a new one after a fork.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        namespace: str = "pagemill",
        shards: int = 1,
        limits: LedgerLimits | None = None,
    ) -> None: ...

    def submit(
        self, pages: Sequence[PageSubmission], *, batch: str | None = None
    ) -> list[Submitted]:
        """Accept pages, in order; a known page is returned as it stands, nothing is doubled.

        Repeating a submission is harmless, within a batch too (a pair of client id and page
        counts once). Raises Refused: PAGE_TOO_LARGE before anything is accepted, LEDGER_FULL over
        the marks; then pages of the call may have been accepted, and submitting again is right.
        """
        raise NotImplementedError

    def claim(
        self, worker: str, count: int, *, lease_s: float = 60.0, want: str | None = None
    ) -> list[Lease]:
        """Lease at most `count` waiting pages of one schema and one set of options.

        `want` names a page that must be among them: [] when it isn't waiting. A page that was
        lost before comes alone.
        """
        raise NotImplementedError

    def heartbeat(self, leases: Sequence[Lease], *, lease_s: float = 60.0) -> list[str]:
        """Extend leases to `lease_s` from now; return the ids of pages whose lease is lost."""
        raise NotImplementedError

    def commit(self, lease: Lease, result: bytes, state: str) -> bool:
        """Write the result for good ("done" or "failed"); False when the lease is no longer valid.

        Result, state, counters, batch progress and acknowledgement are one transaction.
        """
        raise NotImplementedError

    def release(self, leases: Sequence[Lease], reason: Release, *, message: str = "") -> int:
        """Give pages back to the queue; return how many were still held.

        "unused" and "engine_down" hold nothing against the pages. After "engine_lost" and
        "crashed" they are claimed alone; one that was alone already is charged an attempt.
        """
        raise NotImplementedError

    def reap(self, *, limit: int = 200) -> ReapReport:
        """Return expired leases, give up hopeless pages, drop what has passed its retention."""
        raise NotImplementedError

    def page(self, page_id: str) -> PageStatus | None:
        raise NotImplementedError

    def result(self, page_id: str) -> bytes | None:
        """Return the committed result (Result as JSON), None before, and for dead pages."""
        raise NotImplementedError

    def latest(self, url: str) -> str | None:
        """Return the id of the page accepted last for a URL."""
        raise NotImplementedError

    def batch(self, batch_id: str) -> BatchStatus | None:
        raise NotImplementedError

    def records(
        self, batch_id: str, cursor: str = "", count: int = 100
    ) -> tuple[list[BatchRecord], str]:
        """Return finished pages of a batch after `cursor` ("" = from the first), and a new cursor.

        The order is that of finishing; a cursor stays valid. An empty list means: nothing more
        so far. Raises Refused(BATCH_UNKNOWN) and Refused(REQUEST_INVALID) for a bad cursor.
        """
        raise NotImplementedError

    def dead_letters(self, *, count: int = 100) -> list[PageStatus]:
        """Return pages that were given up, oldest first."""
        raise NotImplementedError

    def depth(self) -> QueueDepth:
        raise NotImplementedError

    def ping(self) -> None:
        """Raise Refused(LEDGER_UNAVAILABLE) unless Redis serves (and has loaded its data)."""
        raise NotImplementedError
