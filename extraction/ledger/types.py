"""What goes into the ledger and what comes out of it."""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["queued", "leased", "done", "failed", "dead"]
TERMINAL: frozenset[str] = frozenset({"done", "failed", "dead"})
QueueClass = Literal["interactive", "bulk"]
# Why a lease is given back. Only losses are ever held against a page (see Ledger.release).
Release = Literal["unused", "engine_down", "engine_lost", "crashed"]


class PageSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """One page to extract, as its submitter hands it over.

    `schema` is a fixed version ("product@3"): a newer version of the schema changes nothing for
    a page that was accepted. `options` is canonical JSON of the extraction options, `model` names
    what else the record depends on (model and prompt version); both are part of the page's
    identity. `client_id` is the submitter's own name for the page; it comes back with the record.
    """

    body: bytes
    schema: str
    url: str | None = None
    content_type: str | None = None
    encoding: str | None = None
    options: bytes = b"{}"
    model: str = ""
    client_id: str = ""
    queue_class: QueueClass = "bulk"


class Submitted(msgspec.Struct, frozen=True):
    """The ledger's answer to one submission; from here on it owes a record.

    `created` is false when the page was known already: then `state` says how far it is.
    """

    page_id: str
    client_id: str
    state: State
    created: bool


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to work on one page until `deadline_s` (Unix time of the Redis server).

    `token` fences: a commit under an older token is refused. `body` is None when it is gone.
    `attempt` counts from 1; `alone` marks a page that was lost before and so runs in a burst of
    its own.
    """

    page_id: str
    token: int
    worker: str
    deadline_s: float
    attempt: int
    alone: bool
    schema: str
    body: bytes | None
    url: str | None
    content_type: str | None
    encoding: str | None
    options: bytes
    model: str
    submitted_s: float


class Commit(msgspec.Struct, frozen=True):
    """A result (JSON) for the page of a lease."""

    lease: Lease
    result: bytes
    state: Literal["done", "failed"]


class LastError(msgspec.Struct, frozen=True):
    """Why a page was last given back, or why it is dead."""

    reason: str
    message: str


class PageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a page is. Times are Unix seconds; `finished_s` is 0 until the page is terminal."""

    page_id: str
    state: State
    url: str | None
    schema: str
    model: str
    attempts: int
    worker: str
    error: LastError | None
    submitted_s: float
    finished_s: float


class BatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a batch. `pending` = total - done - failed - dead - cancelled.

    Times are Unix seconds; `finished_s` is 0 until no page is pending.
    """

    batch_id: str
    total: int
    done: int
    failed: int
    dead: int
    created_s: float
    finished_s: float
    cancelled: int = 0

    @property
    def pending(self) -> int:
        return self.total - self.done - self.failed - self.dead - self.cancelled

    @property
    def finished(self) -> bool:
        return self.pending == 0


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One finished page of a batch, in the order of finishing.

    `result` is what was committed (Result as JSON); it is None for a dead page, whose `error`
    says why, and for one whose record has passed its retention.
    """

    client_id: str
    page_id: str
    state: State
    url: str | None
    schema: str
    model: str
    result: bytes | None
    error: LastError | None


class ReapReport(msgspec.Struct, frozen=True):
    """What one sweep did: leases returned to the queue, pages given up, old records dropped."""

    requeued: int = 0
    dead: int = 0
    dropped: int = 0
    batches_dropped: int = 0


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """Pages by state and the counters of the ledger, over all shards.

    `queued` and `leased` are pages now; the others count since the ledger began.
    `oldest_s` is the age in seconds of the page that has waited longest; `bytes` what bodies and
    results take (compressed). `lost` counts leases that ended without a commit.
    """

    queued: int = 0
    leased: int = 0
    done: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    submitted: int = 0
    resubmitted: int = 0
    lost: int = 0
    zombie_commits: int = 0
    bytes: int = 0
    oldest_s: float = 0.0


class LedgerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the ledger; over them it refuses with a reason, it never evicts.

    `max_queued` counts waiting pages and `max_bytes` compressed bodies and results, both per
    shard. `max_attempts` is how often a page may be lost alone before it is given up. Records are
    kept for `retention_s` after the end of their page, fewer when they take `max_kept_bytes`.

    At most `max_site_in_flight` pages of one tenant and host are leased at once (0: no cap), and
    pages in which somebody waits are beyond it. `tenant_pages_per_s` and `tenant_tokens_per_s`
    bound what a tenant submits over time (0: no bound), with `tenant_burst_s` seconds of it at
    once. Bulk pages that have waited for `ageing_s` get every second claim, not every fourth.
    """

    max_page_bytes: int = 16 * 1024 * 1024
    max_burst_bytes: int = 64 * 1024 * 1024
    max_result_bytes: int = 4 * 1024 * 1024
    max_queued: int = 1_000_000
    max_bytes: int = 4 * 1024 * 1024 * 1024
    max_kept_bytes: int = 2 * 1024 * 1024 * 1024
    max_attempts: int = 3
    retention_s: float = 7 * 86_400.0
    max_site_in_flight: int = 0
    tenant_pages_per_s: float = 0.0
    tenant_tokens_per_s: float = 0.0
    tenant_burst_s: float = 10.0
    ageing_s: float = 300.0
