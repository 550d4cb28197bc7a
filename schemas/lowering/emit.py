"""From terms to a regex, with bounds unrolled or as marks that become counters.

Marks are control characters, which no JSON text holds raw. MARK and two digits name a counter
operation on the byte that follows; ELIDE stands after an opening brace whose members each begin
with a comma, the first of which is to be left out. `schemas.automaton` takes them out again.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field

from ..errors import SchemaReason, SchemaRefused
from . import pattern as patterns
from .json_text import character, literal
from .terms import (
    NEVER,
    Array,
    Difference,
    Either,
    Mapping,
    Member,
    Number,
    Object,
    String,
    Term,
    Text,
    Worded,
    first_character,
)

MAX_REGEX_BYTES = 1 << 18
MAX_COUNTERS = 6
MAX_LIMIT = 0xFFFF
# Counting pays from here on; shorter bounds cost fewer states unrolled than counted.
MIN_COUNTED = 4
ELIDE = 0x1F
_DIGITS = 30


class NoRegexError(Exception):
    """A language that no short regex says: put together from several, or of the page's text."""


class RegexTooLong(SchemaRefused):
    """More bytes of regex than asked for."""

    def __init__(self, most: int) -> None:
        super().__init__(
            SchemaReason.SCHEMA_TOO_LARGE,
            f"the schema's regex exceeds {most} bytes",
            advice="use fewer alternatives, lower bounds, or split the schema",
        )


class OpKind(enum.IntEnum):
    """What an edge does to a counter; csrc/byte_dfa.h has the same."""

    COUNT = 1  # needs counter < limit, adds one
    CLOSE = 2  # needs counter >= limit, sets it to 0
    ENTER = 3  # begins a span of the page, of at most `limit` characters


@dataclass(frozen=True)
class Op:
    counter: int
    kind: OpKind
    limit: int


class Counting(enum.Enum):
    """Which bounds become counters."""

    ALL = "all"
    UNAMBIGUOUS = "unambiguous"  # none below a choice between values that begin alike
    NONE = "none"


@dataclass(frozen=True)
class Lowered:
    """A regex with marks and the operations they name; without marks when `ops` is empty."""

    regex: str
    ops: tuple[Op, ...]
    marked: bool


def mark(index: int) -> bytes:
    """The three bytes that name operation `index`."""
    return bytes([1, 1 + index // _DIGITS, 1 + index % _DIGITS])


def marked_op(high: int, low: int) -> int:
    return (high - 1) * _DIGITS + low - 1


MAX_OPS = _DIGITS * _DIGITS


@dataclass
class _Emitter:
    counting: Counting
    most: int
    most_number: int
    ops: dict[Op, int] = field(default_factory=dict)
    written: int = 0

    def emit(self, term: Term, depth: int, counted: bool) -> str:
        text = self._emit(term, depth, counted)
        self.written += len(text) if isinstance(term, Text | Number | String | Worded) else 8
        if self.written > self.most or len(text) > self.most:
            raise RegexTooLong(self.most)
        return text

    def _emit(self, term: Term, depth: int, counted: bool) -> str:
        match term:
            case Text(text):
                return literal(text)
            case Number(regex, factors):
                if factors or len(regex) > self.most_number:
                    raise NoRegexError
                return regex
            case String():
                return self.string(term, counted)
            case Worded():
                return self.worded(term)
            case Difference():
                raise NoRegexError
            case Array():
                return self.array(term, depth, counted)
            case Object(members, rest, low, high):
                if rest or low > 0 or high is not None:
                    raise NoRegexError
                return self.object(members, depth, counted)
            case Mapping():
                return self.mapping(term, depth, counted)
            case Either(options):
                counted = counted and self.may_count(options)
                inner = "|".join(self.emit(option, depth, counted) for option in options)
                return f"(?:{inner})"
        raise SchemaRefused(SchemaReason.SCHEMA_UNSATISFIABLE, "no value satisfies the schema")

    def may_count(self, options: tuple[Term, ...]) -> bool:
        if self.counting is not Counting.UNAMBIGUOUS:
            return True
        firsts = [kind for option in options for kind in first_character(option)]
        return len(firsts) == len(set(firsts))

    def op(self, counter: int, kind: OpKind, limit: int) -> str:
        op = Op(counter, kind, limit)
        index = self.ops.setdefault(op, len(self.ops))
        if index >= MAX_OPS:
            raise SchemaRefused(
                SchemaReason.SCHEMA_TOO_LARGE,
                f"over {MAX_OPS} different bounds",
                advice="use the same bounds for more of the fields",
            )
        return "".join(f"\\x{{{byte:X}}}" for byte in mark(index))

    def string(self, term: String, counted: bool) -> str:
        if term.verbatim:
            raise NoRegexError
        low, high = term.low, term.high
        if high == 0:
            return literal('""')
        one = character(term.characters)
        if counted and high is not None and MIN_COUNTED <= high <= MAX_LIMIT:
            count, close = self.op(0, OpKind.COUNT, high), self.op(0, OpKind.CLOSE, low)
            return f"\\x22(?:{count}{one})*{close}\\x22"
        return f"\\x22(?:{one}){_times(low, high)}\\x22"

    def worded(self, term: Worded) -> str:
        if len(term.patterns) > 1 or term.low > 0 or term.high is not None:
            raise NoRegexError
        return f"\\x22{patterns.regex(patterns.parse(term.patterns[0]))}\\x22"

    def array(self, term: Array, depth: int, counted: bool) -> str:
        """`[`, items with commas between, `]`; a counter counts the commas of the items."""
        prefix, low, high = list(term.prefix), term.low, term.high
        if high is not None and len(prefix) > high:
            prefix = prefix[:high]
        free_low = max(low - len(prefix), 0)
        free_high = None if high is None else high - len(prefix)
        inner_counter = depth + 1
        item = ""
        if term.item != NEVER and free_high != 0:
            item = self.emit(term.item, inner_counter, counted)
        if prefix:
            return self.fixed(prefix, item, low, free_low, free_high, inner_counter, counted)
        if not item:
            return literal("[]")
        use = counted and inner_counter < MAX_COUNTERS and free_high is not None
        if use and free_high is not None and MIN_COUNTED <= free_high <= MAX_LIMIT:
            count = self.op(inner_counter, OpKind.COUNT, free_high - 1)
            close = self.op(inner_counter, OpKind.CLOSE, max(free_low - 1, 0))
            body = f"{item}(?:{count},{item})*{close}\\x{{5D}}"
            return f"\\[(?:\\x{{5D}}|{body})" if low == 0 else f"\\[{body}"
        if free_high == 1:
            return f"\\[{item}\\]" if free_low else f"\\[(?:{item})?\\]"
        most = None if free_high is None else free_high - 1
        body = f"{item}(?:,{item}){_times(max(free_low - 1, 0), most)}"
        return f"\\[{body}\\]" if free_low else f"\\[(?:{body})?\\]"

    def fixed(
        self,
        prefix: list[Term],
        item: str,
        low: int,
        free_low: int,
        free_high: int | None,
        depth: int,
        counted: bool,
    ) -> str:
        tail = f"(?:,{item}){_times(free_low, free_high)}" if item else ""
        for index in range(len(prefix) - 1, -1, -1):
            comma = "," if index else ""
            tail = comma + self.emit(prefix[index], depth, counted) + tail
            if index >= low:
                tail = f"(?:{tail})?"
        return f"\\[{tail}\\]"

    def object(self, members: tuple[Member, ...], depth: int, counted: bool) -> str:
        parts = []
        for member in members:
            if member.value == NEVER:
                continue
            key = literal(json.dumps(member.key, ensure_ascii=False))
            parts.append((f"{key}:{self.emit(member.value, depth, counted)}", member.required))
        if not parts:
            return literal("{}")
        if self.counting is not Counting.NONE:
            body = "".join(f",{text}" if must else f"(?:,{text})?" for text, must in parts)
            return f"\\{{\\x{{{ELIDE:X}}}{body}\\}}"
        return f"\\{{{_comma_separated(parts)}\\}}"

    def mapping(self, term: Mapping, depth: int, counted: bool) -> str:
        if term.high == 0:
            return literal("{}")
        pair = f"{self.emit(term.key, depth, counted)}:{self.emit(term.value, depth, counted)}"
        if self.counting is not Counting.NONE:
            # The same beginning as that of declared members, so that a choice between the two
            # doesn't mix marked and plain ways from one state.
            return f"\\{{\\x{{{ELIDE:X}}}(?:,{pair}){_times(term.low, term.high)}\\}}"
        most = None if term.high is None else term.high - 1
        body = pair if most == 0 else f"{pair}(?:,{pair}){_times(max(term.low - 1, 0), most)}"
        return f"\\{{(?:{body})?\\}}" if term.low == 0 else f"\\{{{body}\\}}"


def _times(low: int, high: int | None) -> str:
    if high is None:
        return "*" if low == 0 else "+" if low == 1 else f"{{{low},}}"
    return f"{{{low}}}" if low == high else f"{{{low},{high}}}"


def _comma_separated(parts: list[tuple[str, bool]]) -> str:
    """Members in order, optional ones perhaps left out, commas only between."""
    tails = [""]  # tails[k]: what may follow once something stands, for the last k members
    for text, must in reversed(parts):
        tails.append((f",{text}" if must else f"(?:,{text})?") + tails[-1])
    options = []
    for index, (text, must) in enumerate(parts):
        options.append(text + tails[len(parts) - index - 1])
        if must:
            return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"
    return f"(?:{'|'.join(options)})?"


def write(
    term: Term,
    counting: Counting,
    most: int = MAX_REGEX_BYTES,
    most_number: int = MAX_REGEX_BYTES,
) -> Lowered:
    """Return the regex of a term, of at most `most` bytes.

    NoRegexError for terms that intersect or subtract languages or have a number whose regex is
    longer than `most_number`, PatternError for a pattern that no
    text matches, SchemaRefused when nothing satisfies the term or the regex grows too large.
    """
    emitter = _Emitter(counting, most, most_number)
    regex = emitter.emit(term, 0, counting is not Counting.NONE)
    return Lowered(regex, tuple(emitter.ops), counting is not Counting.NONE)
