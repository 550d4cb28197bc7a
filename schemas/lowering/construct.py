"""From terms to automata, by the core's expressions (csrc/expression.h).

What `emit` says to Outlines in one regex is put together here node by node; equal terms give equal
tables. Languages that are intersections or differences of others exist here only.
"""

from __future__ import annotations

import json

from pagemill._core import Expressions

from ..errors import SchemaReason, SchemaRefused
from . import multiples
from . import pattern as patterns
from .charset import CharSet, contains, difference, of
from .emit import MAX_COUNTERS, MAX_LIMIT, MIN_COUNTED, Counting, OpKind
from .json_text import NEVER_RAW, NUMERIC_ESCAPES, SHORT_ESCAPES
from .terms import (
    NEVER,
    Array,
    Difference,
    Either,
    Mapping,
    Number,
    Object,
    String,
    Term,
    Text,
    Worded,
    first_character,
)

# Bounds each automaton on the way to the last, which has as many states as a table at most.
MAX_STATES = 65_534
MAX_NODES = 200_000


def table(term: Term, counting: Counting) -> tuple[bytes, int]:
    """Return the table of a term's smallest automaton, and its number of states.

    `_core.Ambiguous` where counters can't be told apart, `_core.TooManyStates`, and SchemaRefused
    when nothing satisfies the term.
    """
    builder = _Builder(counting)
    root = builder.term(term, 0, counting is not Counting.NONE)
    if builder.expressions.is_empty(root):
        raise SchemaRefused(SchemaReason.SCHEMA_UNSATISFIABLE, "no value satisfies the schema")
    return builder.expressions.table(root)


class _Builder:
    def __init__(self, counting: Counting) -> None:
        self.counting = counting
        self.expressions = Expressions(MAX_STATES)
        self.nodes = 0
        self.quote = self.expressions.literal(b'"')
        self.nothing = self.expressions.either([])
        self._characters: dict[tuple[CharSet, bool], int] = {}
        self._known: dict[tuple[Term, int, bool], int] = {}

    def term(self, term: Term, depth: int, counted: bool) -> int:
        key = (term, depth, counted)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._term(term, depth, counted)
        return known

    def _term(self, term: Term, depth: int, counted: bool) -> int:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise SchemaRefused(
                SchemaReason.SCHEMA_TOO_LARGE,
                f"over {MAX_NODES} parts once references are resolved",
                advice="use fewer alternatives, or split the schema",
            )
        match term:
            case Text(text):
                return self.expressions.literal(text.encode())
            case Number():
                return self.number(term)
            case String():
                return self.string(term, counted)
            case Worded():
                return self.worded(term, counted)
            case Array():
                return self.array(term, depth, counted)
            case Object():
                return self.object(term, depth, counted)
            case Mapping():
                return self.mapping(term, depth, counted)
            case Either(options):
                counted = counted and self.may_count(options)
                return self.expressions.either([self.term(o, depth, counted) for o in options])
            case Difference(base, minus):
                return self.expressions.subtract(
                    self.term(base, depth, counted), self.term(minus, depth, counted)
                )
        return self.nothing

    def may_count(self, options: tuple[Term, ...]) -> bool:
        if self.counting is not Counting.UNAMBIGUOUS:
            return True
        firsts = [kind for option in options for kind in first_character(option)]
        return len(firsts) == len(set(firsts))

    def number(self, term: Number) -> int:
        made = self.pattern(patterns.parse(f"^(?:{term.regex})$"), ticks=False)
        for factor in term.factors:
            digits = multiples.automaton(factor)
            multiple = self.expressions.automaton(digits.num_states, digits.edges, digits.finals)
            made = self.expressions.intersect(made, multiple)
        return made

    def string(self, term: String, counted: bool) -> int:
        high = term.high
        if high == 0:
            return self.expressions.literal(b'""')
        one = self.character(term.characters, ticks=False)
        if term.verbatim:
            # The page bounds and ends what is inside, from the opening quote on.
            most = MAX_LIMIT if high is None else min(high, MAX_LIMIT)
            opening = self.expressions.counted(self.quote, 0, OpKind.ENTER, most)
            return self.expressions.concat(
                [opening, self.expressions.repeat(one, 0, -1), self.quote]
            )
        if counted and high is not None and MIN_COUNTED <= high <= MAX_LIMIT:
            body = self.expressions.repeat(
                self.expressions.counted(one, 0, OpKind.COUNT, high), 0, -1
            )
            end = self.expressions.counted(self.quote, 0, OpKind.CLOSE, term.low)
        else:
            body = self.expressions.repeat(one, term.low, -1 if high is None else high)
            end = self.quote
        return self.expressions.concat([self.quote, body, end])

    def worded(self, term: Worded, counted: bool) -> int:
        measured = term.low > 0 or term.high is not None
        first, *others = term.patterns
        body = self.pattern(patterns.parse(first), measured)
        for other in others:
            body = self.expressions.intersect(body, self.pattern(patterns.parse(other), measured))
        if not measured:
            return self.expressions.concat([self.quote, body, self.quote])
        high = -1 if term.high is None else term.high
        counter = 0 if counted and high <= MAX_LIMIT else -1
        return self.expressions.concat(
            [
                self.quote,
                self.expressions.bounded(
                    body, self.quote, tick=0, least=term.low, most=high, counter=counter
                ),
            ]
        )

    def pattern(self, node: patterns.Node, ticks: bool) -> int:
        """The texts of a pattern as they stand in a JSON string."""
        match node:
            case patterns.Chars(chars):
                return self.character(chars, ticks)
            case patterns.Cat(parts):
                return self.expressions.concat([self.pattern(part, ticks) for part in parts])
            case patterns.Or(options):
                return self.expressions.either([self.pattern(o, ticks) for o in options])
            case patterns.Repeat(inner, low, high):
                return self.expressions.repeat(
                    self.pattern(inner, ticks), low, -1 if high is None else high
                )
        raise patterns.PatternError("an anchor inside the pattern")

    def character(self, chars: CharSet, ticks: bool) -> int:
        """One character as it may stand in a JSON string (`json_text.character`)."""
        known = self._characters.get((chars, ticks))
        if known is not None:
            return known
        build = self.expressions
        options = []
        raw = difference(chars, NEVER_RAW)
        if raw:
            options.append(build.characters(list(raw)))
        escapes = []
        short = [letter for code, letter in SHORT_ESCAPES.items() if contains(chars, code)]
        if short:
            escapes.append(build.characters(list(of("".join(short)))))
        by_high: dict[int, str] = {}
        for code in NUMERIC_ESCAPES:
            if contains(chars, code):
                low = f"{code & 15:x}"
                by_high[code >> 4] = by_high.get(code >> 4, "") + low + low.upper()
        for high, lows in by_high.items():
            digits = build.characters(list(of(lows)))
            escapes.append(build.concat([build.literal(f"u00{high:x}".encode()), digits]))
        if escapes:
            options.append(build.concat([build.literal(b"\\"), build.either(escapes)]))
        made = build.either(options)
        if ticks:
            made = self.expressions.counted(made, 0, OpKind.COUNT, 0)
        self._characters[chars, ticks] = made
        return made

    def array(self, term: Array, depth: int, counted: bool) -> int:
        """`[`, items with commas between, `]`; a counter counts the commas of the items."""
        build, inner = self.expressions, depth + 1
        low, high = term.low, term.high
        prefix = term.prefix if high is None else term.prefix[:high]
        free_low = max(low - len(prefix), 0)
        free_high = None if high is None else high - len(prefix)
        opening, closing = build.literal(b"["), build.literal(b"]")
        free = term.item != NEVER and free_high != 0
        item = self.term(term.item, inner, counted) if free else self.nothing
        if not prefix and not free:
            return build.literal(b"[]")
        following = build.concat([build.literal(b","), item])
        if prefix:
            tail = build.repeat(following, free_low, -1 if free_high is None else free_high)
            if not free:
                tail = build.concat([])
            for index in range(len(prefix) - 1, -1, -1):
                parts = [self.term(prefix[index], inner, counted), tail]
                tail = build.concat([build.literal(b",")] * (index > 0) + parts)
                if index >= low:
                    tail = build.repeat(tail, 0, 1)
            return build.concat([opening, tail, closing])
        if (
            counted
            and inner < MAX_COUNTERS
            and free_high is not None
            and MIN_COUNTED <= free_high <= MAX_LIMIT
        ):
            comma = build.counted(build.literal(b","), inner, OpKind.COUNT, free_high - 1)
            more = build.repeat(build.concat([comma, item]), 0, -1)
            end = build.counted(closing, inner, OpKind.CLOSE, max(free_low - 1, 0))
            body = build.concat([item, more, end])
            return build.concat([opening, build.either([closing, body]) if low == 0 else body])
        most = -1 if free_high is None else free_high - 1
        body = build.concat([item, build.repeat(following, max(free_low - 1, 0), most)])
        if free_low == 0:
            body = build.repeat(body, 0, 1)
        return build.concat([opening, body, closing])

    def object(self, term: Object, depth: int, counted: bool) -> int:
        build = self.expressions
        members = []
        for member in term.members:
            if member.value == NEVER:
                continue
            key = json.dumps(member.key, ensure_ascii=False) + ":"
            parts = [build.literal(key.encode()), self.term(member.value, depth, counted)]
            members.append((build.concat(parts), member.required))
        rest = -1
        if term.rest:
            rest = build.either([self.pair(p.key, p.value, depth, counted) for p in term.rest])
        most = -1 if term.high is None else term.high
        inner = build.members(members, rest, term.low, most)
        return build.concat([build.literal(b"{"), inner, build.literal(b"}")])

    def pair(self, key: Term, value: Term, depth: int, counted: bool) -> int:
        build = self.expressions
        parts = [self.term(key, depth, counted), self.term(value, depth, counted)]
        return build.concat([parts[0], build.literal(b":"), parts[1]])

    def mapping(self, term: Mapping, depth: int, counted: bool) -> int:
        build = self.expressions
        if term.high == 0:
            return build.literal(b"{}")
        pair = self.pair(term.key, term.value, depth, counted)
        more = build.repeat(
            build.concat([build.literal(b","), pair]),
            max(term.low - 1, 0),
            -1 if term.high is None else term.high - 1,
        )
        body = build.concat([pair, more])
        if term.low == 0:
            body = build.repeat(body, 0, 1)
        return build.concat([build.literal(b"{"), body, build.literal(b"}")])
