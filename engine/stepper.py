"""One step: plan, execute, commit.

With look-ahead the next step is planned and launched before the result of the one before it is
waited for, so that planning, committing and answering clients take no time from the executor.

A step that fails is undone and planned again, see step_failures.py. When scheduler or batch can't
be trusted any more, both start anew: all requests end with engine_error, the engine lives.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from pagemill._core import Finish, Plan, Refusal, Scheduler

from .admission import client_number, stable_hash
from .beams import Beams
from .errors import EngineReason
from .executor.base import Executor
from .executor.batch import CUT, LOOPED
from .executor.rows import StepResult
from .executor.scores import TokenScores
from .launch import Launched, Runner, StepSkipped
from .metrics import EngineCounters
from .page_sorter import PageSorter
from .protocol import TokenLogprob
from .request_book import Entry, Progress, RequestBook, Verdict
from .samples import SampleForks
from .slots import Slots
from .step_failures import StepFailures

LEASE_ENDED = Verdict("cancelled", EngineReason.CANCELLED, "the client's lease has ended")
_FINISHES = {
    Finish.STOP: Verdict("stop"),
    Finish.LENGTH: Verdict("length"),
    Finish.CANCELLED: Verdict("cancelled", EngineReason.CANCELLED),
    Finish.DEADLINE: Verdict("deadline", EngineReason.DEADLINE, "the request's time is over"),
    Finish.LEASE: LEASE_ENDED,
}
_STALL_S = 30.0


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
        self._slots = Slots(book)
        self._moved = clock()  # when a step last did something
        # Launched and not committed, oldest first. With look-ahead one runs while another is
        # planned.
        self._launched: collections.deque[Launched] = collections.deque()
        self._depth = self.scheduler.max_outstanding_plans()
        self._runner = Runner(threaded=self._depth > 1)
        self._failing = StepFailures(executor, self._runner, counters)
        self._sorter = PageSorter(book)
        self._samples = SampleForks(book)
        self._beams = Beams(book)

    def add(self, entry: Entry, *, admitted: bool = False) -> int:
        """Queue an entry where it stands; a `Refusal` code.

        `admitted`: it is part of a request that was, so the limits of the queue don't count.
        """
        request = entry.request
        tokens = entry.prompt
        if entry.output_ids:
            tokens = np.concatenate([tokens, np.array(entry.output_ids, dtype=np.int32)])
        code = self.scheduler.add(
            entry.number,
            tokens,
            max_tokens=request.sampling.max_tokens - len(entry.output_ids),
            # A beam's end is the search's to decide.
            stop_token_ids=() if entry.search is not None else sorted(entry.stop_ids),
            priority=request.priority,
            salt=stable_hash(request.salt),
            salt_from=request.salt_from,
            tenant=stable_hash(request.tenant),
            tag=stable_hash(request.tag),
            client=client_number(entry.client),
            arrival=entry.arrival,
            deadline=entry.deadline,
            multi_step=not request.sampling.num_scores,  # scores are told of one token a step
            admitted=admitted,
        )
        if code == Refusal.NONE:
            entry.queued = True
            self._sorter.add(entry)
            self._propose_first(entry)
            self._moved = self._clock()
        return code

    def renew(self, client: bytes, until: float) -> None:
        """Let a client's requests live until then (on the stepper's clock), or until renewed."""
        self.scheduler.renew(client_number(client), until)

    def fork(self, parent: Entry, child: Entry) -> None:
        """Start an entry whose output is its parent's so far but for the last token, or empty."""
        output = child.output_ids
        code = self.scheduler.fork(
            parent.number,
            child.number,
            keep=len(child.prompt) + len(output),
            last_token=output[-1] if output else -1,
        )
        if code == Refusal.UNKNOWN_PARENT:  # It has ended already: the prefix cache may help.
            code = self.add(child, admitted=True)
        if code != Refusal.NONE:
            raise RuntimeError(f"the scheduler refused a fork ({code})")
        child.queued = True

    def cancel(self, entry: Entry, verdict: Verdict) -> None:
        """End an entry that is queued; it is reported by a later step."""
        entry.verdict = entry.verdict or verdict
        if entry.search is not None:
            self._beams.cancel(entry.search, entry.verdict)
        else:
            self.scheduler.cancel(entry.number)

    def fork_later(self, first: Entry, other: Entry) -> None:
        """Have another sample start as soon as the first one's prompt is computed."""
        self._samples.add(first, other)

    @property
    def num_waiting(self) -> int:
        """Requests that wait to start."""
        return self.scheduler.num_waiting() + len(self._samples)

    def step(self) -> list[Progress] | None:
        """Launch what may run and commit the oldest step; None when nothing could be done."""
        ended = self._beams.end_cancelled(self)
        while len(self._launched) < self._depth:
            try:
                self._samples.fork(self)
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
            self._slots.starts(plan)
            return None
        starts = self._slots.starts(plan)
        if starts:
            self._sorter.fill()
        slots = np.ascontiguousarray(plan.slots[plan.sampled != 0])
        chunks = np.ascontiguousarray(plan.slots[plan.sampled == 0])
        spent = self._clock() - started
        result = self._runner.submit(self._executor.execute, plan, starts)
        return Launched(plan, plan.num_tokens, slots, chunks, spent, result)

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
            self._propose(np.concatenate([launched.slots, launched.chunks]))
            progress += self._beams.advance(self)
        except Exception as error:
            return self._start_anew("committing", error)
        self._failing.step_went_well()
        self._moved = self._clock()
        self._counters.step(launched.num_tokens, launched.plan_s, execute_s, self._moved - started)
        return progress

    def _ended(self, plan: Plan) -> list[Progress]:
        """Requests that ended without a row; final even when the plan's step fails."""
        ended = []
        for number, code in zip(plan.ended_ids.tolist(), plan.ended_reasons.tolist(), strict=True):
            entry = self._book.get(number)
            if entry is None:
                continue  # It was reported with an earlier plan that was undone.
            if entry.search is not None:
                ended += self._beams.end(self, entry.search, entry.verdict or _FINISHES[code])
            else:
                ended.append(self._end(entry, (), _FINISHES[code]))
        return ended

    def _end(
        self,
        entry: Entry,
        token_ids: Sequence[int],
        verdict: Verdict,
        logprobs: tuple[TokenLogprob, ...] = (),
    ) -> Progress:
        return Progress(entry, token_ids, entry.verdict or verdict, logprobs)

    def _commit(self, launched: Launched, result: StepResult) -> list[Progress]:
        for index in np.flatnonzero(result.marks).tolist():
            entry = self._slots.holder(int(launched.slots[index]))
            if entry is not None:
                entry.closed_early |= bool(result.marks[index] & CUT)
                entry.loops_closed += bool(result.marks[index] & LOOPED)
        commit = self.scheduler.commit(launched.plan, result.tokens, result.counts, result.ends)
        scored = {self._slots.number(slot): scores for slot, scores in result.scores.items()}
        bounds = commit.token_start.tolist()
        tokens = commit.tokens.tolist()
        progress = []
        for index, (number, finish) in enumerate(
            zip(commit.request_ids.tolist(), commit.finish.tolist(), strict=True)
        ):
            entry = self._book.named(number)
            new = tokens[bounds[index] : bounds[index + 1]]
            entry.output_ids.extend(new)
            scores = scored.get(number)
            if entry.search is not None:
                if scores is not None and new:
                    self._beams.hear(entry, scores)
                continue
            logprobs = _logprobs(entry, new, scores)
            if finish:
                progress.append(self._end(entry, new, _FINISHES[finish], logprobs))
            elif new:
                progress.append(Progress(entry, new, None, logprobs))
        return progress

    def _count_drafts(self, slots: NDArray[np.int32], result: StepResult) -> None:
        """Give each request its share of confirmed drafts."""
        for index in np.flatnonzero(result.forced + result.copied).tolist():
            entry = self._slots.holder(int(slots[index]))
            if entry is not None:
                entry.forced_tokens += int(result.forced[index])
                entry.drafted_tokens += int(result.copied[index])
        self._counters.forced_tokens += int(result.forced.sum())
        self._counters.copied_tokens += int(result.copied.sum())

    def _propose_first(self, entry: Entry) -> None:
        """What an entry is sure to begin with rides in its prompt's last chunk."""
        if entry.grammar is None or entry.output_ids or entry.request.sampling.num_scores:
            return
        tokens = self._executor.batch.first_drafts(entry.grammar)
        if len(tokens):
            bounds = np.array([0, len(tokens)], dtype=np.int32)
            self.scheduler.propose(np.array([entry.number]), bounds, tokens)

    def _propose(self, slots: NDArray[np.int32]) -> None:
        """Guess at what follows, for the next plan; requests that have ended take none.

        Of requests in the midst of their prompt too: its last chunk takes drafts along.
        """
        drafts = self._executor.propose(slots) if len(slots) else None
        if drafts is not None and len(drafts.tokens):
            numbers = [self._slots.number(slot) for slot in slots.tolist()]
            self.scheduler.propose(np.array(numbers), drafts.starts, drafts.tokens)

    # --- steps that fail (step_failures.py) -----------------------------------------------------

    def _undo(self, failed: Launched, error: Exception) -> list[Progress]:
        later = list(self._launched)
        self._launched.clear()
        try:
            entries = self._slots.holders(failed.plan.slots.tolist())
            self._failing.undo(self.scheduler, failed, later, entries, error)
        except Exception as second:
            return self._start_anew("undoing", second)
        return []

    def _start_anew(self, phase: str, error: Exception) -> list[Progress]:
        verdict = self._failing.start_anew(phase, error, self._launched)
        self._launched.clear()
        self._counters.keep(self.scheduler.stats(), self.scheduler.prefix_stats())
        self.scheduler = self._make_scheduler()
        self._slots.clear()
        ended = self._beams.end_all(self, verdict)
        return ended + [self._end(entry, (), verdict) for entry in self._book if entry.queued]


def _logprobs(
    entry: Entry, tokens: Sequence[int], scores: TokenScores | None
) -> tuple[TokenLogprob, ...]:
    if scores is None or not tokens:
        return ()
    count = entry.request.sampling.logprobs
    top = tuple(zip(scores.ids[:count], scores.logprobs[:count], strict=True))
    return (TokenLogprob(tokens[0], scores.taken, top),)
