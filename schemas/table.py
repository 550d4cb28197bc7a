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
    representative, classes = byte_classes(automaton)
    header = struct.pack(
        "<4s5I",
        _MAGIC,
        TABLE_VERSION,
        states,
        len(representative),
        len(automaton.ops),
        automaton.start,
    )
    ops = b"".join(struct.pack("<BBH", op.counter, op.kind, op.limit) for op in automaton.ops)
    edges = automaton.next[:, representative]
    targets = np.where(edges < 0, _NO_EDGE, edges).astype("<u2")
    parts = [
        header,
        classes.astype(np.uint8).tobytes(),
        ops,
        automaton.final.astype(np.uint8).tobytes(),
        targets.tobytes(),
    ]
    if automaton.ops:
        parts.append(automaton.edge_ops[:, representative].astype("<u2").tobytes())
    return b"".join(parts)


def byte_classes(automaton: Automaton) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One byte of each class of bytes that no state tells apart, and the class of each byte."""
    columns = np.concatenate([automaton.next, automaton.edge_ops], axis=0).T
    classes = number_rows(columns)
    _, representative = np.unique(classes, return_index=True)
    return representative, classes


def number_rows(rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Number the rows from 0 so that equal ones get equal numbers."""
    factors = _FACTORS[np.arange(rows.shape[1]) % len(_FACTORS)] + np.arange(
        rows.shape[1], dtype=np.uint64
    ) * np.uint64(2)
    hashes = (rows.astype(np.int64).view(np.uint64) + np.uint64(1)) @ factors
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    if (rows[first[inverse]] != rows).any():  # two different rows with one hash
        _, inverse = np.unique(rows, axis=0, return_inverse=True)
    numbers: NDArray[np.int64] = inverse.reshape(-1).astype(np.int64)
    return numbers


# Odd 64-bit factors; any will do, rows are compared after hashing.
_FACTORS = np.random.default_rng(20).integers(1, 2**63, 4096, dtype=np.uint64) | np.uint64(1)
