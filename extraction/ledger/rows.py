"""What the ledger's hashes hold, as structs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import msgspec

from ..reason import Reason
from .bodies import unpack
from .types import BatchRecord, BatchStatus, LastError, Lease, LedgerLimits, PageStatus, State


class PageMeta(msgspec.Struct, frozen=True, array_like=True):
    """What never changes about a page and no script needs to read."""

    schema: str
    content_type: str | None
    encoding: str | None
    options: bytes
    model: str


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PageMeta)
_UNKNOWN = PageMeta("", None, None, b"{}", "")


def encode_meta(meta: PageMeta) -> bytes:
    """Return the `meta` field of a page."""
    return _encoder.encode(meta)


def _meta(field: bytes | None) -> PageMeta:
    return _UNKNOWN if field is None else _decoder.decode(field)


def _text(field: bytes | None) -> str:
    return "" if field is None else field.decode("utf-8", "replace")


def _state(field: bytes | None) -> State:
    state = _text(field)
    if state not in get_args(State):
        raise ValueError(f"unknown page state {state!r}")
    return cast(State, state)


def _error(reason: bytes | None, message: bytes | None) -> LastError | None:
    return LastError(_text(reason), _text(message)) if reason else None


def lease(row: Sequence[Any], *, worker: str, deadline_s: float, limits: LedgerLimits) -> Lease:
    """Read a page of claim.lua's answer."""
    page, token, losses, alone, submitted, url, meta_field, body = row
    meta = _meta(meta_field)
    return Lease(
        page_id=_text(page),
        token=int(token),
        worker=worker,
        deadline_s=deadline_s,
        attempt=int(losses) + 1,
        alone=alone == b"1",
        schema=meta.schema,
        body=None if body is None else unpack(body, limits.max_page_bytes),
        url=_text(url) or None,
        content_type=meta.content_type,
        encoding=meta.encoding,
        options=meta.options,
        model=meta.model,
        submitted_s=int(submitted) / 1000,
    )


def page_status(page_id: str, row: Mapping[bytes, bytes]) -> PageStatus:
    """Read a page's hash."""
    meta = _meta(row.get(b"meta"))
    state = _state(row.get(b"state"))
    losses = int(row.get(b"losses", b"0"))
    return PageStatus(
        page_id=page_id,
        state=state,
        url=_text(row.get(b"url")) or None,
        schema=meta.schema,
        model=meta.model,
        attempts=losses + (1 if state in ("leased", "done", "failed") else 0),
        worker=_text(row.get(b"worker")),
        error=_error(row.get(b"reason"), row.get(b"message")),
        submitted_s=int(row.get(b"submitted", b"0")) / 1000,
        finished_s=int(row.get(b"finished", b"0")) / 1000,
    )


def batch_record(row: Sequence[Any], limits: LedgerLimits) -> BatchRecord:
    """Read a page of records.lua's answer; one past its retention has only its ids."""
    page, client, state, url, meta_field, result, reason, message = row
    meta = _meta(meta_field)
    error = _error(reason, message) if state == b"dead" else None
    if state is None:
        error = LastError(Reason.RECORD_EXPIRED, "the record has passed its retention")
    return BatchRecord(
        client_id=_text(client),
        page_id=_text(page),
        state="failed" if state is None else _state(state),
        url=_text(url) or None,
        schema=meta.schema,
        model=meta.model,
        result=None if result is None else unpack(result, limits.max_result_bytes),
        error=error,
    )


def batch_status(batch_id: str, rows: Sequence[Mapping[bytes, bytes]]) -> BatchStatus | None:
    """Add up a batch's hashes of all shards; None when no shard knows it."""
    known = [row for row in rows if row]
    if not known:
        return None

    def total(name: bytes) -> int:
        return sum(int(row.get(name, b"0")) for row in known)

    status = BatchStatus(
        batch_id=batch_id,
        total=total(b"total"),
        done=total(b"done"),
        failed=total(b"failed"),
        dead=total(b"dead"),
        cancelled=total(b"cancelled"),
        created_s=min(int(row.get(b"created", b"0")) for row in known) / 1000,
        finished_s=0.0,
    )
    if not status.finished:
        return status
    # Rows hold when their last page ended, which is the batch's end once no page is left.
    ended = max(int(row.get(b"finished", b"0")) for row in known) / 1000
    return msgspec.structs.replace(status, finished_s=ended)
