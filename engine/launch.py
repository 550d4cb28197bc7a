"""Steps on their way: planned, handed to the executor, not committed yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from pagemill._core import Plan

from .executor.rows import StepResult

P = ParamSpec("P")
T = TypeVar("T")


class StepSkipped(RuntimeError):
    """The step before this one failed: what this one builds on never came to be."""


class Runner:
    """Makes the executor's calls one after the other: at once, or on a thread of its own.

    After a call that raised, the calls behind it raise StepSkipped until `resume`.
    """

    def __init__(self, threaded: bool) -> None:
        self._thread = ThreadPoolExecutor(1, "executor") if threaded else None
        self._failed = False

    def submit(
        self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[tuple[T, float]]:
        """Make a call; the future holds what it returned and the seconds that it took."""

        def run() -> tuple[T, float]:
            if self._failed:
                raise StepSkipped
            started = time.perf_counter()
            try:
                return call(*args, **kwargs), time.perf_counter() - started
            except BaseException:
                self._failed = True
                raise

        if self._thread is not None:
            return self._thread.submit(run)
        future: Future[tuple[T, float]] = Future()
        try:
            future.set_result(run())
        except Exception as error:
            future.set_exception(error)
        return future

    def resume(self) -> None:
        """Go on after a failure; nothing may be on its way."""
        self._failed = False


@dataclass(frozen=True)
class Launched:
    """A plan that the executor runs, and what is needed of it when its result is there."""

    plan: Plan
    num_tokens: int
    slots: NDArray[np.int32]  # of the rows that sample
    chunks: NDArray[np.int32]  # of the others, in the midst of their prompt
    plan_s: float
    result: Future[tuple[StepResult, float]]
