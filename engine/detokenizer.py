"""Token ids back to text, piece by piece. No torch."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence


class Detokenizer:
    """Turns a growing sequence of ids into text; costs what the new ids cost.

    A character whose bytes lie in several tokens comes out when its last byte is there. Bytes
    that can never become a character come out as U+FFFD.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """Return the text that the new ids complete; special and unknown ids have none."""
        known = self._token_bytes
        pieces = (known[token] for token in ids if 0 <= token < len(known))
        return self._decoder.decode(b"".join(pieces))

    def flush(self) -> str:
        """Return what is left at the end: U+FFFD for a character that was never completed."""
        return self._decoder.decode(b"", final=True)
