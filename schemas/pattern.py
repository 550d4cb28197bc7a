"""Regular expressions of schemas, matched in linear time.

A schema may come from anyone, and Python's `re` backtracks: `(a+)+$` on forty characters would
hold a worker for hours. The expressions are run by the regex engine inside pydantic-core
instead (the Rust crate of the same name: finite automata, no look-around, compiled size capped).
"""

from __future__ import annotations

from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_PATTERN_CHARS = 4_096


class Pattern:
    """A compiled expression. `\\d` and `\\w` are those of Unicode; `$` is the very end."""

    def __init__(self, expression: str) -> None:
        """Raises ValueError with the engine's reason if the expression can't be compiled."""
        if len(expression) > MAX_PATTERN_CHARS:
            raise ValueError(f"longer than {MAX_PATTERN_CHARS} characters")
        try:
            self._validator = SchemaValidator(
                core_schema.str_schema(pattern=expression, regex_engine="rust-regex", strict=True)
            )
        except SchemaError as error:
            raise ValueError(str(error).strip().rsplit("\n", 1)[-1].strip()) from None

    def search(self, text: str) -> bool:
        """Whether the expression matches anywhere in `text` (JSON Schema does not anchor)."""
        return self._validator.isinstance_python(text)
