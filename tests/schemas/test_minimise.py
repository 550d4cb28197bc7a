"""Minimal automata against a plain refinement of states that do differently."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pagemill._core import ByteDfa, minimal_table

LETTERS = "abcd"


def random_automaton(random_: random.Random, n: int) -> tuple[np.ndarray, np.ndarray]:
    """[n, 256] next states over few letters, -1 for none, and which are final."""
    next_state = np.full((n, 256), -1, dtype=np.int32)
    for state in range(n):
        for letter in LETTERS:
            if random_.random() < 0.6:
                # Chains and near copies of each other, so that many states are equal.
                near = state + random_.randint(-2, 3)
                next_state[state, ord(letter)] = near % n if random_.random() < 0.7 else -1
    final = np.array([random_.random() < 0.2 for _ in range(n)])
    final[random_.randrange(n)] = True
    return next_state, final


def plain_size(next_state: np.ndarray, final: np.ndarray) -> int:
    """The number of states of the smallest partial automaton, by as many rounds as it takes."""
    n = len(final)
    alive = set(np.flatnonzero(final).tolist())
    while more := {s for s in range(n) if s not in alive and alive & set(next_state[s].tolist())}:
        alive |= more
    reached, pending = {0}, [0]
    while pending:
        for to in set(next_state[pending.pop()].tolist()) & alive - reached:
            reached.add(to)
            pending.append(to)
    states = sorted(reached & alive)
    part = {state: int(final[state]) for state in states}
    while True:
        signs = {
            s: (part[s], tuple(part.get(int(next_state[s, ord(c)]), -1) for c in LETTERS))
            for s in states
        }
        numbers = {sign: number for number, sign in enumerate(dict.fromkeys(signs.values()))}
        refined = {s: numbers[signs[s]] for s in states}
        if len(numbers) == len(set(part.values())):
            return len(numbers)
        part = refined


@pytest.mark.parametrize("seed", range(300))
def test_as_small_as_it_gets_and_the_same_language(seed: int) -> None:
    random_ = random.Random(seed)
    next_state, final = random_automaton(random_, random_.randint(1, 60))
    size = plain_size(next_state, final) if final.any() else 0
    try:
        table, states = minimal_table(next_state, np.zeros_like(next_state), final, 0, [])
        dfa = ByteDfa.from_bytes(table)
    except ValueError:  # a table of no states is none
        assert size == 0
        return
    assert states == size
    for _ in range(200):
        word = "".join(random_.choices(LETTERS, k=random_.randint(0, 8)))
        state = 0
        for letter in word:
            state = next_state[state, ord(letter)] if state >= 0 else -1
        assert dfa.accepts(word.encode()) == bool(state >= 0 and final[state])
