"""One chat completion at the engine: prompt, grammar, text as it grows."""

from __future__ import annotations

import contextlib
import json
import secrets
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.protocol import Output, Request, SamplingParams, Usage

from .. import grounding
from ..bound_schema import BoundSchema
from ..reason import Reason
from ..record import Evidence
from ..verbatim import verbatim_values
from .logprobs import told
from .openai_models import ChatRequest
from .problems import refuse
from .services import Services, in_thread
from .stop_strings import StopStrings

_FINISH = {"stop": "stop", "length": "length", "cancelled": "stop", "deadline": "length"}


@dataclass(frozen=True)
class Piece:
    """New text of a choice; its last piece has `finish` (OpenAI's word) and `usage`.

    `logprobs` are of its tokens, as OpenAI tells them; None when they were not asked for.
    """

    text: str
    finish: str | None = None
    usage: Usage | None = None
    index: int = 0
    logprobs: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class Prompt:
    """A request ready for the engine, and the grammar's table that it names."""

    request: Request
    schema: BoundSchema | None
    stops: list[str]
    page: str = ""  # what verbatim strings are copied from, and what evidence is looked up in


async def prepare(services: Services, asked: ChatRequest, tenant: str = "") -> Prompt:
    """Tokenise the conversation and compile its response format. Tenants share no prompt cache.

    Raises HttpRefused, SchemaRefused and EngineError before anything is generated.
    """
    engine = await services.engine()
    if asked.model != engine.info.model:
        refuse(
            Reason.REQUEST_INVALID,
            f"no model {asked.model[:100]!r} here",
            at="/model",
            advice=f"use {engine.info.model}",
        )
    schema = await _schema(services, asked)
    tokenizer = await services.tokenizer()
    pieces = await in_thread(tokenizer.chat, [message.plain() for message in asked.messages])
    ids = np.concatenate(pieces).astype("<i4")
    room = engine.info.max_model_len - len(ids)
    if room < 1:
        raise EngineError(
            EngineReason.PROMPT_TOO_LONG,
            f"the prompt has {len(ids)} tokens, at most {engine.info.max_model_len - 1} fit",
        )
    page = _page(asked) if schema else ""
    sampling = SamplingParams(
        max_tokens=min(room, asked.budget or services.settings.max_tokens),
        temperature=_temperature(asked),
        top_p=1.0 if asked.top_p is None else asked.top_p,
        seed=secrets.randbits(62) if asked.seed is None else asked.seed % 2**63,
        stop_token_ids=tuple(tokenizer.eos_ids),
        n=asked.n or 1,
        logprobs=(asked.top_logprobs or 0) if asked.logprobs else -1,
        beam_width=asked.beam_width,
        length_penalty=asked.length_penalty,
    )
    request = Request(
        request_id=uuid.uuid4().hex,
        token_ids=ids.tobytes(),
        sampling=sampling,
        grammar=schema.grammar.hash if schema else None,
        tag=schema.hash if schema else "",
        tenant=tenant,
        salt=tenant,
        page=page.encode("utf-8", "replace"),
        verbatim=page.encode("utf-8", "replace") if schema and schema.verbatim else b"",
    )
    return Prompt(request, schema, asked.stops, page)


def _page(asked: ChatRequest) -> str:
    """The last user message: where a conversation with a schema has its page."""
    for message in reversed(asked.messages):
        if message.role == "user":
            return message.plain()["content"]
    return ""


def evidence_of(prompt: Prompt, content: str) -> list[Evidence]:
    """Where on the page the values of an answer stand; nothing for one that is no JSON."""
    if prompt.schema is None or not prompt.page:
        return []
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return []
    copied = verbatim_values(prompt.schema.schema, record)
    return grounding.locate(record, prompt.page, verbatim=copied)


def _temperature(asked: ChatRequest) -> float:
    if asked.use_beam_search:
        return 0.0
    return 1.0 if asked.temperature is None else asked.temperature


async def _schema(services: Services, asked: ChatRequest) -> BoundSchema | None:
    wanted = asked.response_format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.json_schema is None:
        refuse(
            Reason.REQUEST_INVALID,
            f"response_format {wanted.type!r} without a schema",
            at="/response_format",
            advice='use {"type": "json_schema", "json_schema": {"schema": {...}}}',
        )
    return await services.bind(wanted.json_schema.schema_)


async def generate(services: Services, prompt: Prompt) -> AsyncIterator[Piece]:
    """Yield the choices piece by piece; closing early ends the request at the engine.

    Raises EngineError when the engine can't go on with one of them.
    """
    tokenizer = await services.tokenizer()
    engine = await services.engine()
    grammar = prompt.schema.grammar if prompt.schema else None
    outputs = engine.generate(
        [prompt.request],
        tokenizer_hash=tokenizer.hash,
        grammars={grammar.hash: grammar.table} if grammar else {},
    )
    count = prompt.request.sampling.n
    texts = [tokenizer.stream() for _ in range(count)]
    all_stops = [StopStrings(prompt.stops) for _ in range(count)]
    cancelled = False
    with_logprobs = prompt.request.sampling.logprobs >= 0
    token_bytes = tokenizer.token_bytes() if with_logprobs else []
    async with contextlib.aclosing(cast("AsyncGenerator[Output]", outputs)):
        async for output in outputs:
            if output.finish == "error":
                raise EngineError(EngineReason(output.reason), output.message)
            text, stops = texts[output.sample], all_stops[output.sample]
            logprobs = None
            if with_logprobs:  # Those of a piece that meets a stop string are told, later ones not.
                logprobs = [] if stops.stopped else told(output.logprobs, token_bytes)
            if output.finish is not None:
                certain = stops.push(text.push(output.token_ids) + text.flush())
                yield _last(certain, stops, output, logprobs)
            elif not stops.stopped:
                certain = stops.push(text.push(output.token_ids))
                if certain or logprobs:
                    yield Piece(certain, index=output.sample, logprobs=logprobs)
            # A choice that has met its stop string is cut off; the request ends when all have.
            # The last outputs still come, with the usage.
            if not cancelled and all(stops.stopped for stops in all_stops):
                cancelled = True
                if not output.ends_request:
                    await engine.cancel([prompt.request.request_id])


def _last(
    certain: str, stops: StopStrings, output: Output, logprobs: list[dict[str, Any]] | None
) -> Piece:
    finish = "stop" if stops.stopped else _FINISH[output.finish or "stop"]
    if finish == "stop" and output.usage is not None and output.usage.closed_early:
        # Valid JSON all the same; OpenAI's word for an answer that max_tokens made shorter.
        finish = "length"
    return Piece(certain + stops.flush(), finish, output.usage, output.sample, logprobs)
