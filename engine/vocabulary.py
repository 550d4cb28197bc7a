"""What the core knows of a tokenizer: the bytes of each token, the ends, the hash."""

from __future__ import annotations

from dataclasses import dataclass

from .byte_pairs import BytePairs
from .tokenizer import Tokenizer

FAKE_MODEL = "fake"


@dataclass(frozen=True)
class Vocabulary:
    """`tokens` holds the bytes of each id, b"" for ids that no grammar may take.

    `byte_pairs` is None for a tokenizer that drafts can't be encoded for.
    """

    hash: str
    tokens: list[bytes]
    eos_ids: tuple[int, ...]
    byte_pairs: BytePairs | None = None

    @property
    def size(self) -> int:
        return len(self.tokens)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Vocabulary:
        return cls(tokenizer.hash, tokenizer.token_bytes(), tokenizer.eos_ids, tokenizer.byte_pairs)

    @classmethod
    def of_bytes(cls) -> Vocabulary:
        """One token per byte and an end (id 256): the vocabulary of the model named "fake"."""
        tokens = [bytes([value]) for value in range(256)] + [b""]
        return cls("bytes-1", tokens, (256,), BytePairs.of_bytes())
