"""Small lives of a pair of schedulers, stepped by hand."""

from __future__ import annotations

import numpy as np
from pagemill import _core

from .plain_scheduler import Sizes
from .side_by_side import SideBySide

SIXTEEN = list(range(1, 17))


def pair(**sizes: int | float | bool | str) -> SideBySide:
    """Two schedulers of 16 blocks of 4 tokens, or as asked."""
    defaults: dict[str, int | float | bool | str] = {
        "num_blocks": 16,
        "block_size": 4,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 64,
        "max_model_len": 64,
    }
    return SideBySide(Sizes(**(defaults | sizes)))  # type: ignore[arg-type]


def one_each(plan: _core.Plan, token: int = 1) -> list[tuple[list[int], bool]]:
    """An outcome of one token for each sampling row."""
    return [([token], False)] * int(plan.sampled.sum())


def step(it: SideBySide, now: float = 0.0, token: int = 1) -> list[tuple[int, list[int], int]]:
    """Plan and commit, a token each."""
    return it.commit(one_each(it.plan(now), token))


def computed_tokens(plan: _core.Plan) -> list[int]:
    """Query tokens of each row."""
    return np.diff(plan.query_start).tolist()
