"""`/v1/models`, `/v1/chat/completions` and `/v1/completions`, as OpenAI's clients know them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response, StreamingResponse

from ..reason import Reason
from .auth import count_pages, tenant_of
from .chat_evidence import add_evidence
from .completion import Piece, Prompt, generate
from .disconnect import until_gone
from .extraction import EVENTS_TYPE
from .openai_answers import ChatShape, Shape, TextShape, collect, events
from .openai_formats import constraint_of
from .openai_models import ChatRequest, CompletionRequest, Sampled
from .openai_prompts import chat_prompt, completion_prompt
from .problems import refuse
from .services import Services, in_thread, services_of

router = APIRouter(prefix="/v1", tags=["OpenAI-compatible"])

_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {EVENTS_TYPE: {"schema": {"type": "string"}}}}
}


@router.get("/models")
async def models(services: Annotated[Services, Depends(services_of)]) -> dict[str, Any]:
    """The one model that the engine serves."""
    return {"object": "list", "data": [await _model(services)]}


@router.get("/models/{name:path}")
async def model(name: str, services: Annotated[Services, Depends(services_of)]) -> dict[str, Any]:
    """That model, by its name."""
    served = await _model(services)
    if name != served["id"]:
        refuse(Reason.MODEL_UNKNOWN, f"no model {name[:100]!r} here", advice=f"use {served['id']}")
    return served


async def _model(services: Services) -> dict[str, Any]:
    info = (await services.engine()).info
    return {
        "id": info.model,
        "object": "model",
        "created": 0,
        "owned_by": "pagemill",
        "max_model_len": info.max_model_len,
    }


@router.post("/chat/completions", response_model=None, responses=_STREAMED)
async def chat_completions(
    request: Request,
    asked: ChatRequest,
    services: Annotated[Services, Depends(services_of)],
) -> Response:
    """Complete a conversation.

    The answer is bound to a JSON Schema by `response_format` or vLLM's `structured_outputs`, or it
    is the arguments of the function that `tool_choice` names.
    """
    constraint = constraint_of(asked, asked.tools, asked.tool_choice)
    work = chat_prompt(services, asked, constraint, tenant_of(request))
    prompt = await until_gone(request, work)
    shape = ChatShape(
        asked.model,
        await _token_bytes(services, asked),
        tool=constraint.tool if constraint else "",
        tool_finish="tool_calls" if asked.tool_choice == "required" else "stop",
    )
    if not asked.evidence:
        return await _answer(request, services, asked, prompt, shape)
    await count_pages(request, services, 1)
    collecting = collect(shape, generate(services, prompt), prompt.per_request)
    answer = await until_gone(request, collecting)
    await in_thread(add_evidence, answer["choices"], prompt.bounds, asked.page)
    return JSONResponse(answer)


@router.post("/completions", response_model=None, responses=_STREAMED)
async def completions(
    request: Request,
    asked: CompletionRequest,
    services: Annotated[Services, Depends(services_of)],
) -> Response:
    """Go on with texts, as they are: no chat template is applied."""
    work = completion_prompt(services, asked, tenant_of(request))
    prompt = await until_gone(request, work)
    echoes: list[str] = []
    if asked.echo:
        tokenizer = await services.tokenizer()
        echoes = [p if isinstance(p, str) else tokenizer.decode(p) for p in asked.prompts]
    token_bytes = await _token_bytes(services, asked)
    shape = TextShape(asked.model, token_bytes, echoes, prompt.per_request)
    return await _answer(request, services, asked, prompt, shape)


async def _token_bytes(services: Services, asked: Sampled) -> list[bytes]:
    if asked.top_logprobs_wanted is None:
        return []
    return (await services.tokenizer()).token_bytes()


async def _answer(
    request: Request, services: Services, asked: Sampled, prompt: Prompt, shape: Shape
) -> Response:
    await count_pages(request, services, len(prompt.requests))
    pieces = generate(services, prompt)
    if not asked.stream:
        work = collect(shape, pieces, prompt.per_request)
        return JSONResponse(await until_gone(request, work))
    # The first piece is awaited here, so that a failure before any text has its HTTP status.
    first = await until_gone(request, _first(pieces))
    with_usage = asked.stream_options is not None and asked.stream_options.include_usage
    stream = events(
        shape,
        first,
        pieces,
        choices=prompt.choices,
        per_prompt=prompt.per_request,
        with_usage=with_usage,
    )
    return StreamingResponse(stream, media_type=EVENTS_TYPE)


async def _first(pieces: AsyncIterator[Piece]) -> Piece:
    async for piece in pieces:
        return piece
    return Piece("", "stop")
