"""What the core knows of a tokenizer: the bytes of each token, the ends, the hash."""

from __future__ import annotations

from dataclasses import dataclass

from .tokenizer import Tokenizer

FAKE_MODEL = "fake"


@dataclass(frozen=True)
class Vocabulary:
    """`tokens` holds the bytes of each id, b"" for ids that no grammar may take."""

    hash: str
    tokens: list[bytes]
    eos_ids: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.tokens)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Vocabulary:
        return cls(tokenizer.hash, tokenizer.token_bytes(), tokenizer.eos_ids)

    @classmethod
    def of_bytes(cls) -> Vocabulary:
        """One token per byte and an end (id 256): the vocabulary of the model named "fake"."""
        return cls("bytes-1", [bytes([value]) for value in range(256)] + [b""], (256,))
