"""`POST /v1/extract`: one page straight to the engine, one record back."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncGenerator
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Query, Request, Response
from pagemill.engine.protocol import Output

from ..answers import Answers, Prepared
from ..inputs import BadInput, PageLine, page_of_line
from ..reason import Reason
from ..record import ExtractOptions, PageInput, Result
from .auth import owned
from .disconnect import until_gone
from .models import ExtractQuery, ExtractRequest
from .problems import parse_body, problem, refuse
from .services import Services, in_thread, services_of

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


@router.post("/extract", openapi_extra=_REQUEST_BODY, response_model=None)
async def extract(
    request: Request,
    query: Annotated[ExtractQuery, Query()],
    services: Annotated[Services, Depends(services_of)],
) -> Response:
    """Extract one page now. The body is JSON, or the page itself with the rest in the query."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    limit = services.settings.max_page_bytes
    if kind == "application/json":
        if request.query_params:
            refuse(Reason.REQUEST_INVALID, "with a JSON body the query has to be empty")
        asked = parse_body(ExtractRequest, await request.body())
        page, schema, options = _page_of(asked, limit), asked.schema_, asked.options
    elif kind in RAW_TYPES:
        page, options = await _raw_page(request, query, limit), query
        schema = query.schema_ or refuse(
            Reason.REQUEST_INVALID, "no schema given", advice="add ?schema=NAME to the URL"
        )
    else:
        refuse(
            Reason.UNSUPPORTED_CONTENT_TYPE,
            f"content type {kind[:60]!r}",
            advice=f"send application/json, or the page as {RAW_TYPES[0]}",
        )
    chosen = owned(request, options.extract_options(max_tokens=services.settings.max_tokens))
    result = await until_gone(request, run_one(services, page, schema, chosen))
    reason = result.error.reason if result.error is not None else ""
    services.metrics.extractions.labels(result.status, reason).inc()
    if result.error is not None:
        return problem(
            result.error.reason, result.error.message, id=result.id, url=result.url, status=None
        )
    return Response(result.to_json_line(), media_type="application/json")


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


async def run_one(
    services: Services, page: PageInput, schema: str | dict[str, Any], options: ExtractOptions
) -> Result:
    """Prepare, generate, finish; what is wrong with the page is a failed result."""
    bound = await services.bind(schema)
    extractor = await services.extractor()
    prepared = await in_thread(extractor.prepare, page, bound, options)
    if not isinstance(prepared, Prepared):
        return prepared
    engine = await services.engine()
    tokenizer = await services.tokenizer()
    answers = Answers([prepared])
    outputs = engine.generate(
        answers.requests(), tokenizer_hash=tokenizer.hash, grammars=answers.grammars()
    )
    async with contextlib.aclosing(cast("AsyncGenerator[Output]", outputs)):
        async for output in outputs:
            if (whole := answers.add(output)) is not None:
                return await in_thread(extractor.finish, *whole)
    raise RuntimeError("the engine client ended without a last output")
