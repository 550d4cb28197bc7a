"""One page at the engine: prepared, its record as it grows, its result."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any, cast

import orjson
from pagemill.engine.errors import EngineError
from pagemill.engine.protocol import Output

from ..answers import Answers, Prepared
from ..record import ExtractOptions, PageInput, Result
from .problems import problem, problem_of
from .services import Services, in_thread

EVENTS_TYPE = "text/event-stream"


@dataclass(frozen=True)
class Delta:
    """New text of the record of one of the page's windows."""

    window: int
    text: str


async def prepare(
    services: Services, page: PageInput, schema: str | dict[str, Any], options: ExtractOptions
) -> Prepared | Result:
    """Make the page's requests; a Result says why that's impossible, or that none is needed."""
    bound = await services.bind(schema)
    extractor = await services.extractor()
    return await in_thread(extractor.prepare, page, bound, options)


Pieces = AsyncGenerator[Delta | Result, None]


async def generate(services: Services, prepared: Prepared) -> Pieces:
    """Yield the record's text as it grows, then the result. Closing early frees the engine.

    Raises EngineError when the engine can't serve.
    """
    extractor = await services.extractor()
    engine = await services.engine()
    tokenizer = await services.tokenizer()
    answers = Answers([prepared])
    windows = {request.request_id: i for i, request in enumerate(prepared.requests)}
    texts = [tokenizer.stream() for _ in prepared.requests]
    outputs = engine.generate(
        answers.requests(), tokenizer_hash=tokenizer.hash, grammars=answers.grammars()
    )
    async with contextlib.aclosing(cast("AsyncGenerator[Output]", outputs)):
        async for output in outputs:
            window = windows[output.request_id]
            text = texts[window].push(output.token_ids)
            if output.finish is not None:
                text += texts[window].flush()
            if text:
                yield Delta(window, text)
            if (whole := answers.add(output)) is not None:
                yield await in_thread(extractor.finish, *whole)
                return
    raise RuntimeError("the engine client ended without a last output")


async def only(result: Result) -> Pieces:
    """Yield a result that needed no engine."""
    yield result


async def first_of(pieces: Pieces) -> Delta | Result:
    """Return the first piece."""
    return await anext(pieces)


async def last_of(pieces: Pieces) -> Delta | Result:
    """Return the last piece, the result."""
    async with contextlib.aclosing(pieces):
        return [piece async for piece in pieces][-1]


async def events(services: Services, first: Delta | Result, rest: Pieces) -> AsyncIterator[bytes]:
    """Server-sent events: `delta` as the record grows, then `result`, or `error` with a problem."""
    async with contextlib.aclosing(rest):
        piece = first
        try:
            while isinstance(piece, Delta):
                yield _event("delta", orjson.dumps({"window": piece.window, "text": piece.text}))
                piece = await anext(rest)
        except EngineError as error:
            yield _event("error", bytes(problem_of(error).body))
            return
    count(services, piece)
    if piece.error is None:
        yield _event("result", piece.to_json_line())
    else:
        told = problem(piece.error.reason, piece.error.message, id=piece.id, url=piece.url)
        yield _event("error", bytes(told.body))


def count(services: Services, result: Result) -> None:
    """Count a result in the metrics."""
    reason = result.error.reason if result.error is not None else ""
    services.metrics.extractions.labels(result.status, reason).inc()


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
