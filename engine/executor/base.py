"""The face of an executor: one plan in, the sampled tokens out.

A step has two halves. The first applies what changed in the batch (slots that started or ended,
new blocks); applying the same change twice does no harm, since a step that failed is planned
again. The second computes: forward pass, one token a sampling row, grammar states moved on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pagemill._core import Grammar, Plan

from ..protocol import SamplingParams
from .batch import Batch

_I32 = NDArray[np.int32]


@dataclass(frozen=True)
class SlotStart:
    """A request that enters the batch, new or resumed after preemption.

    `output_ids` are the tokens that it has produced already: its grammar is moved on by them and
    its generator's position follows from their number.
    """

    slot: int
    sampling: SamplingParams
    grammar: Grammar | None
    output_ids: Sequence[int]


@dataclass(frozen=True)
class StepRows:
    """The computing part of a plan (see `_core.Plan`), or some of its rows."""

    slots: _I32
    query_start: _I32
    context_lens: _I32
    sampled: NDArray[np.uint8]
    token_ids: _I32
    positions: _I32
    slot_mapping: _I32

    @classmethod
    def of(cls, plan: Plan) -> StepRows:
        return cls(
            plan.slots,
            plan.query_start,
            plan.context_lens,
            plan.sampled,
            plan.token_ids,
            plan.positions,
            plan.slot_mapping,
        )

    def take(self, rows: Sequence[int]) -> StepRows:
        """Return the same for a subset of the rows."""
        index = np.asarray(rows, dtype=np.int64)
        lengths = np.diff(self.query_start)[index]
        start = np.zeros(len(index) + 1, dtype=np.int32)
        np.cumsum(lengths, out=start[1:])
        spans = [np.arange(self.query_start[row], self.query_start[row + 1]) for row in index]
        tokens = np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)
        return StepRows(
            np.ascontiguousarray(self.slots[index]),
            start,
            np.ascontiguousarray(self.context_lens[index]),
            np.ascontiguousarray(self.sampled[index]),
            np.ascontiguousarray(self.token_ids[tokens]),
            np.ascontiguousarray(self.positions[tokens]),
            np.ascontiguousarray(self.slot_mapping[tokens]),
        )

    def sampling_slots(self) -> _I32:
        """Slots of the rows that sample, in row order."""
        return np.ascontiguousarray(self.slots[self.sampled != 0])

    def last_tokens(self) -> _I32:
        """Index into the flat tokens of the last token of each sampling row."""
        return np.ascontiguousarray(self.query_start[1:][self.sampled != 0] - 1)


@dataclass(frozen=True)
class StepResult:
    """What `Scheduler.commit` wants: for each sampling row its tokens, their count, its end.

    `marks` (CUT, LOOPED of `batch`) says what closing did to the row's record.
    """

    tokens: _I32
    counts: _I32
    ends: NDArray[np.uint8]
    marks: NDArray[np.uint8]


class Executor(ABC):
    """Runs plans over a batch of slots. One thread at a time."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def execute(self, plan: Plan, starts: Sequence[SlotStart]) -> StepResult:
        """Run one plan; `starts` says what its `started_slots` hold.

        What is raised leaves the batch unusable for the plan's slots until `restore`.
        """
        batch = self.batch
        for slot in plan.ended_slots.tolist():
            batch.end(slot)
        for start in starts:
            batch.start(start.slot, start.sampling, start.grammar, start.output_ids)
        batch.add_blocks(plan.table_slots, plan.table_indices, plan.table_blocks)
        if len(plan.copy_src):
            self.copy_blocks(plan.copy_src, plan.copy_dst)
        if plan.num_rows == 0:
            return StepResult(_NO_I32, _NO_I32, _NO_U8, _NO_U8)
        rows = StepRows.of(plan)
        self._check(rows)
        tokens = self.forward(rows)
        slots = rows.sampling_slots()
        if len(slots) and not 0 <= tokens.min() <= tokens.max() < batch.vocab_size:
            raise RuntimeError("the model chose a token outside the vocabulary")
        ends = batch.advance(slots, tokens)
        return StepResult(tokens, np.ones_like(slots), ends, batch.take_marks(slots))

    def restore(self, starts: Sequence[SlotStart]) -> None:
        """Put slots back to where they stood before a step that failed."""
        for start in starts:
            self.batch.start(start.slot, start.sampling, start.grammar, start.output_ids)

    def probe(self, plan: Plan, rows: Sequence[int]) -> None:
        """Run the forward pass of some rows of a plan whose step failed, for what it raises.

        The slots' states are not moved; the K/V written is that which the step would write.
        """
        part = StepRows.of(plan).take(rows)
        self._check(part)
        self.forward(part)

    def reset(self) -> None:
        """Empty the batch; the KV cache's contents no longer count."""
        self.batch.clear()

    @abstractmethod
    def forward(self, rows: StepRows) -> _I32:
        """Compute the rows, write their K/V, and return the next token of each sampling row."""

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


_NO_I32: _I32 = np.zeros(0, dtype=np.int32)
_NO_U8: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
