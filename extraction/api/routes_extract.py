"""`POST /v1/extract`: one page straight to the engine, one record back."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from ..inputs import BadInput, PageLine, page_of_line
from ..reason import Reason
from ..record import PageInput, Result
from .auth import count_pages, owned
from .disconnect import until_gone
from .extraction import (
    EVENTS_TYPE,
    Delta,
    count,
    events,
    first_of,
    generate,
    last_of,
    only,
    prepare,
)
from .models import ExtractQuery, ExtractRequest, Options
from .problems import parse_body, problem, refuse
from .services import Services, services_of

router = APIRouter(prefix="/v1", tags=["extraction"])

RAW_TYPES = ("text/html", "application/xhtml+xml", "text/plain")

_REQUEST_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/ExtractRequest"}},
            "text/html": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {EVENTS_TYPE: {"schema": {"type": "string"}}}}
}


@router.post("/extract", openapi_extra=_REQUEST_BODY, response_model=None, responses=_STREAMED)
async def extract(
    request: Request,
    query: Annotated[ExtractQuery, Query()],
    services: Annotated[Services, Depends(services_of)],
) -> Response:
    """Extract one page now. The body is JSON, or the page itself with the rest in the query.

    With `stream` the answer is server-sent events: `delta` as the record grows, then `result`.
    """
    asked = await _read(request, query, services)
    options = asked.options.extract_options(max_tokens=services.settings.max_tokens)
    work = prepare(services, asked.page, asked.schema, owned(request, options))
    prepared = await until_gone(request, work)
    pieces = only(prepared) if isinstance(prepared, Result) else generate(services, prepared)
    await count_pages(request, services, 1)
    # The first piece is awaited here: a failure before any text has its HTTP status.
    first = await until_gone(request, first_of(pieces) if asked.stream else last_of(pieces))
    if asked.stream and (isinstance(first, Delta) or first.error is None):
        return StreamingResponse(events(services, first, pieces), media_type=EVENTS_TYPE)
    result = cast("Result", first)
    count(services, result)
    if result.error is not None:
        return problem(result.error.reason, result.error.message, id=result.id, url=result.url)
    return Response(result.to_json_line(), media_type="application/json")


@dataclass(frozen=True)
class _Asked:
    page: PageInput
    schema: str | dict[str, Any]
    options: Options
    stream: bool


async def _read(request: Request, query: ExtractQuery, services: Services) -> _Asked:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    limit = services.settings.max_page_bytes
    if kind == "application/json":
        if request.query_params:
            refuse(Reason.REQUEST_INVALID, "with a JSON body the query has to be empty")
        asked = parse_body(ExtractRequest, await request.body())
        return _Asked(_page_of(asked, limit), asked.schema_, asked.options, asked.stream)
    if kind in RAW_TYPES:
        page = await _raw_page(request, query, limit)
        schema = query.schema_ or refuse(
            Reason.REQUEST_INVALID, "no schema given", advice="add ?schema=NAME to the URL"
        )
        return _Asked(page, schema, query, query.stream)
    refuse(
        Reason.UNSUPPORTED_CONTENT_TYPE,
        f"content type {kind[:60]!r}",
        advice=f"send application/json, or the page as {RAW_TYPES[0]}",
    )


def _page_of(asked: ExtractRequest, limit: int) -> PageInput:
    line = asked.line()
    if asked.text is not None:
        if asked.html is not None or asked.body is not None:
            refuse(Reason.REQUEST_INVALID, "give one of html, text and body")
        if (asked.body_encoding, asked.content_type, asked.encoding) != (None, None, None):
            refuse(
                Reason.REQUEST_INVALID, "body_encoding, content_type and encoding tell of a body"
            )
        line = PageLine(
            id=asked.id,
            url=asked.url,
            body=asked.text,
            body_encoding="utf-8",
            content_type="text/plain; charset=utf-8",
        )
    read = page_of_line(line, default_id=uuid.uuid4().hex, max_page_bytes=limit)
    if isinstance(read, BadInput):
        refuse(read.reason, read.message)
    return read.page


async def _raw_page(request: Request, query: ExtractQuery, limit: int) -> PageInput:
    body = await request.body()
    if len(body) > limit:
        refuse(Reason.PAGE_TOO_LARGE, f"{len(body)} bytes, at most {limit}")
    return PageInput(
        id=query.id or uuid.uuid4().hex,
        url=query.url,
        body=body,
        content_type=request.headers.get("content-type"),
        encoding=query.encoding,
    )
