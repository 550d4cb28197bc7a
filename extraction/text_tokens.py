"""A long text's tokens, encoded once, for prompts that show parts of it.

Where a tokenizer takes lines apart, the ids of a part are those of the whole, but for the two lines
in which it begins and ends: only these are encoded again, with what stands beside them.
"""

from __future__ import annotations

import re
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_Ids = NDArray[np.int32]

# After this a text can be cut (see Tokenizer.lines_apart); what `\s` holds more than tokenizers
# call a space does no harm.
_BORDER = re.compile(r"\S\n(?=\S)")
_CHUNK_CHARS = 16_384
_NO_IDS = np.empty(0, np.int32)


class Encoder(Protocol):
    """What is asked of `pagemill.engine.tokenizer.Tokenizer`, which documents the names."""

    @property
    def lines_apart(self) -> bool: ...

    def __hash__(self) -> int: ...

    def encode(self, text: str) -> _Ids: ...

    def encode_with_starts(self, text: str) -> tuple[_Ids, _Ids]: ...


class TextTokens:
    """The tokens of `text`, which is encoded as far as is asked for. Not thread-safe."""

    def __init__(self, encoder: Encoder, text: str) -> None:
        self.text = text
        self._encoder = encoder
        self._ids = self._starts = _NO_IDS
        self._encoded = 0  # characters

    def count_up_to(self, most: int) -> int:
        """Return the text's number of tokens, or `most` + 1 when it has more."""
        while len(self._ids) <= most and self._encoded < len(self.text):
            self._encode_more()
        return min(len(self._ids), most + 1)

    def ids(self, start: int, end: int, before: str = "", after: str = "") -> _Ids:
        """Return the ids of before + text[start:end] + after.

        `before` is empty or ends with a full line.
        """
        first, last = self._inner(start, end)
        if first >= last:
            return self._encoder.encode(before + self.text[start:end] + after)
        left = before + self.text[start:first]
        inner = self._ids[self._token_at(first) : self._token_at(last)]
        right = self._encoder.encode(self.text[last:end] + after)
        parts = [self._encoder.encode(left), inner, right] if left else [inner, right]
        return np.concatenate(parts)

    def count(self, start: int, end: int) -> int:
        """Return the number of tokens of text[start:end]."""
        return len(self.ids(start, end))

    def reach(self, start: int, tokens: int) -> int:
        """Return about where `tokens` tokens end that begin at `start`; at most the text's end."""
        self._encode_to(start)
        at = self._token_at(start) + tokens
        if self.count_up_to(at) <= at:
            return len(self.text)
        return int(self._starts[at])

    def back(self, end: int, tokens: int) -> int:
        """Return about where `tokens` tokens begin that end at `end`; at least 0."""
        self._encode_to(end)
        at = self._token_at(end) - tokens
        return int(self._starts[at]) if at > 0 else 0

    def _inner(self, start: int, end: int) -> tuple[int, int]:
        """The first and last border of [start, end) where both neighbours stand in it as well."""
        if not self._encoder.lines_apart or end - start < 2:
            return 0, 0
        first = start
        if not self._is_border(start):
            found = _BORDER.search(self.text, start, end)
            if found is None:
                return 0, 0
            first = found.end()
        last = self.text.rfind("\n", first, end - 1) + 1
        while last > first and not self._is_border(last):
            last = self.text.rfind("\n", first, last - 1) + 1
        if last > first:
            self._encode_to(last)
        return first, last

    def _is_border(self, at: int) -> bool:
        text = self.text
        if at == 0:
            return not text[:1].isspace()
        return (
            text[at - 1] == "\n"
            and at > 1
            and not text[at - 2].isspace()
            and not text[at : at + 1].isspace()
        )

    def _token_at(self, at: int) -> int:
        return int(np.searchsorted(self._starts, at))

    def _encode_to(self, at: int) -> None:
        while self._encoded < at:
            self._encode_more()

    def _encode_more(self) -> None:
        start, end = self._encoded, len(self.text)
        if self._encoder.lines_apart:
            border = _BORDER.search(self.text, start + _CHUNK_CHARS)
            end = border.end() if border is not None else end
        ids, starts = self._encoder.encode_with_starts(self.text[start:end])
        self._ids = np.concatenate([self._ids, ids])
        self._starts = np.concatenate([self._starts, starts + np.int32(start)])
        self._encoded = end
