"""The automaton of a few given texts: bare, not as JSON strings."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import numpy as np
from pagemill._core import minimal_table

from .compiler import CompiledSchema
from .errors import SchemaReason, SchemaRefused

MAX_BYTES = 16_384


def compile_choices(texts: Sequence[str]) -> CompiledSchema:
    """Return the automaton whose language is `texts`.

    SchemaRefused: SCHEMA_INVALID for no text, an empty one or a lone surrogate, SCHEMA_TOO_LARGE
    for over MAX_BYTES of UTF-8 in all.
    """
    begin = time.monotonic()
    try:
        encoded = sorted({text.encode() for text in texts})
    except UnicodeEncodeError:
        raise SchemaRefused(SchemaReason.SCHEMA_INVALID, "a choice holds half a pair") from None
    if not encoded or not encoded[0]:
        raise SchemaRefused(SchemaReason.SCHEMA_INVALID, "a choice is a text, and not an empty one")
    size = sum(map(len, encoded))
    if size > MAX_BYTES:
        raise SchemaRefused(
            SchemaReason.SCHEMA_TOO_LARGE,
            f"choices of {size} bytes",
            advice=f"at most {MAX_BYTES} in all",
        )
    next_state = np.full((size + 1, 256), -1, dtype=np.int32)
    final = np.zeros(size + 1, dtype=np.bool_)
    used = 1
    for text in encoded:
        state = 0
        for byte in text:
            if next_state[state, byte] < 0:
                next_state[state, byte] = used
                used += 1
            state = int(next_state[state, byte])
        final[state] = True
    next_state, final = next_state[:used], final[:used]
    table, states = minimal_table(next_state, np.zeros_like(next_state), final, 0, [])
    digest = hashlib.sha256(table).hexdigest()
    return CompiledSchema(digest, table, states, "core", (time.monotonic() - begin) * 1000)
