"""One step: plan, execute, commit; and what happens when a step fails.

With look-ahead the next step is planned and launched before the result of the one before it is
waited for, so that planning, committing and answering clients take no time from the executor.

A failed step is undone (`Scheduler.abandon`) and planned again. When it fails once more, the
rows that make it fail are looked for by running parts of the plan; their requests end with
engine_error and the others go on. When scheduler or batch can't be trusted any more, both start
anew: all requests end with engine_error, the engine lives.
"""

from __future__ import annotations

import collections
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
from .launch import Launched, Runner, StepSkipped
from .metrics import EngineCounters
from .request_book import Entry, RequestBook, Verdict
from .samples import SampleForks

_log = logging.getLogger(__name__)

_FINISHES = {
    Finish.STOP: Verdict("stop"),
    Finish.LENGTH: Verdict("length"),
    Finish.CANCELLED: Verdict("cancelled", EngineReason.CANCELLED),
    Finish.DEADLINE: Verdict("deadline", EngineReason.DEADLINE, "the request's time is over"),
    Finish.LEASE: Verdict("cancelled", EngineReason.CANCELLED, "the client's lease has ended"),
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
        # Launched and not committed, oldest first. With look-ahead one runs while another is
        # planned.
        self._launched: collections.deque[Launched] = collections.deque()
        self._depth = self.scheduler.max_outstanding_plans()
        self._runner = Runner(threaded=self._depth > 1)
        self._samples = SampleForks(book)

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

    def fork(self, first: Entry, other: Entry) -> int:
        """Start another sample from the prompt of the first; a `Refusal` code."""
        code = self.scheduler.fork(first.number, other.number, keep=len(first.prompt))
        if code == Refusal.UNKNOWN_PARENT:  # It has ended already: the prefix cache may help.
            return self.add(other)
        other.queued = code == Refusal.NONE
        return code

    def fork_later(self, first: Entry, other: Entry) -> None:
        """Have another sample start as soon as the first one's prompt is computed."""
        self._samples.add(first, other)

    @property
    def num_waiting(self) -> int:
        """Requests that wait to start."""
        return self.scheduler.num_waiting() + len(self._samples)

    def step(self) -> list[Progress] | None:
        """Launch what may run and commit the oldest step; None when nothing could be done."""
        ended: list[Progress] = []
        while len(self._launched) < self._depth:
            try:
                launched = self._launch(ended)
            except Exception as error:
                return ended + self._start_anew("planning", error)
            if launched is None:
                break
            self._launched.append(launched)
        if not self._launched:
            now = self._clock()
            if ended:
                self._moved = now
                return ended
            if now - self._moved > _STALL_S and len(self._book):
                return self._start_anew("planning", RuntimeError("no request gets on"))
            return None
        return ended + self._land(self._launched.popleft())

    @property
    def in_flight(self) -> bool:
        """Whether a step waits to be committed."""
        return bool(self._launched)

    def _launch(self, ended: list[Progress]) -> Launched | None:
        """Plan a step and hand it to the executor; None when the plan has no rows.

        Requests that ended without a row are added to `ended`: final even when the step fails.
        """
        started = self._clock()
        plan = self.scheduler.plan(started)
        ended += self._ended(plan)
        if plan.num_rows == 0:
            if len(plan.ended_slots):
                # Its buffers are used again by the next plan, so this one has to wait.
                error = self._runner.submit(self._executor.execute, plan, []).exception()
                if error is not None and not isinstance(error, StepSkipped):
                    raise error
            self._starts(plan)
            return None
        starts = self._starts(plan)
        slots = np.ascontiguousarray(plan.slots[plan.sampled != 0])
        spent = self._clock() - started
        result = self._runner.submit(self._executor.execute, plan, starts)
        return Launched(plan, plan.num_tokens, slots, spent, result)

    def _land(self, launched: Launched) -> list[Progress]:
        """Wait for a step's result and commit it."""
        try:
            result, execute_s = launched.result.result()
        except Exception as error:
            return self._undo(launched, error)
        started = self._clock()
        try:
            self._count_drafts(launched.slots, result)
            progress = self._commit(launched, result)
            self._propose(launched.slots)
            self._samples.fork(self)
        except Exception as error:
            return self._start_anew("committing", error)
        self._failures = self._resets = 0
        self._moved = self._clock()
        self._counters.step(launched.num_tokens, launched.plan_s, execute_s, self._moved - started)
        return progress

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

    def _holder(self, slot: int) -> Entry | None:
        """Whose slot it is; None when that request was ended while its step ran."""
        return self._book.get(self._slot_numbers[slot])

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

    def _commit(self, launched: Launched, result: StepResult) -> list[Progress]:
        for index in np.flatnonzero(result.marks).tolist():
            entry = self._holder(int(launched.slots[index]))
            if entry is not None:
                entry.closed_early |= bool(result.marks[index] & CUT)
                entry.loops_closed += bool(result.marks[index] & LOOPED)
        commit = self.scheduler.commit(launched.plan, result.tokens, result.counts, result.ends)
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
            entry = self._holder(int(slots[index]))
            if entry is not None:
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

    def _undo(self, failed: Launched, error: Exception) -> list[Progress]:
        plan = failed.plan
        self._failures += 1
        self._counters.failed_steps += 1
        _log.warning(
            "a step of %d rows failed: %s",
            plan.num_rows,
            type(error).__name__,
            exc_info=self._failures == 1,
        )
        try:
            # What was launched behind it was skipped, and goes first.
            later = list(self._launched)
            self._launched.clear()
            for launched in reversed(later):
                launched.result.exception()
                self.scheduler.abandon(launched.plan)
            slots = plan.slots.tolist()
            entries = [self._holder(slot) for slot in slots]
            guilty: list[Entry] = []
            if self._failures > 1:
                found = self._failing_rows(plan, range(len(slots)))
                guilty = [entry for row in found if (entry := entries[row]) is not None]
                # None fails alone: the step is made smaller by its youngest request.
                guilty = guilty or [entry for entry in entries if entry is not None][-1:]
            self.scheduler.abandon(plan)
            self._runner.resume()
            self._executor.restore(
                [
                    entry.start(slot)
                    for slot, entry in zip(slots, entries, strict=True)
                    if entry is not None
                ]
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
        return []

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
        for launched in self._launched:
            launched.result.exception()
        self._launched.clear()
        self._runner.resume()
        self._counters.keep(self.scheduler.stats(), self.scheduler.prefix_stats())
        self.scheduler = self._make_scheduler()
        self._executor.reset()
        self._slot_numbers.clear()
        self._failures = 0
        verdict = Verdict(
            "error", EngineReason.ENGINE_ERROR, f"the engine had to start anew ({phase} failed)"
        )
        return [self._end(entry, (), verdict) for entry in self._book if entry.queued]
