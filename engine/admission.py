"""From a Request as it came to an Entry, or the reason why not."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from pagemill._core import Refusal

from .errors import EngineError, EngineReason
from .protocol import Request, SamplingParams
from .request_book import Entry

_MAX_REQUEST_ID = 256
_MAX_STOP_IDS = 64
_MAX_PRIORITY = 1 << 31
_MAX_SAMPLES = 64
_MAX_LOGPROBS = 64
_MAX_BEAMS = 64


def stable_hash(text: str) -> int:
    """A 63-bit hash, the same in every process; 0 for the empty text."""
    if not text:
        return 0
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def client_number(client: bytes) -> int:
    """What the scheduler calls a client."""
    return int.from_bytes(hashlib.blake2b(client, digest_size=8).digest(), "little")


def make_entry(
    number: int,
    client: bytes,
    request: Request,
    vocab_size: int,
    eos_ids: Sequence[int],
    now: float,
) -> Entry:
    """Check a request from outside; EngineError says what is wrong with it."""
    if not 0 < len(request.request_id) <= _MAX_REQUEST_ID:
        raise _invalid(f"a request id has 1 to {_MAX_REQUEST_ID} characters")
    prompt = _prompt(request.token_ids, vocab_size)
    _check_sampling(request.sampling, vocab_size)
    if not abs(request.priority) < _MAX_PRIORITY:
        raise _invalid("priority must lie within 32 bits")
    if not 0 <= request.salt_from <= len(prompt):
        raise _invalid("salt_from must lie within the prompt")
    if not (math.isfinite(request.timeout_s) and request.timeout_s >= 0):
        raise _invalid("timeout_s must be finite and not negative")
    stop_ids = set(request.sampling.stop_token_ids)
    if not request.sampling.ignore_eos:
        stop_ids.update(eos_ids)
    return Entry(
        number=number,
        client=client,
        request=request,
        prompt=prompt,
        stop_ids=frozenset(stop_ids),
        arrival=now,
        deadline=now + request.timeout_s if request.timeout_s else math.inf,
    )


def sample_of(first: Entry, sample: int, number: int) -> Entry:
    """Another sample of a request: the same but for its place and its generator's seed."""
    sampling = first.request.sampling
    seeded = msgspec.structs.replace(sampling, seed=(sampling.seed + sample) % (1 << 63))
    return Entry(
        number=number,
        client=first.client,
        request=msgspec.structs.replace(first.request, sampling=seeded),
        prompt=first.prompt,
        stop_ids=first.stop_ids,
        arrival=first.arrival,
        deadline=first.deadline,
        verbatim=first.verbatim,
        sample=sample,
    )


def check_budget(sampling: SamplingParams, min_tokens: int) -> None:
    """EngineError when the shortest record of a grammar takes more than `max_tokens` allows."""
    if sampling.record_tokens < min_tokens:
        needs = f"the shortest record of the schema takes {min_tokens} tokens"
        if sampling.beam_width:
            needs += ", and a beam's end one more"
        raise EngineError(
            EngineReason.BUDGET_TOO_SMALL, f"max_tokens {sampling.max_tokens}: {needs}"
        )


def refused(code: int, prompt_tokens: int, max_tokens: int, max_model_len: int) -> EngineError:
    """The error that a `Refusal` of the scheduler stands for."""
    if code == Refusal.TOO_LONG:
        return EngineError(
            EngineReason.PROMPT_TOO_LONG,
            f"{prompt_tokens} prompt tokens and max_tokens {max_tokens} exceed the context of "
            f"{max_model_len} tokens, or what the KV cache holds",
        )
    if code == Refusal.EMPTY_PROMPT:
        return EngineError(EngineReason.PROMPT_EMPTY, "the prompt is empty")
    if code == Refusal.QUEUE_REQUESTS:
        return EngineError(EngineReason.OVERLOADED, "too many requests wait: retry later")
    if code == Refusal.QUEUE_TOKENS:
        return EngineError(EngineReason.OVERLOADED, "too many prompt tokens wait: retry later")
    return EngineError(EngineReason.ENGINE_ERROR, f"the scheduler refused the request ({code})")


def _invalid(message: str) -> EngineError:
    return EngineError(EngineReason.MESSAGE_INVALID, message)


def _prompt(token_ids: bytes, vocab_size: int) -> NDArray[np.int32]:
    if not token_ids:
        raise EngineError(EngineReason.PROMPT_EMPTY, "the prompt is empty")
    if len(token_ids) % 4:
        raise _invalid("token_ids must hold little-endian int32")
    prompt = np.frombuffer(token_ids, dtype="<i4").astype(np.int32)
    if not 0 <= prompt.min() <= prompt.max() < vocab_size:
        raise _invalid(f"token ids must lie in [0, {vocab_size})")
    return prompt


def _check_sampling(sampling: SamplingParams, vocab_size: int) -> None:
    if not 1 <= sampling.max_tokens < _MAX_PRIORITY:
        raise _invalid("max_tokens must be at least 1")
    if not (math.isfinite(sampling.temperature) and 0 <= sampling.temperature <= 100):
        raise _invalid("temperature must lie in [0, 100]")
    if not 0 < sampling.top_p <= 1:
        raise _invalid("top_p must lie in (0, 1]")
    if not 1 <= sampling.n <= _MAX_SAMPLES:
        raise _invalid(f"n must lie in 1 to {_MAX_SAMPLES}")
    if not -1 <= sampling.logprobs <= _MAX_LOGPROBS:
        raise _invalid(f"logprobs must lie in -1 (none) to {_MAX_LOGPROBS}")
    _check_beams(sampling)
    if not 0 <= sampling.seed < 1 << 63:
        raise _invalid("seed must lie in [0, 2**63)")
    if len(sampling.stop_token_ids) > _MAX_STOP_IDS:
        raise _invalid(f"at most {_MAX_STOP_IDS} stop_token_ids are served")
    if any(not 0 <= token < vocab_size for token in sampling.stop_token_ids):
        raise _invalid(f"stop_token_ids must lie in [0, {vocab_size})")


def _check_beams(sampling: SamplingParams) -> None:
    if not 0 <= sampling.beam_width <= _MAX_BEAMS:
        raise _invalid(f"beam_width must lie in 0 (none) to {_MAX_BEAMS}")
    if not (math.isfinite(sampling.length_penalty) and abs(sampling.length_penalty) <= 10):
        raise _invalid("length_penalty must lie in [-10, 10]")
    if not sampling.beam_width:
        return
    if sampling.n > sampling.beam_width:
        raise _invalid("n must not be more than beam_width")
    if sampling.temperature or sampling.logprobs >= 0 or sampling.ignore_eos:
        raise _invalid("beam search is served without temperature, logprobs and ignore_eos")
