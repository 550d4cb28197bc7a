"""Regular expressions of schemas, matched in linear time.

A schema may come from anyone, and Python's `re` backtracks: `(a+)+$` on forty characters would
hold a worker for hours. The expressions are run by the regex engine inside pydantic-core
instead (the Rust crate of the same name: finite automata, no look-around, compiled size capped).
"""

from __future__ import annotations

from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_PATTERN_CHARS = 4_096

# JSON Schema's expressions are those of ECMA-262, whose \d and \w are ASCII and whose \s has the
# byte order mark; the engine's are Unicode's. As classes they may stand inside other classes too.
_SPACE = r"\t-\r \x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}"
_CLASSES = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "s": f"[{_SPACE}]",
    "S": f"[^{_SPACE}]",
}
_DOT = r"[^\n\r\x{2028}\x{2029}]"
# Inside a class the engine has nested classes and set operations (&&, --, ~~); ECMA-262 has not.
_PLAIN_IN_CLASS = frozenset("[&~")


class Pattern:
    """A compiled expression of ECMA-262's regular part."""

    def __init__(self, expression: str) -> None:
        """Raises ValueError with the engine's reason if the expression can't be compiled."""
        if len(expression) > MAX_PATTERN_CHARS:
            raise ValueError(f"longer than {MAX_PATTERN_CHARS} characters")
        try:
            self._validator = SchemaValidator(
                core_schema.str_schema(
                    pattern=_translate(expression), regex_engine="rust-regex", strict=True
                )
            )
        except SchemaError as error:
            raise ValueError(str(error).strip().rsplit("\n", 1)[-1].strip()) from None

    def search(self, text: str) -> bool:
        """Whether the expression matches anywhere in `text` (JSON Schema does not anchor)."""
        return self._validator.isinstance_python(text)


def _translate(expression: str) -> str:
    """An ECMA-262 expression in the engine's syntax."""
    out = []
    in_class = False
    at = 0
    while at < len(expression):
        char = expression[at]
        at += 1
        if char == "\\" and at < len(expression):
            out.append(_CLASSES.get(expression[at], char + expression[at]))
            at += 1
        elif in_class:
            in_class = char != "]"
            out.append("\\" + char if char in _PLAIN_IN_CLASS or _doubled(expression, at) else char)
        elif char == "[":
            in_class = True
            out.append(char)
        else:
            out.append(_DOT if char == "." else char)
    return "".join(out)


def _doubled(expression: str, at: int) -> bool:
    """Whether the character before `at` is the second of two hyphens."""
    return expression[max(at - 2, 0) : at] == "--"
