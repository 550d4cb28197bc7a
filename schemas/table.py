"""The serialised byte automaton: what crosses from the schema compiler to the engine.

All integers are little-endian.

    "PMDF"  u32 version  u32 states  u32 classes  u32 ops  u32 start
    u8  class of each of the 256 bytes
    ops x (u8 counter, u8 kind, u16 limit)       kind 1: count below limit, 2: close at or above
    u8  1 for each final state
    u16 next state [states, classes], 0xFFFF for none
    u16 operation  [states, classes], 0 for none, else 1 + its index; absent when there are no ops

`csrc/byte_dfa.cc` reads it and checks everything.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .lowering.emit import Op

TABLE_VERSION = 1
MAX_STATES = 65534
_MAGIC = b"PMDF"
_NO_EDGE = 0xFFFF


@dataclass(frozen=True)
class Automaton:
    """A dense automaton: `next` and `edge_ops` are int32 [states, 256].

    `next` is -1 where there is no edge; `edge_ops` is 0 or 1 + an index into `ops`.
    """

    start: int
    next: NDArray[np.int32]
    edge_ops: NDArray[np.int32]
    final: NDArray[np.bool_]
    ops: tuple[Op, ...]


def encode(automaton: Automaton) -> bytes:
    """Return the table; bytes that no state tells apart share a class."""
    states = len(automaton.final)
    if not 0 < states <= MAX_STATES:
        raise ValueError(f"{states} states, a table holds 1 to {MAX_STATES}")
    columns = np.concatenate([automaton.next, automaton.edge_ops], axis=0)
    distinct, classes = np.unique(columns, axis=1, return_inverse=True)
    header = struct.pack(
        "<4s5I",
        _MAGIC,
        TABLE_VERSION,
        states,
        distinct.shape[1],
        len(automaton.ops),
        automaton.start,
    )
    ops = b"".join(struct.pack("<BBH", op.counter, op.kind, op.limit) for op in automaton.ops)
    targets = np.where(distinct[:states] < 0, _NO_EDGE, distinct[:states]).astype("<u2")
    parts = [
        header,
        classes.reshape(-1).astype(np.uint8).tobytes(),
        ops,
        automaton.final.astype(np.uint8).tobytes(),
        targets.tobytes(),
    ]
    if automaton.ops:
        parts.append(distinct[states:].astype("<u2").tobytes())
    return b"".join(parts)
