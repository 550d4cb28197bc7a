"""OpenAI's requests as the engine's: tokens, grammar, sampling."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.protocol import Request, SamplingParams, Welcome
from pagemill.engine.tokenizer import Tokenizer

from ..reason import Reason
from .completion import Prompt
from .constraints import compile_constraint
from .openai_formats import Constraint, constraint_of
from .openai_models import ChatRequest, CompletionRequest, Sampled
from .problems import refuse
from .services import Services, in_thread


async def chat_prompt(
    services: Services, asked: ChatRequest, constraint: Constraint | None, tenant: str
) -> Prompt:
    """Tokenise a conversation. Tenants share no prompt cache.

    Raises HttpRefused, SchemaRefused and EngineError before anything is generated.
    """
    await _check_model(services, asked)
    tokenizer = await services.tokenizer()
    pieces = await in_thread(tokenizer.chat, [message.plain() for message in asked.messages])
    inputs = [_Input(np.concatenate(pieces), asked.page)]
    return await _prompt(services, asked, inputs, constraint, tenant)


async def completion_prompt(services: Services, asked: CompletionRequest, tenant: str) -> Prompt:
    """Tokenise each of the prompts. Raises as `chat_prompt`."""
    constraint = constraint_of(asked)
    info = await _check_model(services, asked)
    tokenizer = await services.tokenizer()
    inputs = [await _input(tokenizer, prompt, info, at) for at, prompt in enumerate(asked.prompts)]
    return await _prompt(services, asked, inputs, constraint, tenant)


@dataclass(frozen=True)
class _Input:
    ids: NDArray[np.int32]
    page: str  # what verbatim strings are copied from, and drafts are taken from


async def _input(tokenizer: Tokenizer, prompt: str | list[int], info: Welcome, at: int) -> _Input:
    if isinstance(prompt, str):
        return _Input(await in_thread(tokenizer.encode, prompt), prompt)
    if max(prompt) >= info.vocab_size:
        refuse(
            Reason.REQUEST_INVALID,
            f"prompt {at} has the token {max(prompt)}, the model has {info.vocab_size}",
            at="/prompt",
            advice="use the ids of the model's own tokenizer, or send text",
        )
    return _Input(np.array(prompt, np.int32), tokenizer.decode(prompt))


async def _check_model(services: Services, asked: Sampled) -> Welcome:
    info = (await services.engine()).info
    if asked.model != info.model:
        refuse(
            Reason.MODEL_UNKNOWN,
            f"no model {asked.model[:100]!r} here",
            at="/model",
            advice=f"use {info.model}",
        )
    return info


async def _prompt(
    services: Services,
    asked: Sampled,
    inputs: Sequence[_Input],
    constraint: Constraint | None,
    tenant: str,
) -> Prompt:
    bounds = await in_thread(compile_constraint, constraint) if constraint else None
    info = (await services.engine()).info
    eos_ids = (await services.tokenizer()).eos_ids
    requests = []
    for each in inputs:
        room = info.max_model_len - len(each.ids)
        if room < 1:
            raise EngineError(
                EngineReason.PROMPT_TOO_LONG,
                f"the prompt has {len(each.ids)} tokens, at most {info.max_model_len - 1} fit",
            )
        budget = min(room, asked.budget or services.settings.max_tokens)
        page = each.page.encode("utf-8", "replace") if bounds else b""
        request = Request(
            request_id=uuid.uuid4().hex,
            token_ids=each.ids.astype("<i4").tobytes(),
            sampling=_sampling(asked, budget, eos_ids),
            grammar=bounds.grammar.hash if bounds else None,
            tag=bounds.tag if bounds else "",
            tenant=tenant,
            salt=tenant,
            page=page,
            verbatim=page if bounds and bounds.schema and bounds.schema.verbatim else b"",
        )
        requests.append(request)
    return Prompt(requests, bounds, asked.stops)


def _sampling(asked: Sampled, budget: int, eos_ids: tuple[int, ...]) -> SamplingParams:
    logprobs = asked.top_logprobs_wanted
    if asked.use_beam_search:
        temperature = 0.0
    else:
        temperature = 1.0 if asked.temperature is None else asked.temperature
    return SamplingParams(
        max_tokens=budget,
        temperature=temperature,
        top_p=1.0 if asked.top_p is None else asked.top_p,
        seed=secrets.randbits(62) if asked.seed is None else asked.seed % 2**63,
        stop_token_ids=eos_ids,
        n=asked.n or 1,
        logprobs=-1 if logprobs is None else logprobs,
        beam_width=asked.beam_width,
        length_penalty=asked.length_penalty,
    )
