"""What an executor is given for a step, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from pagemill._core import Grammar, PageSpans, Plan

from ..protocol import SamplingParams
from .scores import TokenScores

_I32 = NDArray[np.int32]

NO_I32: _I32 = np.zeros(0, dtype=np.int32)
NO_U8: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)


@dataclass(frozen=True)
class SlotStart:
    """A request that enters the batch, new or resumed after preemption.

    `output_ids` are the tokens that it has produced already: its grammar is moved on by them and
    its generator's position follows from their number. Drafts are copied from `prompt`, and from
    `page`, the part of it that values stand in. After one of `stop_ids` the slot computes nothing
    more. Verbatim strings of the grammar are spans of `verbatim`.
    """

    slot: int
    sampling: SamplingParams
    grammar: Grammar | None
    output_ids: Sequence[int]
    prompt: _I32 = field(default_factory=lambda: NO_I32)
    page: bytes = b""
    stop_ids: frozenset[int] = frozenset()
    verbatim: PageSpans | None = None


@dataclass(frozen=True)
class StepRows:
    """The computing part of a plan (see `_core.Plan`), or some of its rows."""

    slots: _I32
    query_start: _I32
    context_lens: _I32
    sampled: NDArray[np.uint8]
    num_drafts: _I32
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
            plan.num_drafts,
            plan.token_ids,
            plan.positions,
            plan.slot_mapping,
        )

    @classmethod
    def decoding(
        cls, slots: _I32, token_ids: _I32, positions: _I32, slot_mapping: _I32
    ) -> StepRows:
        """Rows of one token that sample, without drafts."""
        count = len(slots)
        return cls(
            slots,
            np.arange(count + 1, dtype=np.int32),
            np.ascontiguousarray(positions + 1),
            np.ones(count, dtype=np.uint8),
            np.zeros(count, dtype=np.int32),
            token_ids,
            positions,
            slot_mapping,
        )

    def filled(self, last_tokens: _I32) -> StepRows:
        """Return the same with each placeholder (-1) replaced by `last_tokens` of its slot."""
        open_ = self.token_ids < 0
        if not open_.any():
            return self
        owners = np.repeat(self.slots, np.diff(self.query_start))
        return replace(self, token_ids=np.where(open_, last_tokens[owners], self.token_ids))

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> StepRows:
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
            np.ascontiguousarray(self.num_drafts[index]),
            np.ascontiguousarray(self.token_ids[tokens]),
            np.ascontiguousarray(self.positions[tokens]),
            np.ascontiguousarray(self.slot_mapping[tokens]),
        )

    def sampling_slots(self) -> _I32:
        """Slots of the rows that sample, in row order."""
        return np.ascontiguousarray(self.slots[self.sampled != 0])

    def positions_to_choose(self) -> _I32:
        """Index into the flat tokens of those after which one is chosen.

        For each sampling row its last token before the drafts, then each draft.
        """
        ends = self.query_start[1:][self.sampled != 0]
        drafts = self.num_drafts[self.sampled != 0]
        if not drafts.any():
            return np.ascontiguousarray(ends - 1)
        return _ranges(ends - 1 - drafts, drafts + 1)

    def drafts(self) -> Drafts:
        """The drafts of the sampling rows."""
        lengths = self.num_drafts[self.sampled != 0]
        starts = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=starts[1:])
        if not starts[-1]:
            return Drafts(starts, NO_I32)
        ends = self.query_start[1:][self.sampled != 0]
        return Drafts(
            starts, np.ascontiguousarray(self.token_ids[_ranges(ends - lengths, lengths)])
        )


@dataclass(frozen=True)
class Drafts:
    """Drafts of sampling rows, flat: those of row i are `tokens[starts[i] : starts[i + 1]]`.

    A row with d drafts has d + 1 positions at which a token is chosen.
    """

    starts: _I32
    tokens: _I32

    def lengths(self) -> _I32:
        return np.diff(self.starts)

    def owners(self) -> NDArray[np.int64]:
        """The row of each position."""
        return np.repeat(np.arange(len(self.starts) - 1), self.lengths() + 1)

    def places(self) -> NDArray[np.int64]:
        """How many drafts of its row stand before each position."""
        first = (self.starts[:-1] + np.arange(len(self.starts) - 1)).astype(np.int64)
        owners = self.owners()
        return np.arange(len(owners)) - first[owners]

    def take(self, rows: NDArray[np.bool_]) -> Drafts:
        """Return the drafts of some of the rows."""
        lengths = self.lengths()[rows]
        starts = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=starts[1:])
        kept = np.repeat(rows, self.lengths())
        return Drafts(starts, np.ascontiguousarray(self.tokens[kept]))


@dataclass(frozen=True)
class Wanted:
    """Which logits a step's positions need (`GrammarRows.find_wanted`).

    A position has a settled token or a line, its row of logits; `places` are the lines' tokens by
    their index in the flat batch. Of the last `num_sparse` lines only `outputs` are wanted.
    """

    settled: _I32
    lines: _I32
    places: _I32
    num_sparse: int
    outputs: _I32

    @classmethod
    def all(cls, places: _I32) -> Wanted:
        """Every position's whole row."""
        lines = np.arange(len(places), dtype=np.int32)
        return cls(np.full_like(places, -1), lines, places, 0, NO_I32)


def _ranges(starts: _I32, lengths: _I32) -> _I32:
    """The numbers of several ranges, one after the other."""
    before = np.cumsum(lengths) - lengths
    shift = np.repeat(starts - before, lengths)
    return np.ascontiguousarray(shift + np.arange(len(shift)), dtype=np.int32)


@dataclass(frozen=True)
class StepResult:
    """What `Scheduler.commit` wants: for each sampling row its tokens, their count, its end.

    `marks` (CUT, LOOPED of `batch`) says what closing did to the row's record; `forced` and
    `copied` how many of its tokens were confirmed drafts of either kind. `scores`, by slot, are of
    the rows whose requests ask for them; such a row has one token.
    """

    tokens: _I32
    counts: _I32
    ends: NDArray[np.uint8]
    marks: NDArray[np.uint8]
    forced: _I32
    copied: _I32
    scores: dict[int, TokenScores] = field(default_factory=dict)
