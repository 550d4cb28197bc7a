"""The ledger's door: one method per move of a page."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from redis import Redis

from ..reason import Reason, Refused
from . import keys, rows
from .admission import Admission, chunks
from .bodies import pack, unpack
from .connection import redis_errors
from .scripts import Scripts
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

_PAGE_ID = re.compile(r"[0-9a-f]{64}")
_BATCH_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_LOSSES = {"engine_lost": Reason.ENGINE_UNAVAILABLE, "crashed": Reason.INTERNAL_ERROR}


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
    ) -> None:
        if not 1 <= shards <= 1024:
            raise ValueError(f"shards: from 1 to 1024, not {shards}")
        self.redis = redis
        self.namespace = namespace
        self.limits = limits or LedgerLimits()
        self._prefixes = [keys.shard_prefix(namespace, shard) for shard in range(shards)]
        self._scripts = Scripts(redis)
        self._next_shard = 0

    # --- pages in -----------------------------------------------------------------------------

    def submit(
        self, pages: Sequence[PageSubmission], *, batch: str | None = None
    ) -> list[Submitted]:
        """Accept pages, in order; a known page is returned as it stands, nothing is doubled.

        Repeating a submission is harmless, within a batch too (a pair of client id and page
        counts once). A batch exists from its first submission on, an empty one too. Raises
        Refused: PAGE_TOO_LARGE before anything is accepted, LEDGER_FULL over the marks; then
        pages of the call may have been accepted, and submitting all of them again is right.
        """
        if batch is not None and not _BATCH_ID.fullmatch(batch):
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
        arguments: list[Any] = [batch or "", self.limits.max_queued, self.limits.max_bytes]
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
        for place, entry, (state, created) in zip(places, entries, reply, strict=True):
            answers[place] = Submitted(
                entry.page_id, entry.client_id, state.decode(), bool(created)
            )

    # --- work ---------------------------------------------------------------------------------

    def claim(
        self, worker: str, count: int, *, lease_s: float = 60.0, want: str | None = None
    ) -> list[Lease]:
        """Lease at most `count` waiting pages of one schema and one set of options.

        `want` names a page that must be among them: [] when it isn't waiting. A page that was
        lost before comes alone.
        """
        if count < 1:
            return []
        if want is not None:
            shards: Iterable[int] = [keys.shard_of(_checked(want), len(self._prefixes))]
        else:
            first = self._next_shard
            self._next_shard = (first + 1) % len(self._prefixes)
            shards = ((first + at) % len(self._prefixes) for at in range(len(self._prefixes)))
        lease_ms = _milliseconds(lease_s)
        for shard in shards:
            now, pages = self._run(
                "claim", shard, worker, count, lease_ms, self.limits.max_burst_bytes, want or ""
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
        """Write the result for good; False when the lease is no longer valid.

        Result, state, counters, batch progress and acknowledgement are one transaction. Calling
        again after a lost answer is harmless.
        """
        if state not in ("done", "failed"):
            raise ValueError(f"a result is done or failed, not {state!r}")
        if len(result) > self.limits.max_result_bytes:
            raise ValueError(
                f"a result of {len(result)} bytes, the limit is {self.limits.max_result_bytes}"
            )
        shard = keys.shard_of(lease.page_id, len(self._prefixes))
        return bool(self._run("commit", shard, lease.page_id, lease.token, state, pack(result)))

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

    # --- answers ------------------------------------------------------------------------------

    def page(self, page_id: str) -> PageStatus | None:
        """Return how far a page is; None for one that was never accepted, or long ago."""
        key = self._page_key(page_id)
        row = self._hash(key)
        return rows.page_status(page_id, row) if row else None

    def result(self, page_id: str) -> bytes | None:
        """Return the committed result (Result as JSON); None before, and for dead pages."""
        key = self._page_key(page_id)
        with redis_errors():
            field = self.redis.hget(key, "result")
        return None if field is None else unpack(_bytes(field), self.limits.max_result_bytes)

    def latest(self, url: str) -> str | None:
        """Return the id of the page that was accepted last for a URL."""
        digest = keys.url_digest(keys.normalise_url(url))
        prefix = self._prefixes[keys.shard_of(digest, len(self._prefixes))]
        with redis_errors():
            page = self.redis.hget(f"{prefix}:latest", digest)
        return None if page is None else _bytes(page).decode()

    def batch(self, batch_id: str) -> BatchStatus | None:
        """Return a batch's progress; None for an unknown one, or one past its retention."""
        if not _BATCH_ID.fullmatch(batch_id):
            return None
        found = [self._hash(f"{prefix}:batch:{batch_id}") for prefix in self._prefixes]
        return rows.batch_status(batch_id, found)

    def records(
        self, batch_id: str, cursor: str = "", count: int = 100
    ) -> tuple[list[BatchRecord], str]:
        """Return finished pages of a batch after `cursor` ("" = from the first), and a new cursor.

        The order is that of finishing; a cursor stays valid. An empty list means: nothing more
        so far. Raises Refused(BATCH_UNKNOWN) and Refused(REQUEST_INVALID) for a bad cursor.
        """
        offsets = _offsets(cursor, len(self._prefixes))
        known = False
        records: list[BatchRecord] = []
        for shard in range(len(self._prefixes)):
            if not _BATCH_ID.fullmatch(batch_id):
                break
            wanted = max(0, count - len(records))
            page = self._run("records", shard, batch_id, offsets[shard], wanted)
            if page is not None:
                known = True
                offsets[shard] += len(page)
                records += [rows.batch_record(row, self.limits) for row in page]
        if not known:
            raise Refused(
                Reason.BATCH_UNKNOWN,
                f"no batch {batch_id[:128]!r}",
                advice="batches are kept for a week after their last page",
            )
        return records, ".".join(str(offset) for offset in offsets)

    def dead_letters(self, *, count: int = 100) -> list[PageStatus]:
        """Return pages that were given up, oldest first."""
        with redis_errors():
            ids = [
                _bytes(page).decode()
                for prefix in self._prefixes
                for page in self.redis.zrange(f"{prefix}:dead", 0, count - 1)
            ]
        statuses = [status for page in ids if (status := self.page(page)) is not None]
        return sorted(statuses, key=lambda status: status.finished_s)[:count]

    def depth(self) -> QueueDepth:
        """Return pages by state and the ledger's counters."""
        sums: dict[str, int] = defaultdict(int)
        oldest_s = 0.0
        for shard in range(len(self._prefixes)):
            flat, now, oldest = self._run("depth", shard)
            for name, value in zip(flat[::2], flat[1::2], strict=True):
                sums[name.decode()] += int(value)
            if int(oldest):
                oldest_s = max(oldest_s, (int(now) - int(oldest)) / 1000)
        return QueueDepth(
            **{
                name: sums[name]
                for name in QueueDepth.__struct_fields__
                if name not in ("bytes", "oldest_s")
            },
            bytes=sums["body_bytes"] + sums["result_bytes"],
            oldest_s=oldest_s,
        )

    def waiting(self) -> int:
        """Return how many pages wait for a worker; cheaper than `depth`."""
        with redis_errors():
            counts = [self.redis.hget(f"{prefix}:counters", "queued") for prefix in self._prefixes]
        return sum(int(count or b"0") for count in counts)

    def ping(self) -> None:
        """Raise Refused(LEDGER_UNAVAILABLE) unless Redis serves (and has loaded its data)."""
        with redis_errors():
            self.redis.ping()

    # --- inside -------------------------------------------------------------------------------

    def _run(self, script: str, shard: int, *arguments: Any) -> Any:
        return self._scripts.run(script, self._prefixes[shard], *arguments)

    def _hash(self, key: str) -> Mapping[bytes, bytes]:
        with redis_errors():
            return cast(Mapping[bytes, bytes], self.redis.hgetall(key))

    def _page_key(self, page_id: str) -> str:
        shard = keys.shard_of(_checked(page_id), len(self._prefixes))
        return f"{self._prefixes[shard]}:page:{page_id}"

    def _by_shard(self, leases: Sequence[Lease]) -> Iterator[tuple[int, list[Any]]]:
        held: dict[int, list[Any]] = defaultdict(list)
        for lease in leases:
            shard = keys.shard_of(lease.page_id, len(self._prefixes))
            held[shard] += [lease.page_id, lease.token]
        yield from held.items()


def _checked(page_id: str) -> str:
    if not _PAGE_ID.fullmatch(page_id):
        raise Refused(
            Reason.REQUEST_INVALID,
            f"not a page id: {page_id[:80]!r}",
            advice="page ids are 64 hexadecimal digits, as submitting returned them",
        )
    return page_id


def _offsets(cursor: str, shards: int) -> list[int]:
    if not cursor:
        return [0] * shards
    parts = cursor.split(".")
    if len(parts) != shards or not all(re.fullmatch(r"[0-9]{1,15}", part) for part in parts):
        raise Refused(
            Reason.REQUEST_INVALID,
            f"not a cursor of this batch: {cursor[:80]!r}",
            advice="use the cursor of the last answer as it is",
        )
    return [int(part) for part in parts]


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("the ledger's connection must not decode answers")
    return value
