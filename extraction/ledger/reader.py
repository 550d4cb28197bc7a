"""What the ledger answers: progress, records, depth. Nothing here changes a page."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, cast

from redis import Redis

from ..reason import Reason, Refused
from . import keys, rows
from .bodies import unpack
from .connection import redis_errors
from .scripts import Scripts
from .types import BatchRecord, BatchStatus, LedgerLimits, PageStatus, QueueDepth

_PAGE_ID = re.compile(r"[0-9a-f]{64}")
_BATCH_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class LedgerReader:
    """The asking half of `Ledger`."""

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
        if not is_batch_id(batch_id):
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
            if not is_batch_id(batch_id):
                break
            wanted = max(0, count - len(records))
            page = self._run("records", shard, batch_id, offsets[shard], wanted)
            if page is not None:
                known = True
                offsets[shard], found = int(page[0]), page[1]
                records += [rows.batch_record(row, self.limits) for row in found]
        if not known:
            raise Refused(
                Reason.BATCH_UNKNOWN,
                f"no batch {batch_id[:128]!r}",
                advice="batches are kept for a week after their last page",
            )
        return records, ".".join(str(offset) for offset in offsets)

    def dead_ids(self, *, count: int | None = None) -> list[str]:
        """Return the ids of pages that were given up, of each shard the `count` oldest first."""
        last = -1 if count is None else count - 1
        with redis_errors():
            return [
                _bytes(page).decode()
                for prefix in self._prefixes
                for page in self.redis.zrange(f"{prefix}:dead", 0, last)
            ]

    def dead_letters(self, *, count: int = 100) -> list[PageStatus]:
        """Return pages that were given up, oldest first."""
        if count < 1:
            return []
        ids = self.dead_ids(count=count)
        with redis_errors():
            pipeline = self.redis.pipeline(transaction=False)
            for page in ids:
                pipeline.hgetall(self._page_key(page))
            found = pipeline.execute()
        statuses = [
            rows.page_status(page, row)
            for page, row in zip(ids, found, strict=True)
            if row.get(b"state") == b"dead"
        ]
        return sorted(statuses, key=lambda status: status.finished_s)[:count]

    def body(self, page_id: str) -> bytes | None:
        """Return a page's body while the page may need it: None once it is done or failed."""
        key = self._page_key(page_id)
        with redis_errors():
            content = self.redis.hget(key, "body")
            if content is None:
                return None
            prefix = self._prefixes[keys.shard_of(page_id, len(self._prefixes))]
            frame = self.redis.hget(f"{prefix}:body:{_bytes(content).decode()}", "data")
        return None if frame is None else unpack(_bytes(frame), self.limits.max_page_bytes)

    def needs_schema(self, schema: str) -> bool:
        """Whether a page may yet be extracted with a schema's version ("product@3")."""
        with redis_errors():
            return any(self.redis.hexists(f"{prefix}:schemas", schema) for prefix in self._prefixes)

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

    def _run(self, script: str, shard: int, *arguments: Any) -> Any:
        return self._scripts.run(script, self._prefixes[shard], *arguments)

    def _hash(self, key: str) -> Mapping[bytes, bytes]:
        with redis_errors():
            return cast(Mapping[bytes, bytes], self.redis.hgetall(key))

    def _page_key(self, page_id: str) -> str:
        shard = keys.shard_of(checked_page_id(page_id), len(self._prefixes))
        return f"{self._prefixes[shard]}:page:{page_id}"


def is_batch_id(text: str) -> bool:
    """Whether `text` can name a batch."""
    return _BATCH_ID.fullmatch(text) is not None


def checked_page_id(page_id: str) -> str:
    """Return a page id as it is, or refuse what is none."""
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


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("the ledger's connection must not decode answers")
    return value
