"""From a regex with marks to the smallest byte automaton with counters, by Outlines.

Outlines compiles the regex over the 256 single bytes, marks included. Then the marks are taken
out: an edge behind a mark becomes an edge with a counter operation. Where that would leave two
different edges for one byte, the counters can't be told apart and `Ambiguous` is raised.

`lowering.construct` makes the same tables from terms, without a regex.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from outlines_core import Index, Vocabulary
from pagemill._core import Ambiguous, minimal_table

from .lowering.emit import ELIDE, Lowered, marked_op

_END = 0
_MARK = 1
_COMMA = 0x2C
_FIRST_TEXT_BYTE = 0x20
# End-of-sequence of the byte vocabulary; Outlines writes it on final states.
_EOS = 256


def build(lowered: Lowered) -> tuple[bytes, int]:
    """Return the table of the smallest automaton and its number of states.

    Ambiguous, TooManyStates, or ValueError from Outlines.
    """
    vocabulary = Vocabulary(_EOS, {bytes([byte]): [byte] for byte in range(256)})
    # Outlines' automaton prefers the first alternative that matches and drops longer ones behind
    # it; behind a common last byte all of them live on.
    index = Index(f"(?:{lowered.regex})\\x00", vocabulary)
    transitions = index.get_transitions()
    finals = index.get_final_states()
    numbers = {state: number for number, state in enumerate(transitions.keys() | set(finals))}
    next_state = np.full((len(numbers), 256), -1, dtype=np.int32)
    for state, edges in transitions.items():
        row = next_state[numbers[state]]
        for byte, to in edges.items():
            if byte != _EOS:
                row[byte] = numbers[to]
    final = next_state[:, _END] >= 0
    next_state[:, _END] = -1
    start = numbers[index.get_initial_state()]
    ops = np.zeros_like(next_state)
    if lowered.marked:
        next_state, ops = _Folder(next_state, final).fold(start)
    listed = [(op.counter, int(op.kind), op.limit) for op in lowered.ops]
    return minimal_table(next_state, ops, final, start, listed)


class _Folder:
    """Takes the marks out of an automaton."""

    def __init__(self, next_state: NDArray[np.int32], final: NDArray[np.bool_]) -> None:
        self.raw = next_state
        self.final = final
        self.next = np.full_like(next_state, -1)
        self.ops = np.zeros_like(next_state)
        self.done = np.zeros(len(final), dtype=np.bool_)

    def fold(self, start: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        pending = [start]
        while pending:
            state = pending.pop()
            if not self.done[state]:
                self.edges(state)
                targets = set(self.next[state].tolist())
                pending.extend(to for to in targets if to >= 0 and not self.done[to])
        return self.next, self.ops

    def edges(self, state: int) -> None:
        """Fill in the edges of one state."""
        if self.done[state]:
            return
        self.done[state] = True
        raw = self.raw[state]
        self.next[state, _FIRST_TEXT_BYTE:] = raw[_FIRST_TEXT_BYTE:]
        if raw[_MARK] >= 0:
            for high in range(1, ELIDE):
                middle = self.raw[raw[_MARK], high]
                if middle < 0:
                    continue
                for low in range(1, ELIDE):
                    behind = self.raw[middle, low]
                    if behind >= 0:
                        self.add(state, int(behind), 1 + marked_op(high, low))
        if raw[ELIDE] >= 0:
            self.elide(state, int(raw[ELIDE]))

    def add(self, state: int, behind: int, op: int) -> None:
        """The edges behind a mark become edges of `state` that carry its operation."""
        edges = self.raw[behind]
        if self.final[behind] or (edges[:_FIRST_TEXT_BYTE] >= 0).any():
            raise Ambiguous
        self.put(state, edges, np.where(edges >= 0, op, 0).astype(np.int32))

    def elide(self, state: int, behind: int) -> None:
        """`state` continues like `behind`, and like what follows the comma there."""
        self.edges(behind)
        around = self.next[behind].copy()
        after = int(around[_COMMA])
        around[_COMMA] = -1
        self.put(state, around, self.ops[behind])
        if after >= 0:
            self.edges(after)
            self.put(state, self.next[after], self.ops[after])

    def put(self, state: int, edges: NDArray[np.int32], ops: NDArray[np.int32]) -> None:
        new = edges >= 0
        if (self.next[state][new] >= 0).any():
            raise Ambiguous
        self.next[state][new] = edges[new]
        self.ops[state][new] = ops[new]
