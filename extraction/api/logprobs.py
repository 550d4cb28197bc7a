"""Log probabilities in OpenAI's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagemill.engine.protocol import TokenLogprob


def told(logprobs: Sequence[TokenLogprob], token_bytes: Sequence[bytes]) -> list[dict[str, Any]]:
    """The `content` of a chat choice's `logprobs`; `token_bytes` has the text of each token id."""
    return [
        _token(one.token_id, one.logprob, token_bytes)
        | {"top_logprobs": [_token(token, value, token_bytes) for token, value in one.top]}
        for one in logprobs
    ]


def _token(token_id: int, logprob: float, token_bytes: Sequence[bytes]) -> dict[str, Any]:
    # A token may be part of a character: `bytes` are what it is.
    return {
        "token": _text(token_id, token_bytes),
        "logprob": logprob,
        "bytes": list(token_bytes[token_id]),
    }


def _text(token_id: int, token_bytes: Sequence[bytes]) -> str:
    return token_bytes[token_id].decode("utf-8", "replace")


class Columns:
    """The `logprobs` of a completion's choice: a column each of texts, values and places.

    Places count characters of the tokens' own texts; U+FFFD stands for a part of a character.
    """

    def __init__(self) -> None:
        self._offset = 0

    def told(
        self, logprobs: Sequence[TokenLogprob], token_bytes: Sequence[bytes]
    ) -> dict[str, list[Any]]:
        """The next tokens' columns."""
        columns: dict[str, list[Any]] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for one in logprobs:
            text = _text(one.token_id, token_bytes)
            columns["tokens"].append(text)
            columns["token_logprobs"].append(one.logprob)
            # Two tokens may have the same text; the likelier one is told.
            best = {_text(token, token_bytes): value for token, value in reversed(one.top)}
            columns["top_logprobs"].append(best)
            columns["text_offset"].append(self._offset)
            self._offset += len(text)
        return columns
