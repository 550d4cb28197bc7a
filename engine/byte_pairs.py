"""What a C++ encoder needs to know of a tokenizer: the ids of bytes, merges, character classes."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pagemill import _core

_I32 = NDArray[np.int32]

_CLASSES = {"L": 1, "N": 2}
# The property White_Space of Unicode, which \s of the tokenizers' expressions stands for.
_SPACES = (*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
           0x202F, 0x205F, 0x3000)  # fmt: skip
_LAST_ASSIGNED = 0x40000  # no letter, number or space lies beyond


@dataclass(frozen=True)
class BytePairs:
    """A byte-level BPE: `merges` [n, 3] (left, right, merged) by rank.

    `byte_ids` [256] has -1 for bytes that the vocabulary lacks; such bytes are passed over.
    """

    byte_ids: _I32
    merges: _I32
    split_digits: bool

    def encoder(self) -> _core.BpeEncoder:
        """Return the encoder over these tables."""
        starts, classes = _character_classes() if len(self.merges) else _NO_CLASSES
        return _core.BpeEncoder(
            byte_ids=self.byte_ids,
            merges=self.merges,
            class_starts=starts,
            classes=classes,
            split_digits=self.split_digits,
        )

    @classmethod
    def of_bytes(cls) -> BytePairs:
        """One token per byte, its id the byte's value."""
        return cls(np.arange(256, dtype=np.int32), np.zeros((0, 3), dtype=np.int32), False)

    @classmethod
    def of(cls, spec: Mapping[str, Any], byte_of: Mapping[int, int]) -> BytePairs | None:
        """Read tokenizer.json; None when it is anything but BPE over bytes split as GPT-2 does.

        `byte_of` has the byte that each code point of the vocabulary's alphabet stands for.
        """
        model = spec.get("model") or {}
        split_digits = _split(spec.get("pre_tokenizer"))
        plain = not any(
            model.get(name)
            for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
        )
        served = (
            model.get("type") == "BPE"
            and plain
            and not model.get("ignore_merges")
            and spec.get("normalizer") is None
            and split_digits is not None
        )
        if not served or split_digits is None:
            return None
        ids = model["vocab"]
        byte_ids = np.full(256, -1, dtype=np.int32)
        for code_point, byte in byte_of.items():
            byte_ids[byte] = ids.get(chr(code_point), -1)
        pairs = (_pair(merge) for merge in model["merges"])
        merges = np.array(
            [(ids[left], ids[right], ids[left + right]) for left, right in pairs], dtype=np.int32
        )
        return cls(byte_ids, merges.reshape(-1, 3), split_digits)


def _pair(merge: str | Sequence[str]) -> tuple[str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _split(pre_tokenizer: Any) -> bool | None:
    """Whether digits stand apart before GPT-2's expression splits; None for any other split."""
    steps = [pre_tokenizer]
    if isinstance(pre_tokenizer, dict) and pre_tokenizer.get("type") == "Sequence":
        steps = list(pre_tokenizer.get("pretokenizers") or [])
    if not all(isinstance(step, dict) for step in steps) or not steps:
        return None
    digits, last = steps[:-1], steps[-1]
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space") is not False:
        return None
    if not last.get("use_regex", True):
        return None
    if any(s.get("type") != "Digits" or not s.get("individual_digits") for s in digits):
        return None
    return bool(digits)


@lru_cache(maxsize=1)
def _character_classes() -> tuple[_I32, NDArray[np.uint8]]:
    kinds = np.fromiter(
        (_CLASSES.get(unicodedata.category(chr(code))[0], 0) for code in range(_LAST_ASSIGNED)),
        dtype=np.uint8,
        count=_LAST_ASSIGNED,
    )
    kinds[list(_SPACES)] = 3
    starts = np.concatenate([[0], np.flatnonzero(np.diff(kinds)) + 1])
    last = [_LAST_ASSIGNED] if kinds[-1] else []
    return (
        np.concatenate([starts, last]).astype(np.int32),
        np.concatenate([kinds[starts], [0] if last else []]).astype(np.uint8),
    )


_NO_CLASSES: tuple[_I32, NDArray[np.uint8]] = (
    np.zeros(0, dtype=np.int32),
    np.zeros(0, dtype=np.uint8),
)
