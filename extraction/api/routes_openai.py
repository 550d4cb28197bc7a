"""`/v1/models` and `/v1/chat/completions`, as OpenAI's clients know them."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import msgspec
import orjson
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from pagemill.engine.errors import EngineError
from pagemill.engine.protocol import Usage
from starlette.responses import Response, StreamingResponse

from .auth import tenant_of
from .completion import Piece, Prompt, evidence_of, generate, prepare
from .disconnect import until_gone
from .openai_models import ChatRequest
from .problems import reason_of
from .services import Services, in_thread, services_of

router = APIRouter(prefix="/v1", tags=["OpenAI-compatible"])


@router.get("/models")
async def models(services: Annotated[Services, Depends(services_of)]) -> dict[str, Any]:
    """The one model that the engine serves."""
    info = (await services.engine()).info
    model = {
        "id": info.model,
        "object": "model",
        "created": 0,
        "owned_by": "pagemill",
        "max_model_len": info.max_model_len,
    }
    return {"object": "list", "data": [model]}


@router.post("/chat/completions", response_model=None)
async def chat_completions(
    request: Request,
    asked: ChatRequest,
    services: Annotated[Services, Depends(services_of)],
) -> Response:
    """Complete a conversation, constrained to a JSON Schema if `response_format` names one."""
    prompt = await until_gone(request, prepare(services, asked, tenant_of(request)))
    head = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": asked.model,
    }
    pieces = generate(services, prompt)
    if not asked.stream:
        answer = await until_gone(request, _collect(pieces))
        if asked.evidence:
            await in_thread(_add_evidence, prompt, answer["choices"])
        return JSONResponse({**head, "object": "chat.completion", **answer})
    # The first piece is awaited here, so that a failure before any text has its HTTP status.
    first = await until_gone(request, _first(pieces))
    with_usage = asked.stream_options is not None and asked.stream_options.include_usage
    return StreamingResponse(
        _events(head, first, pieces, asked.n or 1, with_usage), media_type="text/event-stream"
    )


async def _collect(pieces: AsyncIterator[Piece]) -> dict[str, Any]:
    texts: dict[int, list[str]] = {}
    logprobs: dict[int, list[dict[str, Any]]] = {}
    lasts: dict[int, Piece] = {}
    async for piece in pieces:
        texts.setdefault(piece.index, []).append(piece.text)
        if piece.logprobs is not None:
            logprobs.setdefault(piece.index, []).extend(piece.logprobs)
        lasts[piece.index] = piece
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": "".join(texts[index])},
            "logprobs": _logprobs(logprobs.get(index)),
            "finish_reason": lasts[index].finish,
        }
        for index in sorted(texts)
    ]
    return {"choices": choices, "usage": _usage([lasts[index].usage for index in sorted(lasts)])}


def _add_evidence(prompt: Prompt, choices: list[dict[str, Any]]) -> None:
    for choice in choices:
        found = evidence_of(prompt, choice["message"]["content"])
        choice["evidence"] = [msgspec.to_builtins(place) for place in found]


async def _first(pieces: AsyncIterator[Piece]) -> Piece:
    async for piece in pieces:
        return piece
    return Piece("", "stop")


async def _events(
    head: dict[str, Any],
    first: Piece,
    pieces: AsyncIterator[Piece],
    count: int,
    with_usage: bool,
) -> AsyncIterator[bytes]:
    """Server-sent events: a chunk a piece, the usage if asked for, `[DONE]`."""
    chunk = {**head, "object": "chat.completion.chunk"}
    usages: dict[int, Usage | None] = {}
    try:
        for index in range(count):
            yield _event(chunk, index, {"role": "assistant", "content": ""}, None)
        piece = first
        while True:
            if piece.text or piece.logprobs:
                yield _event(chunk, piece.index, {"content": piece.text}, None, piece.logprobs)
            if piece.finish is not None:
                yield _event(chunk, piece.index, {}, piece.finish)
                usages[piece.index] = piece.usage
                if len(usages) == count:
                    break
            try:
                piece = await anext(pieces)
            except StopAsyncIteration:  # A beam search may find fewer texts than were asked for.
                break
        if with_usage:
            total = _usage([usages[index] for index in sorted(usages)])
            usage = {**chunk, "choices": [], "usage": total}
            yield b"data: " + orjson.dumps(usage) + b"\n\n"
        yield b"data: [DONE]\n\n"
    except EngineError as error:
        reason, message, _, _ = reason_of(error)
        problem = {"message": message, "type": "server_error", "code": reason, "param": None}
        yield b"data: " + orjson.dumps({"error": problem}) + b"\n\n"
    finally:
        await _close(pieces)


async def _close(pieces: AsyncIterator[Piece]) -> None:
    close = getattr(pieces, "aclose", None)
    if close is not None:
        await close()


def _event(
    chunk: dict[str, Any],
    index: int,
    delta: dict[str, str],
    finish: str | None,
    logprobs: list[dict[str, Any]] | None = None,
) -> bytes:
    choice = {
        "index": index,
        "delta": delta,
        "logprobs": _logprobs(logprobs),
        "finish_reason": finish,
    }
    return b"data: " + orjson.dumps({**chunk, "choices": [choice]}) + b"\n\n"


def _logprobs(content: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    return None if content is None else {"content": content, "refusal": None}


def _usage(usages: Sequence[Usage | None]) -> dict[str, Any]:
    """The choices' usage together: the prompt, which they share, counts once."""
    counted = [usage or Usage() for usage in usages] or [Usage()]
    prompt, completion = counted[0].prompt_tokens, sum(u.completion_tokens for u in counted)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": counted[0].cached_tokens},
    }
