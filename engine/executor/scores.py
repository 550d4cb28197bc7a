"""Log probabilities of tokens, for requests that ask for them and for beam search."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TokenScores:
    """Log probabilities at one position: of the token that was taken, and of the best legal ones.

    They are the model's over the whole vocabulary, before grammar, temperature and top-p. The best
    ones stand in descending order, the lower id first among equals.
    """

    taken: float
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


def ranked(ids: NDArray[np.int64], logprobs: NDArray[np.float64]) -> NDArray[np.int64]:
    """The order in which candidates stand; those of minus infinity are left out."""
    order = np.lexsort((ids, -logprobs))
    return order[logprobs[order] > -np.inf]


def best_that_goes_on(ids: Sequence[int], stop_ids: Collection[int]) -> int:
    """The first candidate that doesn't end the text; the first of all when each does."""
    for token in ids:
        if token not in stop_ids:
            return token
    return ids[0]
