"""A model that is arithmetic: for tests, and for measuring everything but the model.

What it computes depends on its KV cache as a real model does: each token's K/V is a hash of token
and position, written where the plan says; the next token follows from the sum over the context,
gathered through the block table. A block that is shared wrongly, lost or overwritten changes the
output. Grammars and seeds are honoured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..counter_rng import mix
from .base import Executor
from .batch import Batch
from .rows import StepRows
from .scores import TokenScores, best_that_goes_on, ranked

_I32 = NDArray[np.int32]
_U64 = NDArray[np.uint64]

# Of the tokens chosen without a grammar, one in so many is the end.
_END_EVERY = 64


class FakeExecutor(Executor):
    """Next token = a legal one picked by a hash of the context (and of the seed, when sampling)."""

    def __init__(
        self, batch: Batch, num_blocks: int, eos_ids: tuple[int, ...], step_s: float = 0.0
    ) -> None:
        super().__init__(batch)
        self._cache: _U64 = np.zeros(num_blocks * batch.block_size, dtype=np.uint64)
        self._eos_ids = np.asarray(eos_ids, dtype=np.int32)
        self._step_s = step_s

    def forward(self, rows: StepRows) -> _I32:
        if self._step_s:
            time.sleep(self._step_s)
        with np.errstate(over="ignore"):
            # Written for the whole batch before any row reads, as in a real layer.
            ids = rows.token_ids.astype(np.uint64) << np.uint64(32)
            self._cache[rows.slot_mapping] = mix(ids | rows.positions.astype(np.uint64))
            return self._choose(rows)

    def copy_blocks(self, sources: _I32, targets: _I32) -> None:
        blocks = self._cache.reshape(-1, self.batch.block_size)
        blocks[targets] = blocks[sources]

    def _choose(self, rows: StepRows) -> _I32:
        rows_slots, drafts = rows.sampling_slots(), rows.drafts()
        if not len(rows_slots):
            return np.zeros(0, dtype=np.int32)
        owners, places = drafts.owners(), drafts.places()
        slots = rows_slots[owners]
        contexts = (rows.context_lens[rows.sampled != 0] - drafts.lengths())[owners] + places
        sums = np.array(
            [self._context(slot, length) for slot, length in zip(slots, contexts, strict=True)],
            dtype=np.uint64,
        )
        drawn = self.batch.temperature[slots] > 0
        uniforms = self.batch.uniforms(slots[drawn], places[drawn])
        sums[drawn] += (uniforms * 2.0**53).astype(np.uint64)
        words = (self.batch.vocab_size + 31) // 32
        bitmask = np.empty((len(slots), words), dtype=np.int32)
        self.batch.grammar_rows.fill_bitmask(rows_slots, bitmask, drafts.starts, drafts.tokens)
        attached = [self.batch.grammar_rows.is_attached(slot) for slot in slots.tolist()]
        values = mix(sums).tolist()
        first = np.flatnonzero(places == 0)

        def best_of(rows: Sequence[int], masks: _I32) -> list[int]:
            return [
                self._pick(values[at], mask, attached[at])
                for at, mask in zip(first[rows].tolist(), masks, strict=True)
            ]

        self.batch.note_cuts(rows_slots, best_of)
        picks = zip(values, bitmask, attached, strict=True)
        chosen = np.array([self._pick(*pick) for pick in picks], dtype=np.int32)
        for at in first[self.batch.num_scores[rows_slots] > 0].tolist():
            chosen[at] = self._score(int(slots[at]), values[at], bitmask[at], int(chosen[at]))
        return chosen

    def _score(self, slot: int, value: int, bitmask: _I32, chosen: int) -> int:
        """Fill `scores` of a slot from made-up logits in [0, 8); returns the token to take."""
        ids = np.arange(self.batch.vocab_size)
        with np.errstate(over="ignore"):
            bits = mix(np.uint64(value) + ids.astype(np.uint64))
        logits = (bits >> np.uint64(11)).astype(np.float64) * (8 / 2.0**53)
        logprobs = logits - np.log(np.exp(logits).sum())
        legal = np.unpackbits(bitmask.view(np.uint8), bitorder="little")[: len(ids)] != 0
        best = ranked(ids, np.where(legal, logprobs, -np.inf))[: self.batch.num_scores[slot]]
        if self.batch.is_beam[slot]:
            chosen = best_that_goes_on(best.tolist(), self.batch.stop_ids[slot])
        self.scores[slot] = TokenScores(
            float(logprobs[chosen]), tuple(best.tolist()), tuple(logprobs[best].tolist())
        )
        return chosen

    def _context(self, slot: int, length: int) -> np.uint64:
        places = np.arange(length)
        size = self.batch.block_size
        blocks = self.batch.block_tables[slot, places // size]
        total: np.uint64 = self._cache[blocks.astype(np.int64) * size + places % size].sum()
        return total

    def _pick(self, value: int, bitmask: _I32, constrained: bool) -> int:
        # Most words are empty: mostly a grammar leaves few tokens.
        words = np.flatnonzero(bitmask)
        bits = np.unpackbits(bitmask[words].view(np.uint8), bitorder="little").reshape(-1, 32)
        rows, places = np.nonzero(bits)
        legal = words[rows] * 32 + places
        is_end = np.isin(legal, self._eos_ids)
        ends, others = legal[is_end], legal[~is_end]
        if not len(legal):
            raise RuntimeError("a mask without a legal token")
        wants_end = constrained or value % _END_EVERY == 0
        if len(ends) and (wants_end or not len(others)):
            return int(ends[0])
        return int(others[value % len(others)])
