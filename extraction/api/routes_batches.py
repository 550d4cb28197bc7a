"""`/v1/batches`: pages into the ledger, progress and records out of it."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from ..finished import record_line
from ..inputs import BadInput, ReadPage, line_limit, page_of_line, parse_line
from ..ledger import BatchStatus
from ..reason import Reason, Refused
from .auth import batch_mark, count_pages, may_read_batch, owned
from .batch_events import progress_events
from .batch_intake import BatchIntake
from .extraction import EVENTS_TYPE
from .models import BatchAccepted, BatchProgress, BatchQuery, BatchRequest
from .problems import parse_body, problem_of, refuse
from .services import Services, in_thread, services_of

router = APIRouter(prefix="/v1/batches", tags=["batches"])

NDJSON_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,256}")

_REQUEST_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/BatchRequest"}},
            "application/x-ndjson": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.post("", status_code=202, response_model=BatchAccepted, openapi_extra=_REQUEST_BODY)
async def submit_batch(
    request: Request,
    query: Annotated[BatchQuery, Query()],
    services: Annotated[Services, Depends(services_of)],
    idempotency_key: Annotated[str | None, Header(max_length=256)] = None,
) -> BatchAccepted | Response:
    """Accept pages as JSON, or as NDJSON of one page a line while it is uploaded.

    A line that can't be read is reported and costs only itself. With an `Idempotency-Key` the
    same upload may be sent again after a failure: it continues the same batch.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    batch_id = _batch_id(idempotency_key, batch_mark(request))
    pages: AsyncIterator[ReadPage | BadInput]
    if kind == "application/json":
        if request.query_params:
            refuse(Reason.REQUEST_INVALID, "with a JSON body the query has to be empty")
        asked = parse_body(BatchRequest, await request.body())
        options, schema = asked.options, asked.schema_
        pages = _listed(asked, services.settings.max_page_bytes)
    elif kind in NDJSON_TYPES:
        options, schema = query, query.schema_
        pages = _uploaded(request, services.settings.max_page_bytes)
    else:
        refuse(
            Reason.UNSUPPORTED_CONTENT_TYPE,
            f"content type {kind[:60]!r}",
            advice=f"send application/json or {NDJSON_TYPES[0]}",
        )
    chosen = owned(request, options.extract_options(max_tokens=services.settings.max_tokens))
    intake = BatchIntake(services, batch_id, schema, chosen)
    try:
        async for page in pages:
            await intake.take(page)
        await intake.finish()
    except Exception as error:
        if intake.accepted == 0:
            raise
        # The caller has to know what the ledger owes already.
        return problem_of(error, id=batch_id, accepted=intake.accepted)
    await count_pages(request, services, intake.created)
    return intake.answer()


def _batch_id(idempotency_key: str | None, mark: str) -> str:
    if idempotency_key is None:
        return uuid.uuid4().hex + mark
    if not _IDEMPOTENCY_KEY.fullmatch(idempotency_key):
        refuse(Reason.REQUEST_INVALID, "Idempotency-Key: from 1 to 256 visible ASCII characters")
    return "key-" + hashlib.sha256(idempotency_key.encode()).hexdigest()[:32] + mark


async def _listed(asked: BatchRequest, limit: int) -> AsyncIterator[ReadPage | BadInput]:
    for number, page in enumerate(asked.pages, 1):
        yield page_of_line(page.line(), default_id=str(number), max_page_bytes=limit)


async def _uploaded(request: Request, limit: int) -> AsyncIterator[ReadPage | BadInput]:
    lines = _Lines(line_limit(limit))
    number = 0
    async for piece in request.stream():
        for line in lines.feed(piece):
            number += 1
            if line is None or line.strip():
                yield _read_line(line, number, limit)
    last = lines.rest()
    if last is None or last.strip():
        yield _read_line(last, number + 1, limit)


def _read_line(line: bytes | None, number: int, limit: int) -> ReadPage | BadInput:
    if line is None:
        message = f"a line of over {line_limit(limit)} bytes"
        return BadInput(str(number), None, Reason.PAGE_TOO_LARGE, message)
    return parse_line(line, default_id=str(number), max_page_bytes=limit)


class _Lines:
    """Cuts a stream into lines of at most `limit` bytes; a longer one is dropped and comes as
    None."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes | None]:
        *complete, last = piece.split(b"\n")
        for part in complete:
            self._add(part)
            yield self.rest()
        self._add(last)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
        else:
            self._parts.clear()

    def rest(self) -> bytes | None:
        """What has come since the last line's end."""
        line = b"".join(self._parts) if self._size <= self._limit else None
        self._parts, self._size = [], 0
        return line


@router.get("/{batch_id}")
def batch_progress(
    request: Request, batch_id: str, services: Annotated[Services, Depends(services_of)]
) -> BatchProgress:
    """How far a batch is."""
    _check_owner(request, batch_id)
    found = services.ledger.batch(batch_id)
    if found is None:
        raise _unknown(batch_id)
    return _progress(found)


_LINES: dict[int | str, dict[str, Any]] = {
    200: {"content": {NDJSON_TYPES[0]: {"schema": {"type": "string"}}}}
}
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {EVENTS_TYPE: {"schema": {"type": "string"}}}}
}


@router.get("/{batch_id}/events", response_class=StreamingResponse, responses=_EVENTS)
async def batch_events(
    request: Request, batch_id: str, services: Annotated[Services, Depends(services_of)]
) -> Response:
    """Progress as server-sent events: `progress` when it changes, at the end `finished`."""

    async def ask() -> BatchProgress:
        return await in_thread(batch_progress, request, batch_id, services)

    return StreamingResponse(progress_events(await ask(), ask), media_type=EVENTS_TYPE)


@router.post("/{batch_id}/cancel")
def cancel_batch(
    request: Request, batch_id: str, services: Annotated[Services, Depends(services_of)]
) -> BatchProgress:
    """Cancel a batch: it takes no more pages, and pages that wait for it alone are forgotten.

    Pages that a worker has finish, and have records. Calling again is harmless.
    """
    _check_owner(request, batch_id)
    services.ledger.cancel(batch_id)
    return batch_progress(request, batch_id, services)


def _check_owner(request: Request, batch_id: str) -> None:
    # Another's batch is as unknown as one that isn't there.
    if not may_read_batch(request, batch_id):
        raise _unknown(batch_id)


def _unknown(batch_id: str) -> Refused:
    return Refused(Reason.BATCH_UNKNOWN, f"no batch {batch_id[:130]!r}")


def _progress(status: BatchStatus) -> BatchProgress:
    return BatchProgress(
        id=status.batch_id,
        total=status.total,
        pending=status.pending,
        done=status.done,
        failed=status.failed,
        dead=status.dead,
        cancelled=status.cancelled,
        finished=status.finished,
        created_s=status.created_s,
        finished_s=status.finished_s,
    )


@router.get("/{batch_id}/records", response_class=Response, responses=_LINES)
async def batch_records(
    request: Request,
    batch_id: str,
    services: Annotated[Services, Depends(services_of)],
    cursor: Annotated[str, Query(max_length=256)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Finished pages as NDJSON in the order of finishing, `limit` of them from `cursor` on.

    The header `Pagemill-Cursor` continues from here, now or later; an empty body means that
    nothing more has finished so far.
    """
    _check_owner(request, batch_id)
    records, following = await in_thread(services.ledger.records, batch_id, cursor, limit)
    headers: dict[str, Any] = {"Pagemill-Cursor": following}
    if records:
        url = f"/v1/batches/{batch_id}/records?cursor={following}&limit={limit}"
        headers["Link"] = f'<{url}>; rel="next"'
    body = b"".join(record_line(record) + b"\n" for record in records)
    return Response(body, media_type=NDJSON_TYPES[0], headers=headers)
