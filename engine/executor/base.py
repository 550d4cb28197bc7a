"""The face of an executor: one plan in, the sampled tokens out.

A step has two halves. The first applies what changed in the batch (slots that started or ended,
new blocks); applying the same change twice does no harm, since a step that failed is planned
again. The second computes: forward pass, one token a sampling row, grammar states moved on;
and again for rows that run several passes, until they end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pagemill._core import Plan

from .batch import Batch
from .passes import NO_RESULT, PassResults
from .rows import Drafts, SlotStart, StepResult, StepRows
from .scores import TokenScores

_I32 = NDArray[np.int32]


class Executor(ABC):
    """Runs plans over a batch of slots. One thread at a time."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.scores: dict[int, TokenScores] = {}  # of the pass that runs, by slot

    def execute(self, plan: Plan, starts: Sequence[SlotStart]) -> StepResult:
        """Run one plan; `starts` says what its `started_slots` hold.

        What is raised leaves the batch unusable for the plan's slots until `restore`.
        """
        batch = self.batch
        for slot in plan.ended_slots.tolist():
            batch.end(slot)
        for start in starts:
            batch.start(start)
        batch.add_blocks(plan.table_slots, plan.table_indices, plan.table_blocks)
        if len(plan.copy_src):
            self.copy_blocks(plan.copy_src, plan.copy_dst)
        if plan.num_rows == 0:
            return NO_RESULT
        rows = StepRows.of(plan)
        slots = rows.sampling_slots()
        results = PassResults(len(slots))
        # A plan made while another one ran may have rows of requests that this one has ended.
        going = ~batch.finished[rows.slots]
        if not going.all():
            rows = rows.take(np.flatnonzero(going))
        results.add(np.flatnonzero(~batch.finished[slots]), self._pass(rows))
        passes = plan.passes[plan.sampled != 0]
        if (passes > 1).any():
            lengths = plan.context_lens[plan.sampled != 0]
            for done in range(1, int(passes.max())):
                left = np.flatnonzero((passes > done) & ~batch.finished[slots])
                if not len(left):
                    break
                results.add(left, self._pass(self._next_rows(slots[left], lengths[left], done)))
        return results.combined()

    def _next_rows(self, slots: _I32, lengths: _I32, done: int) -> StepRows:
        """The rows of the pass after `done` of them; `lengths` are the contexts of the first."""
        positions = np.ascontiguousarray(lengths + (done - 1), dtype=np.int32)
        places = self.batch.places(slots, positions)
        return StepRows.decoding(
            np.ascontiguousarray(slots), self.batch.last_tokens[slots], positions, places
        )

    def _pass(self, rows: StepRows) -> StepResult:
        batch = self.batch
        if not len(rows.slots):
            return NO_RESULT
        rows = rows.filled(batch.last_tokens)
        self._check(rows)
        self.scores = {}
        chosen = self.forward(rows)
        slots, drafts = rows.sampling_slots(), rows.drafts()
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < batch.vocab_size:
            raise RuntimeError("the model chose a token outside the vocabulary")
        if not len(drafts.tokens):
            counts, tokens = np.ones_like(slots), chosen
        else:
            counts = np.empty_like(slots)
            batch.grammar_rows.accept(slots, drafts.starts, drafts.tokens, chosen, counts)
            tokens = np.ascontiguousarray(chosen[drafts.places() < counts[drafts.owners()]])
        result = batch.advance(slots, counts, tokens, drafts.lengths())
        return replace(result, scores=self.scores) if self.scores else result

    def propose(self, slots: _I32) -> Drafts | None:
        """Guess at the next tokens of slots; None when the batch makes no drafts."""
        return self.batch.propose(slots)

    def restore(self, starts: Sequence[SlotStart]) -> None:
        """Put slots back to where they stood before a step that failed."""
        for start in starts:
            self.batch.start(start)

    def probe(self, plan: Plan, rows: Sequence[int]) -> None:
        """Run the forward pass of some rows of a plan whose step failed, for what it raises.

        The slots' states are not moved; the K/V written is that which the step would write.
        """
        part = StepRows.of(plan).take(rows).filled(self.batch.last_tokens)
        self._check(part)
        self.forward(part)

    def reset(self) -> None:
        """Empty the batch; the KV cache's contents no longer count."""
        self.batch.clear()

    @abstractmethod
    def forward(self, rows: StepRows) -> _I32:
        """Compute the rows, write their K/V, and return the token chosen at each position.

        Positions are those of `StepRows.positions_to_choose`; a row's choice at a position takes
        the drafts before it to be accepted. For slots with `Batch.num_scores` it fills `scores`; of
        a beam's candidates it chooses the best that goes on.
        """

    @abstractmethod
    def copy_blocks(self, sources: _I32, targets: _I32) -> None:
        """Copy whole KV blocks: rows are about to write into what others still read."""

    def counters(self) -> dict[str, int]:
        """Counters since the start, by name."""
        return {}

    def _check(self, rows: StepRows) -> None:
        ids = rows.token_ids
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.batch.vocab_size:
            raise ValueError("a plan holds a token outside the vocabulary")
