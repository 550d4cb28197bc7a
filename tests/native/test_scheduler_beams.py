"""Beam search on forks: a beam's best continuation is committed, the others are forked from it."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from pagemill import _core

from .paged_model import VOCABULARY, PagedModel, next_token

Scored = tuple[float, list[int]]


def scores(tokens: list[int]) -> list[float]:
    """Log probabilities (not normalised) of each next token, by what stands before it."""
    random_ = random.Random(next_token(tokens) * 1009 + len(tokens))
    return [-random_.random() * 5 for _ in range(VOCABULARY)]


def best(beams: list[Scored], width: int) -> list[Scored]:
    every = [
        (score + more, [*tokens, token])
        for score, tokens in beams
        for token, more in enumerate(scores(tokens))
    ]
    return sorted(every, key=lambda beam: (-beam[0], beam[1]))[:width]


def plain_search(prompt: list[int], width: int, length: int) -> list[Scored]:
    beams = [(0.0, prompt)]
    for _ in range(length):
        beams = best(beams, width)
    return beams


class Search:
    """A beam search over the paged model: what beams score is read from their K/V."""

    def __init__(self, prompt: list[int], width: int, length: int, **sizes: int) -> None:
        self.width = width
        self.numbers = itertools.count(1)
        self.beams: dict[int, Scored] = {0: (0.0, prompt)}
        self.model = PagedModel(sizes["num_blocks"], sizes["block_size"])
        self.scheduler = _core.Scheduler(_core.SchedulerConfig(max_num_seqs=width, **sizes))
        self.scheduler.add(0, np.array(prompt, dtype=np.int32), max_tokens=length + 1)

    def step(self) -> None:
        plan = self.scheduler.plan(0.0)
        self.model.run(plan)
        rows = [self.model.owner[slot] for slot in plan.slots[plan.sampled != 0].tolist()]
        assert sorted(rows) == sorted(self.beams)  # all beams are equally long
        slots = dict(zip(rows, plan.slots[plan.sampled != 0].tolist(), strict=True))
        for number, (_, tokens) in self.beams.items():
            assert self.model.held(slots[number], len(tokens)) == tokens
        chosen = best(list(self.beams.values()), self.width)
        heirs: dict[int, list[Scored]] = {number: [] for number in rows}
        for score, tokens in chosen:
            (parent,) = [n for n, (_, before) in self.beams.items() if before == tokens[:-1]]
            heirs[parent].append((score, tokens))
        first = [heirs[number][0][1][-1] for number in rows if heirs[number]]
        self.scheduler.commit(
            plan,
            np.array(first, dtype=np.int32),
            np.array([len(heirs[number][:1]) for number in rows], dtype=np.int32),
            np.zeros(len(rows), dtype=np.uint8),
        )
        self.beams = {}
        for number in rows:
            if not heirs[number]:
                assert self.scheduler.cancel(number)  # its slot is free for another's heir
        for number in rows:
            for place, beam in enumerate(heirs[number]):
                heir = number if place == 0 else next(self.numbers)
                if place > 0:
                    refusal = self.scheduler.fork(number, heir, last_token=beam[1][-1])
                    assert refusal == _core.Refusal.NONE
                self.beams[heir] = beam
        assert self.scheduler.check_integrity() == ""


@pytest.mark.parametrize("width", [1, 2, 4, 7])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_beams_are_those_of_a_plain_search(width: int, block_size: int) -> None:
    prompt = [3, 1, 4, 1, 5, 9, 2, 6]
    length = 12
    search = Search(prompt, width, length, num_blocks=400, block_size=block_size)
    for _ in range(length):
        search.step()
    found = sorted(search.beams.values(), key=lambda beam: (-beam[0], beam[1]))
    assert found == plain_search(prompt, width, length)
    stats = search.scheduler.stats()
    if width > 1:
        assert stats["forks_shared"] == stats["forks"] > 0
        assert stats["preemptions"] == 0
    for number in list(search.beams):
        search.scheduler.cancel(number)
    assert search.scheduler.num_free_blocks() == 400
