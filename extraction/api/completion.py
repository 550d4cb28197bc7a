"""Prompts at the engine: their texts as they grow."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import cast

from pagemill.engine.detokenizer import Detokenizer
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.protocol import Output, Request, TokenLogprob, Usage

from .constraints import Bounds
from .services import Services
from .stop_strings import StopStrings

_FINISH = {"stop": "stop", "length": "length", "cancelled": "stop", "deadline": "length"}


@dataclass(frozen=True)
class Piece:
    """New text of a choice; its last piece has `finish` (OpenAI's word) and `usage`.

    `logprobs` are of its tokens; None when they were not asked for.
    """

    text: str
    finish: str | None = None
    usage: Usage | None = None
    index: int = 0
    logprobs: Sequence[TokenLogprob] | None = None


@dataclass(frozen=True)
class Prompt:
    """Requests ready for the engine, of one sampling, and what binds their answers.

    Choices are numbered over all requests: those of the second follow the first's.
    """

    requests: list[Request]
    bounds: Bounds | None
    stops: list[str]

    @property
    def per_request(self) -> int:
        """Choices of a request."""
        return self.requests[0].sampling.n

    @property
    def choices(self) -> int:
        return len(self.requests) * self.per_request


class _Choice:
    """One choice's text on its way."""

    def __init__(self, text: Detokenizer, stops: list[str]) -> None:
        self._text = text
        self._stops = StopStrings(stops)

    @property
    def stopped(self) -> bool:
        return self._stops.stopped

    def piece(self, output: Output, index: int, *, with_logprobs: bool) -> Piece | None:
        """What an output adds that can be told by now; None for nothing."""
        logprobs: Sequence[TokenLogprob] | None = None
        if with_logprobs:  # Those of a piece that meets a stop string are told, later ones not.
            logprobs = () if self.stopped else output.logprobs
        if output.finish is not None:
            certain = self._stops.push(self._text.push(output.token_ids) + self._text.flush())
            text = certain + self._stops.flush()
            return Piece(text, self._finish(output), output.usage, index, logprobs)
        if self.stopped:
            return None
        certain = self._stops.push(self._text.push(output.token_ids))
        return Piece(certain, index=index, logprobs=logprobs) if certain or logprobs else None

    def _finish(self, output: Output) -> str:
        finish = "stop" if self.stopped else _FINISH[output.finish or "stop"]
        if finish == "stop" and output.usage is not None and output.usage.closed_early:
            # Valid JSON all the same; OpenAI's word for an answer that max_tokens made shorter.
            return "length"
        return finish


async def generate(services: Services, prompt: Prompt) -> AsyncIterator[Piece]:
    """Yield the choices piece by piece; closing early ends the requests at the engine.

    Raises EngineError when the engine can't go on with one of them.
    """
    tokenizer = await services.tokenizer()
    engine = await services.engine()
    grammar = prompt.bounds.grammar if prompt.bounds else None
    outputs = engine.generate(
        prompt.requests,
        tokenizer_hash=tokenizer.hash,
        grammars={grammar.hash: grammar.table} if grammar else {},
    )
    each = prompt.per_request
    firsts = {request.request_id: at * each for at, request in enumerate(prompt.requests)}
    choices = [_Choice(tokenizer.stream(), prompt.stops) for _ in range(prompt.choices)]
    with_logprobs = prompt.requests[0].sampling.logprobs >= 0
    cancelled: set[str] = set()
    async with contextlib.aclosing(cast("AsyncGenerator[Output]", outputs)):
        async for output in outputs:
            if output.finish == "error":
                raise EngineError(EngineReason(output.reason), output.message)
            request_id, first = output.request_id, firsts[output.request_id]
            index = first + output.sample
            piece = choices[index].piece(output, index, with_logprobs=with_logprobs)
            if piece is not None:
                yield piece
            # A choice that has met its stop string is cut off; the request ends when all have.
            # The last outputs still come, with the usage.
            siblings = choices[first : first + each]
            if request_id not in cancelled and all(choice.stopped for choice in siblings):
                cancelled.add(request_id)
                if not output.ends_request:
                    await engine.cancel([request_id])
