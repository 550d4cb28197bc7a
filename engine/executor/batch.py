"""The persistent batch: what each slot holds from the step its request starts to its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from pagemill._core import Drafter, Grammar, GrammarRows

from ..counter_rng import uniforms
from .rows import NO_I32, Drafts, SlotStart, StepResult
from .step_cost import StepCost

_I32 = NDArray[np.int32]

# What a step costs beside its tokens, in tokens, while none was measured.
_FIXED_TOKENS = 16.0

# Bits of `Batch.take_marks`.
CUT = 1
LOOPED = 2


class Batch:
    """Block tables, grammar states, sampling parameters and drafts by slot.

    `drafter` is None where none are made; it is to be set before the first slot starts.
    `block_tables` [slots, blocks] int32 is written in place and never moves. `close_records`
    and `close_loops` are the engine's switches (docs/closing.md).
    """

    def __init__(
        self,
        num_slots: int,
        blocks_per_slot: int,
        block_size: int,
        vocab_size: int,
        *,
        seed: int = 0,
        close_records: bool = True,
        close_loops: bool = True,
    ) -> None:
        self.num_slots = num_slots
        self.block_size = block_size
        self.vocab_size = vocab_size
        self.block_tables: _I32 = np.zeros((num_slots, blocks_per_slot), dtype=np.int32)
        self.grammar_rows = GrammarRows(num_slots, vocab_size)
        self.temperature = np.zeros(num_slots, dtype=np.float32)
        self.top_p = np.ones(num_slots, dtype=np.float32)
        self._seeds = np.zeros(num_slots, dtype=np.uint64)
        self._produced = np.zeros(num_slots, dtype=np.uint64)  # tokens so far
        self._seed = seed
        self.last_tokens: _I32 = np.zeros(num_slots, dtype=np.int32)  # the newest of each slot
        self.finished = np.zeros(num_slots, dtype=np.bool_)  # slots with nothing more to compute
        self.num_scores = np.zeros(num_slots, dtype=np.int32)  # candidates told of each slot
        self.is_beam = np.zeros(num_slots, dtype=np.bool_)
        self.stop_ids: list[frozenset[int]] = [frozenset()] * num_slots
        self._close_records = close_records
        self._close_loops = close_loops
        self.drafter: Drafter | None = None
        self.step_cost = StepCost()  # of the model; says how long drafts may be

    def start(self, start: SlotStart) -> None:
        """Give a slot to a request, new or resumed."""
        slot, sampling = start.slot, start.sampling
        self.end(slot)
        self.temperature[slot] = sampling.temperature
        self.top_p[slot] = sampling.top_p
        self._seeds[slot] = sampling.seed
        self._produced[slot] = len(start.output_ids)
        self.stop_ids[slot] = start.stop_ids
        self.num_scores[slot] = sampling.num_scores
        self.is_beam[slot] = sampling.beam_width > 0
        if start.output_ids:
            self.last_tokens[slot] = start.output_ids[-1]
        if start.grammar is None:
            return
        output = np.array(start.output_ids, dtype=np.int32)
        self.grammar_rows.attach(slot, start.grammar, start.verbatim)
        self.grammar_rows.set_closing(
            slot,
            # A beam's end takes a token.
            tokens_left=sampling.record_tokens if self._close_records else -1,
            loops=self._close_loops,
        )
        self.grammar_rows.advance(
            np.full(len(output), slot, dtype=np.int32), output, np.zeros(len(output), np.uint8)
        )
        # Those tokens' marks were told when they were produced.
        self.take_marks(np.array([slot], dtype=np.int32))
        # Candidates are told of one position a step: such a slot runs without drafts.
        if self.drafter is not None and not self.num_scores[slot]:
            self.drafter.start(slot, start.prompt, start.page, output)

    def end(self, slot: int) -> None:
        """Let go of a slot; nothing happens when it is free."""
        if self.grammar_rows.is_attached(slot):
            if self.drafter is not None and not self.num_scores[slot]:
                self.drafter.end(slot)  # reads the grammar
            self.grammar_rows.detach(slot)
        self.temperature[slot] = 0.0
        self.num_scores[slot] = 0
        self.is_beam[slot] = False
        self.finished[slot] = False

    def add_blocks(self, slots: _I32, indices: _I32, blocks: _I32) -> None:
        """Write additions to the block tables: table[slot, index] = block."""
        self.block_tables[slots, indices] = blocks

    def advance(self, slots: _I32, counts: _I32, tokens: _I32, num_drafts: _I32) -> StepResult:
        """Move each slot on by its `counts` tokens, flat in `tokens`; none may be 0."""
        ends = np.zeros(len(tokens), dtype=np.uint8)
        self.grammar_rows.advance(np.repeat(slots, counts), tokens, ends)
        self._produced[slots] += counts.astype(np.uint64)
        if self.drafter is None:
            forced = copied = np.zeros_like(slots)
        else:
            forced, copied = self.drafter.advance(slots, counts, tokens, num_drafts)
        last = np.cumsum(counts) - 1
        ends = np.ascontiguousarray(ends[last])
        for row in np.flatnonzero(self.is_beam[slots]).tolist():
            # A record that can't go on is over; a beam's end counts towards its score.
            ends[row] &= tokens[last[row]] in self.stop_ids[slots[row]]
        self.last_tokens[slots] = tokens[last]
        self._note_finished(slots, counts, tokens, ends)
        return StepResult(tokens, counts, ends, self.take_marks(slots), forced, copied)

    def _note_finished(
        self, slots: _I32, counts: _I32, tokens: _I32, ends: NDArray[np.uint8]
    ) -> None:
        self.finished[slots] |= ends != 0
        for slot, token in zip(np.repeat(slots, counts).tolist(), tokens.tolist(), strict=True):
            if token in self.stop_ids[slot]:
                self.finished[slot] = True

    def places(self, slots: _I32, positions: _I32) -> _I32:
        """Where the K/V of one position of each slot goes, by the block tables."""
        blocks = self.block_tables[slots, positions // self.block_size]
        return np.ascontiguousarray(blocks * self.block_size + positions % self.block_size)

    def note_cuts(self, slots: _I32, best_of: Callable[[list[int], _I32], Sequence[int]]) -> None:
        """For rows chosen from masks: find out whether the bound on tokens forbids the best one.

        `best_of(rows, bitmask)` returns what those of the rows would take by these masks; it is
        called only if some row's mask is narrowed, which is close to the bound.
        """
        rows = [
            row for row, slot in enumerate(slots.tolist()) if self.grammar_rows.is_narrowed(slot)
        ]
        if not rows:
            return
        narrowed = np.ascontiguousarray(slots[rows])
        bitmask = np.empty((len(rows), self.grammar_rows.num_words), dtype=np.int32)
        self.grammar_rows.fill_bitmask(narrowed, bitmask, ordinary=True)
        for slot, token in zip(narrowed.tolist(), best_of(rows, bitmask), strict=True):
            self.grammar_rows.note_best(slot, int(token))

    def take_marks(self, slots: _I32) -> NDArray[np.uint8]:
        """Return and clear what happened to the slots' records: CUT, LOOPED."""
        marks = np.zeros(len(slots), dtype=np.uint8)
        self.grammar_rows.take_marks(slots, marks)
        return marks

    def propose(self, slots: _I32) -> Drafts | None:
        """Guess at the next tokens of slots; None when no drafts are made."""
        if self.drafter is None:
            return None
        fixed = self.step_cost.fixed_tokens(_FIXED_TOKENS)
        return Drafts(*self.drafter.propose(slots, fixed_tokens=fixed))

    def first_drafts(self, grammar: Grammar) -> _I32:
        """What a request under a grammar is sure to begin with; it needs no slot yet."""
        return NO_I32 if self.drafter is None else self.drafter.first(grammar)

    def uniforms(self, slots: _I32, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The random number in [0, 1) of each slot's token `places` after its next one.

        It depends on the request's seed and the token's place alone, not on the batch, on drafts
        or on preemptions.
        """
        ahead = places.astype(np.uint64)
        return uniforms(self._seed, self._seeds[slots], self._produced[slots] + ahead)

    def clear(self) -> None:
        for slot in range(self.num_slots):
            self.end(slot)
