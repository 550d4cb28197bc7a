"""What the passes of one step bring, put together row by row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .rows import NO_I32, NO_U8, StepResult

_I32 = NDArray[np.int32]

NO_RESULT = StepResult(NO_I32, NO_I32, NO_U8, NO_U8, NO_I32, NO_I32)


class PassResults:
    """Results of passes over ever fewer of a step's sampling rows; a row may be in none."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows
        self._passes: list[tuple[NDArray[np.int64], StepResult]] = []

    def add(self, rows: NDArray[np.int64], result: StepResult) -> None:
        """Take the result of a pass; `rows` are its rows among the step's sampling rows."""
        self._passes.append((rows, result))

    def combined(self) -> StepResult:
        """One result for all sampling rows, each with its tokens in the order of the passes."""
        if len(self._passes) == 1 and len(self._passes[0][0]) == self._num_rows:
            return self._passes[0][1]
        owners = np.concatenate([np.repeat(rows, r.counts) for rows, r in self._passes])
        tokens = np.concatenate([result.tokens for _, result in self._passes])
        order = np.argsort(owners, kind="stable")
        ends = np.zeros(self._num_rows, dtype=np.uint8)
        marks = np.zeros(self._num_rows, dtype=np.uint8)
        forced = np.zeros(self._num_rows, dtype=np.int32)
        copied = np.zeros(self._num_rows, dtype=np.int32)
        for rows, result in self._passes:
            ends[rows] |= result.ends
            marks[rows] |= result.marks
            forced[rows] += result.forced
            copied[rows] += result.copied
        scores = {slot: one for _, r in self._passes for slot, one in r.scores.items()}
        counts = np.bincount(owners, minlength=self._num_rows).astype(np.int32)
        tokens = np.ascontiguousarray(tokens[order])
        return StepResult(tokens, counts, ends, marks, forced, copied, scores)
