"""The language of a schema, asked text by text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pagemill._core import ByteDfa
from pagemill.schemas.compile_worker import Builder, compile_schema
from pagemill.schemas.lowering import Counting, lowered
from pagemill.schemas.lowering.construct import table


class Language:
    """The automaton of a schema with counters, and the one with its bounds unrolled."""

    def __init__(self, schema: Any) -> None:
        made, _, _ = compile_schema(schema, Builder.CORE)
        self.counted = ByteDfa.from_bytes(made)
        plain, _ = lowered(schema, lambda term: table(term, Counting.NONE))
        self.unrolled = ByteDfa.from_bytes(plain)
        by_outlines, _, builder = compile_schema(schema, Builder.OUTLINES)
        assert by_outlines == made, f"{builder} and the core disagree"

    def accepts(self, text: str | bytes) -> bool:
        """Whether the text is in the language; both automata must say the same."""
        data = text.encode() if isinstance(text, str) else text
        answer = self.counted.accepts(data)
        assert self.unrolled.accepts(data) == answer, "counters and unrolled bounds disagree"
        return answer

    def has(self, value: Any) -> bool:
        """Whether the value's compact text is in the language."""
        return self.accepts(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


@pytest.fixture(scope="session")
def language() -> Callable[[Any], Language]:
    return Language
