"""The serialised byte automaton: what crosses from the schema compiler to the engine.

All integers are little-endian.

    "PMDF"  u32 version  u32 states  u32 classes  u32 ops  u32 start
    u8  class of each of the 256 bytes
    ops x (u8 counter, u8 kind, u16 limit)       kind 1: count below limit, 2: close at or
                                                 above, 3: enter a span of the page
    u8  1 for each final state
    u16 next state [states, classes], 0xFFFF for none
    u16 operation  [states, classes], 0 for none, else 1 + its index; absent when there are no ops

The bytes of a class go the same ways everywhere. `csrc/automaton.cc` writes tables,
`csrc/byte_dfa.cc` reads them and checks everything.
"""

from __future__ import annotations

TABLE_VERSION = 2
MAX_STATES = 65534
