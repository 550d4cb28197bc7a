"""Log probabilities in OpenAI's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagemill.engine.protocol import TokenLogprob


def told(logprobs: Sequence[TokenLogprob], token_bytes: Sequence[bytes]) -> list[dict[str, Any]]:
    """The `content` of a choice's `logprobs`; `token_bytes` holds the text of each token id."""
    return [
        _token(one.token_id, one.logprob, token_bytes)
        | {"top_logprobs": [_token(token, value, token_bytes) for token, value in one.top]}
        for one in logprobs
    ]


def _token(token_id: int, logprob: float, token_bytes: Sequence[bytes]) -> dict[str, Any]:
    text = token_bytes[token_id]
    # A token may be part of a character: `bytes` are what it is.
    return {
        "token": text.decode("utf-8", "replace"),
        "logprob": logprob,
        "bytes": list(text),
    }
