"""One step: plan, execute, commit; and what happens when a step fails.

A failed step is undone (`Scheduler.abandon`) and planned again. When it fails once more, the
rows that make it fail are looked for by running parts of the plan; their requests end with
engine_error and the others go on. When scheduler or batch can't be trusted any more, both start
anew: all requests end with engine_error, the engine lives.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pagemill._core import Finish, Plan, Refusal, Scheduler

from .admission import stable_hash
from .errors import EngineReason
from .executor.base import Executor
from .executor.batch import CUT, LOOPED
from .executor.rows import SlotStart, StepResult
from .metrics import EngineCounters
from .request_book import Entry, RequestBook, Verdict

_log = logging.getLogger(__name__)

_FINISHES = {
    Finish.STOP: Verdict("stop"),
    Finish.LENGTH: Verdict("length"),
    Finish.CANCELLED: Verdict("cancelled", EngineReason.CANCELLED),
    Finish.DEADLINE: Verdict("deadline", EngineReason.DEADLINE, "the request's time is over"),
}
_STALL_S = 30.0
_MAX_RESETS_IN_A_ROW = 3


class EngineBroken(RuntimeError):
    """Starting anew did not help: the process had better end and be started again."""


@dataclass(frozen=True)
class Progress:
    """New tokens of a request (stop tokens included), and how it ended, if it did."""

    entry: Entry
    token_ids: Sequence[int]
    verdict: Verdict | None


class Stepper:
    """Owns the scheduler; drives the executor. Entries come from `book` by their number."""

    def __init__(
        self,
        make_scheduler: Callable[[], Scheduler],
        executor: Executor,
        book: RequestBook,
        counters: EngineCounters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_scheduler = make_scheduler
        self._executor = executor
        self._book = book
        self._counters = counters
        self._clock = clock
        self.scheduler = make_scheduler()
        self._slot_numbers: dict[int, int] = {}  # whose slot is it
        self._failures = 0  # of the step that is being tried
        self._resets = 0  # since the last good step
        self._moved = clock()  # when a step last did something

    def add(self, entry: Entry) -> int:
        """Queue an entry; a `Refusal` code."""
        request = entry.request
        code = self.scheduler.add(
            entry.number,
            entry.prompt,
            max_tokens=request.sampling.max_tokens,
            stop_token_ids=sorted(entry.stop_ids),
            priority=request.priority,
            salt=stable_hash(request.salt),
            salt_from=request.salt_from,
            tenant=stable_hash(request.tenant),
            tag=stable_hash(request.tag),
            arrival=entry.arrival,
            deadline=entry.deadline,
        )
        if code == Refusal.NONE:
            entry.queued = True
            self._moved = self._clock()
        return code

    def step(self) -> list[Progress] | None:
        """Run one step; None when there was nothing that could be done."""
        started = self._clock()
        try:
            plan = self.scheduler.plan(started)
        except Exception as error:
            return self._start_anew("planning", error)
        planned = self._clock()
        try:
            result = self._executor.execute(plan, self._starts(plan))
        except Exception as error:
            return self._undo(plan, error)
        executed = self._clock()
        try:
            # Read before the plan's buffers are given back.
            ended = self._ended(plan)
            num_rows, num_tokens = plan.num_rows, plan.num_tokens
            slots = np.ascontiguousarray(plan.slots[plan.sampled != 0])
            self._count_drafts(slots, result)
            progress = self._commit(plan, result)
            self._propose(slots)
        except Exception as error:
            return self._start_anew("committing", error)
        now = self._clock()
        if num_rows == 0 and not ended:
            if now - self._moved > _STALL_S and len(self._book):
                return self._start_anew("planning", RuntimeError("no request gets on"))
            return None
        self._failures = self._resets = 0
        self._moved = now
        if num_rows:
            self._counters.step(num_tokens, planned - started, executed - planned, now - executed)
        return ended + progress

    def _starts(self, plan: Plan) -> list[SlotStart]:
        for slot in plan.ended_slots.tolist():
            self._slot_numbers.pop(slot, None)
        if not len(plan.started_slots):
            return []
        first_positions = dict(
            zip(plan.slots.tolist(), plan.positions[plan.query_start[:-1]].tolist(), strict=True)
        )
        starts = []
        for slot, number in zip(
            plan.started_slots.tolist(), plan.started_ids.tolist(), strict=True
        ):
            entry = self._entry(number)
            self._slot_numbers[slot] = number
            if entry.cached_tokens is None:
                # What stands before the first computed token was found in the prefix cache.
                entry.cached_tokens = first_positions.get(slot, 0)
            starts.append(entry.start(slot))
        return starts

    def _entry(self, number: int) -> Entry:
        entry = self._book.get(number)
        if entry is None:
            raise RuntimeError(f"the scheduler names request {number}, which the core has not")
        return entry

    def _ended(self, plan: Plan) -> list[Progress]:
        """Requests that ended without a row; final even when the plan's step fails."""
        ended = []
        for number, code in zip(plan.ended_ids.tolist(), plan.ended_reasons.tolist(), strict=True):
            entry = self._book.get(number)
            if entry is not None:  # Else it was reported with an earlier plan that was undone.
                ended.append(self._end(entry, (), _FINISHES[code]))
        return ended

    def _end(self, entry: Entry, token_ids: Sequence[int], verdict: Verdict) -> Progress:
        return Progress(entry, token_ids, entry.verdict or verdict)

    def _commit(self, plan: Plan, result: StepResult) -> list[Progress]:
        if result.marks.any():
            slots = plan.slots[plan.sampled != 0]
            for slot, mark in zip(slots.tolist(), result.marks.tolist(), strict=True):
                entry = self._entry(self._slot_numbers[slot])
                entry.closed_early |= bool(mark & CUT)
                entry.loops_closed += bool(mark & LOOPED)
        commit = self.scheduler.commit(plan, result.tokens, result.counts, result.ends)
        bounds = commit.token_start.tolist()
        tokens = commit.tokens.tolist()
        progress = []
        for index, (number, finish) in enumerate(
            zip(commit.request_ids.tolist(), commit.finish.tolist(), strict=True)
        ):
            entry = self._entry(number)
            new = tokens[bounds[index] : bounds[index + 1]]
            entry.output_ids.extend(new)
            if finish:
                progress.append(self._end(entry, new, _FINISHES[finish]))
            elif new:
                progress.append(Progress(entry, new, None))
        return progress

    def _count_drafts(self, slots: NDArray[np.int32], result: StepResult) -> None:
        """Give each request its share of confirmed drafts."""
        for index in np.flatnonzero(result.forced + result.copied).tolist():
            entry = self._entry(self._slot_numbers[int(slots[index])])
            entry.forced_tokens += int(result.forced[index])
            entry.drafted_tokens += int(result.copied[index])
        self._counters.forced_tokens += int(result.forced.sum())
        self._counters.copied_tokens += int(result.copied.sum())

    def _propose(self, slots: NDArray[np.int32]) -> None:
        """Guess at what follows, for the next plan; requests that have ended take none."""
        drafts = self._executor.propose(slots) if len(slots) else None
        if drafts is not None and len(drafts.tokens):
            numbers = [self._slot_numbers[slot] for slot in slots.tolist()]
            self.scheduler.propose(np.array(numbers), drafts.starts, drafts.tokens)

    # --- steps that fail ------------------------------------------------------------------------

    def _undo(self, plan: Plan, error: Exception) -> list[Progress]:
        self._failures += 1
        self._counters.failed_steps += 1
        _log.warning(
            "a step of %d rows failed: %s",
            plan.num_rows,
            type(error).__name__,
            exc_info=self._failures == 1,
        )
        ended: list[Progress] = []
        try:
            ended = self._ended(plan)
            slots = plan.slots.tolist()
            entries = [self._entry(self._slot_numbers[slot]) for slot in slots]
            guilty: list[Entry] = []
            if self._failures > 1:
                guilty = [entries[row] for row in self._failing_rows(plan, range(len(slots)))]
                # None fails alone: the step is made smaller by its youngest request.
                guilty = guilty or entries[-1:]
            self.scheduler.abandon(plan)
            self._executor.restore(
                [entry.start(slot) for slot, entry in zip(slots, entries, strict=True)]
            )
            for entry in guilty:
                entry.verdict = Verdict(
                    "error",
                    EngineReason.ENGINE_ERROR,
                    f"a step with this request failed ({type(error).__name__})",
                )
                self.scheduler.cancel(entry.number)
            if guilty:
                self._failures = 0
        except Exception as second:
            return self._start_anew("undoing", second)
        if not slots:
            return self._start_anew("executing", error)
        return ended

    def _failing_rows(self, plan: Plan, rows: Sequence[int]) -> list[int]:
        """Rows whose forward pass raises alone, found by halving."""
        try:
            self._executor.probe(plan, rows)
        except Exception:
            if len(rows) == 1:
                return [rows[0]]
            middle = len(rows) // 2
            return self._failing_rows(plan, rows[:middle]) + self._failing_rows(plan, rows[middle:])
        return []

    def _start_anew(self, phase: str, error: Exception) -> list[Progress]:
        self._resets += 1
        self._counters.resets += 1
        _log.error("%s failed, starting anew: %s", phase, error, exc_info=error)
        if self._resets > _MAX_RESETS_IN_A_ROW:
            raise EngineBroken(f"{phase} keeps failing: {error}") from error
        self._counters.keep(self.scheduler.stats())
        self.scheduler = self._make_scheduler()
        self._executor.reset()
        self._slot_numbers.clear()
        self._failures = 0
        verdict = Verdict(
            "error", EngineReason.ENGINE_ERROR, f"the engine had to start anew ({phase} failed)"
        )
        return [self._end(entry, (), verdict) for entry in self._book if entry.queued]
