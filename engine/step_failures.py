"""What is done about a step that fails.

It is undone (`Scheduler.abandon`) and planned again. When it fails once more, the rows that make
it fail are looked for by running parts of the plan; their requests end with engine_error and the
others go on. When scheduler or batch can't be trusted any more, both start anew.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pagemill._core import Plan, Scheduler

from .errors import EngineReason
from .executor.base import Executor
from .launch import Launched, Runner
from .metrics import EngineCounters
from .request_book import Entry, Verdict

_log = logging.getLogger(__name__)

_MAX_RESETS_IN_A_ROW = 3


class EngineBroken(RuntimeError):
    """Starting anew did not help: the process had better end and be started again."""


class StepFailures:
    """Counts failures of the step that is being tried, and puts its executor right again."""

    def __init__(self, executor: Executor, runner: Runner, counters: EngineCounters) -> None:
        self._executor = executor
        self._runner = runner
        self._counters = counters
        self._failures = 0  # of the step that is being tried
        self._resets = 0  # since the last good step

    def step_went_well(self) -> None:
        self._failures = self._resets = 0

    def undo(
        self,
        scheduler: Scheduler,
        failed: Launched,
        later: Sequence[Launched],
        entries: Sequence[Entry | None],
        error: Exception,
    ) -> None:
        """Undo a step and those launched behind it; `entries` are those of its rows.

        What is raised leaves scheduler and batch unfit for use.
        """
        plan = failed.plan
        self._failures += 1
        self._counters.failed_steps += 1
        _log.warning(
            "a step of %d rows failed: %s",
            plan.num_rows,
            type(error).__name__,
            exc_info=self._failures == 1,
        )
        # What was launched behind it was skipped, and goes first.
        for launched in reversed(later):
            launched.result.exception()
            scheduler.abandon(launched.plan)
        slots = plan.slots.tolist()
        guilty = self._guilty(plan, entries) if self._failures > 1 else []
        scheduler.abandon(plan)
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
            scheduler.cancel(entry.number)
        if guilty:
            self._failures = 0

    def start_anew(self, phase: str, error: Exception, launched: Sequence[Launched]) -> Verdict:
        """Empty the executor's batch; the verdict on the requests that were on their way."""
        self._resets += 1
        self._counters.resets += 1
        _log.error("%s failed, starting anew: %s", phase, error, exc_info=error)
        if self._resets > _MAX_RESETS_IN_A_ROW:
            raise EngineBroken(f"{phase} keeps failing: {error}") from error
        for one in launched:
            one.result.exception()
        self._runner.resume()
        self._executor.reset()
        self._failures = 0
        return Verdict(
            "error", EngineReason.ENGINE_ERROR, f"the engine had to start anew ({phase} failed)"
        )

    def _guilty(self, plan: Plan, entries: Sequence[Entry | None]) -> list[Entry]:
        found = self._failing_rows(plan, range(len(entries)))
        guilty = [entry for row in found if (entry := entries[row]) is not None]
        # None fails alone: the step is made smaller by its youngest request.
        return guilty or [entry for entry in entries if entry is not None][-1:]

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
