"""Rows that are decoded under closing from logits of one's own choice, and what they wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pagemill._core import Grammar, GrammarRows, PageSpans

CUT = 1
LOOPED = 2

Logits = NDArray[np.float32]


@dataclass
class Written:
    """What one row wrote: its text, tokens (an end-of-sequence included), and marks."""

    text: bytes = b""
    tokens: int = 0
    cut: bool = False
    loops: int = 0
    ended: bool = False


def decode(
    grammar: Grammar,
    vocabulary: Sequence[bytes],
    budgets: Sequence[int],
    logits: Callable[[int, int], Logits],
    *,
    bounded: bool = True,
    loops: bool = False,
    page: PageSpans | None = None,
) -> list[Written]:
    """Decode a row for each budget, all in one batch, by the best legal token.

    `logits(step, rows)` returns float32 [rows, vocabulary]. A row ends at its grammar's end, at
    an end-of-sequence, or after its budget.
    """
    rows = GrammarRows(len(budgets), len(vocabulary))
    written = [Written() for _ in budgets]
    for slot, budget in enumerate(budgets):
        rows.attach(slot, grammar, page)
        rows.set_closing(slot, tokens_left=budget if bounded else -1, loops=loops)
    active = np.arange(len(budgets), dtype=np.int32)
    step = 0
    while len(active):
        values = np.ascontiguousarray(logits(step, len(active)))
        tokens = np.empty(len(active), dtype=np.int32)
        rows.masked_argmax(values.ctypes.data, values.shape[1], active, tokens)
        ends = np.zeros(len(active), dtype=np.uint8)
        rows.advance(active, tokens, ends)
        marks = np.zeros(len(active), dtype=np.uint8)
        rows.take_marks(active, marks)
        step += 1
        going = []
        for slot, token, end, mark in zip(active, tokens, ends, marks, strict=True):
            row = written[slot]
            row.text += vocabulary[token]
            row.tokens += 1
            row.cut = row.cut or bool(mark & CUT)
            row.loops += bool(mark & LOOPED)
            row.ended = bool(end)
            if not end and row.tokens < budgets[slot]:
                going.append(slot)
        active = np.array(going, dtype=np.int32)
    return written


def by_byte(vocabulary: Sequence[bytes], prefer: bytes, avoid: bytes, seed: int = 0) -> Logits:
    """A row of logits: random, lifted for tokens with bytes of `prefer`, lowered for `avoid`."""
    row = np.random.default_rng(seed).random(len(vocabulary), dtype=np.float32)
    for token, text in enumerate(vocabulary):
        row[token] += 2 * any(byte in prefer for byte in text)
        row[token] -= 8 * any(byte in avoid for byte in text) + 16 * (not text)
    return row
