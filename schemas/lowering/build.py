"""From a schema to its term: the recursion over subschemas, with its bounds."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from ..errors import SchemaReason, SchemaRefused
from . import multiples, numbers
from . import pattern as patterns
from .charset import ANY
from .containers import array_term, object_term
from .facts import decimal, each, number_bounds, types
from .keywords import VERBATIM, invalid, refuse_keyword
from .layers import Conjunction, Expander, Layer
from .strings import string, verbatim
from .terms import NEVER, Difference, Either, Mapping, Number, String, Term, Text, Worded, either
from .terms import Array as ArrayTerm
from .values import Values, constant

MAX_TERMS = 20_000
# A recursive schema is followed less far when it has more: most of that would be its own copies.
MAX_RECURSIVE_TERMS = 800
MAX_DEPTH = 48
# How deep a value nests of which the schema says nothing.
FREE_DEPTH = 2


class _NotPlain(Exception):
    """A difference was met where numbers may be written in several ways."""


@dataclass(frozen=True)
class _Known:
    """A term, how many terms were built for it, and how deep they nest.

    One that something was left out of depends on how often each subschema below it stood on the
    path already: `cut` holds those subschemas, `entered` the numbers above 0.
    """

    term: Term
    terms: int
    height: int
    cut: frozenset[int] = frozenset()
    entered: dict[int, int] = field(default_factory=dict)

    def holds(self, path: dict[int, int]) -> bool:
        """Whether the term is the same behind this path."""
        if not self.cut:
            return True
        here = {place: times for place, times in path.items() if place in self.cut}
        return here == self.entered


class Builder:
    """Builds the term of one root schema.

    A subschema that contains itself is followed `max_recursion` times on one path; what would
    lie deeper is left out, so optional members, array items and alternatives end the recursion.
    """

    def __init__(self, root: Any) -> None:
        self.expander = Expander(root, Values(root))
        self.max_recursion = 1
        self.recursive = False
        # Set where languages are subtracted: numbers are written in one way only.
        self.plain = False
        self._subtracting = 0
        self._depth = 0
        self._path: dict[int, int] = {}  # how often each subschema was entered
        self._places: dict[Conjunction, int] = {}
        self._terms = 0
        # Subschemas below which something was left out for lying too deep.
        self._cut: set[int] = set()
        self._texts: dict[int, tuple[Any, str]] = {}  # of schemas, by identity
        # Of what contains no recursion: wherever it stands, the same text has the same term.
        self._known: dict[tuple[Any, ...], _Known] = {}
        self._known_cut: dict[tuple[int, bool, bool], list[_Known]] = {}
        self._deepest = 0

    @property
    def open(self) -> bool:
        """Whether undeclared members may stand behind declared ones."""
        return self.expander.standard and self._subtracting == 0

    def root(self, max_recursion: int) -> Term:
        self.max_recursion, self.recursive, self.plain = max_recursion, False, False
        self._known_cut.clear()
        layers = (Layer(self.expander.root, ""),)
        self._restart()
        try:
            return self.term(layers)
        except _NotPlain:
            self._restart()
            self.plain = True
            return self.term(layers)

    def _restart(self) -> None:
        self._depth = self._deepest = self._terms = self._subtracting = 0
        self._path.clear()
        self._cut = set()

    def term(self, layers: Conjunction) -> Term:
        """The term of what satisfies all of the subschemas."""
        reading = self.plain, self._subtracting > 0
        key = (*map(self._text, layers), *reading)
        place = self._places.setdefault(layers, len(self._places))
        cut_key = (place, *reading)
        known = self._known.get(key) or next(
            (known for known in self._known_cut.get(cut_key, ()) if known.holds(self._path)), None
        )
        if known is not None:
            self._count(layers, known.terms, known.height)
            self._cut |= known.cut
            return known.term
        terms, around, deepest = self._terms, self._cut, self._deepest
        self._cut, self._deepest = set(), self._depth
        made = self._new_term(layers, place)
        terms, height = self._terms - terms, self._deepest - self._depth
        if self._cut:
            cut = frozenset(self._cut | {place})
            entered = {place: times for place, times in self._path.items() if place in cut}
            known = _Known(made, terms, height, cut, entered)
            self._known_cut.setdefault(cut_key, []).append(known)
            around |= cut
        else:
            self._known[key] = _Known(made, terms, height)
        self._cut = around
        self._deepest = max(self._deepest, deepest)
        return made

    def _text(self, layer: Layer) -> tuple[str, bool, bool]:
        """What tells a layer from others, but for its place."""
        known = self._texts.get(id(layer.schema))
        if known is None:
            # The schema is kept, so that its identity stays its own.
            known = self._texts[id(layer.schema)] = layer.schema, json.dumps(layer.schema)
        return known[1], layer.checked, layer.negated

    def _new_term(self, layers: Conjunction, place: int) -> Term:
        times = self._path.get(place, 0)
        if times >= self.max_recursion and layers:
            if any(layer.checked for layer in layers):
                raise _recursive_condition(layers[-1])
            self.recursive = True
            self._cut.add(place)
            return NEVER
        self._count(layers, 1, 1)
        self._depth += 1
        self._path[place] = times + 1
        conjunctions = self.expander.alternatives(layers)
        options = [self._alternative(conjunction) for conjunction in conjunctions]
        for conjunction, option in zip(conjunctions, options, strict=True):
            _check_verbatim(conjunction, option, options)
        self._depth -= 1
        if times > 0:
            self._path[place] = times
        else:
            del self._path[place]
        return either(options)

    def _alternative(self, layers: Conjunction, undone: frozenset[str] = frozenset()) -> Term:
        """What satisfies the layers, without what satisfies a negated one as well.

        Such values are written by the layers that stay, and only checked by the negated ones, so
        that their language holds every text of the first that is valid under both. `undone` are
        the places of those that are being taken away.
        """
        holding = tuple(layer for layer in layers if not layer.negated)
        negated = [layer for layer in layers if layer.negated]
        if not negated:
            return self._conjunction(layers)
        for layer in negated:
            if layer.at in undone:
                raise _recursive_condition(layer)
        undone |= {layer.at for layer in negated}
        if not self.plain:
            raise _NotPlain
        self._subtracting += 1
        base = self._conjunction(holding)
        minus = [
            self._alternative((*holding, *alternative), undone)
            for layer in negated
            for alternative in self.expander.expand(Layer(layer.schema, layer.at, checked=True))
        ]
        self._subtracting -= 1
        without = either(minus)
        return base if NEVER in (base, without) else Difference(base, without)

    def _count(self, layers: Conjunction, terms: int, height: int) -> None:
        """Count terms that nest `height` deep; SchemaRefused when they are too many or too deep."""
        self._terms += terms
        self._deepest = max(self._deepest, self._depth + height)
        at = layers[-1].at if layers else ""
        again = self.recursive and self.max_recursion > 1
        if self._terms > (MAX_RECURSIVE_TERMS if again else MAX_TERMS):
            raise SchemaRefused(
                SchemaReason.SCHEMA_TOO_LARGE,
                f"over {MAX_TERMS} subschemas once references are resolved",
                at=at,
                advice="split the schema, or use fewer nested references",
            )
        if self._depth + height > MAX_DEPTH:
            raise SchemaRefused(
                SchemaReason.SCHEMA_TOO_LARGE, f"nests over {MAX_DEPTH} levels deep", at=at
            )

    def _conjunction(self, layers: Conjunction) -> Term:
        listed = self.expander.values.listed(layers)
        if listed is not None:
            enumerated = any(
                not layer.checked and {"enum", "const"} & layer.schema.keys() for layer in layers
            )
            spelt = self._constant if enumerated else self._every_spelling
            return either([spelt(value, layers) for value in listed])
        allowed = types(layers, infer=True)
        if not layers:
            return self.anything(FREE_DEPTH)
        options: list[Term] = []
        if "null" in allowed:
            options.append(Text("null"))
        if "boolean" in allowed:
            options.append(Either((Text("true"), Text("false"))))
        if "number" in allowed or "integer" in allowed:
            options.append(_number(layers, whole="number" not in allowed, plain=self.plain))
        if "string" in allowed:
            options.append(string(layers, standard=self.expander.standard))
        if "array" in allowed:
            options.append(array_term(layers, self))
        if "object" in allowed:
            options.append(object_term(layers, self))
        return either(options)

    def _constant(self, value: Any, layers: Conjunction) -> Term:
        try:
            return constant(value)
        except ValueError as error:
            raise invalid("enum", layers[0].at, f"a value without JSON text ({error})") from None

    def anything(self, depth: int) -> Term:
        """Any value, nested at most `depth` levels."""
        return free(depth, plain=self.plain)

    def _every_spelling(self, value: Any, layers: Conjunction) -> Term:
        """All texts of a value that a condition names, however it is written."""
        if isinstance(value, str):
            return Worded((patterns.exactly(value),), 0, None)
        if isinstance(value, int | float) and not isinstance(value, bool):
            exact = numbers.Bound(decimal(value, "enum", layers[-1]), inclusive=True)
            regex = numbers.number(exact, exact)
            return NEVER if regex is None else Number(regex)
        if isinstance(value, list | dict):
            raise refuse_keyword("enum", layers[-1].at, what="a condition on arrays or objects")
        return self._constant(value, layers)


def _recursive_condition(layer: Layer) -> SchemaRefused:
    return SchemaRefused(
        SchemaReason.KEYWORD_UNSUPPORTED,
        "a condition on a recursive schema",
        at=layer.at,
        advice="drop the condition, or check it after extraction",
    )


def _check_verbatim(layers: Conjunction, term: Term, options: list[Term]) -> None:
    """SchemaRefused where a page that holds nothing fitting would leave no value."""
    asking = verbatim(layers)
    if asking is None:
        return
    if not any(isinstance(each, String) for each in _options(term)):
        if term == NEVER:
            return
        raise refuse_keyword(
            VERBATIM,
            asking.at,
            what="verbatim is for strings of any content",
            advice="drop it; a value out of an enum or a const needs none",
        )
    if not any(each == Text("null") for option in options for each in _options(option)):
        raise refuse_keyword(
            VERBATIM,
            asking.at,
            what="a verbatim string that can't be null",
            advice='add null to its type: "type": ["string", "null"]; a page may hold no value',
        )


def _options(term: Term) -> tuple[Term, ...]:
    return term.options if isinstance(term, Either) else (term,)


def _number(layers: Conjunction, *, whole: bool, plain: bool) -> Term:
    factors: dict[Decimal, None] = {}
    for value, layer in each(layers, "multipleOf"):
        factor = decimal(value, "multipleOf", layer)
        if factor <= 0:
            raise invalid("multipleOf", layer.at, "needs a number above 0")
        if (1 / factor) % 1 == 0 and whole:
            continue
        if factor == 1 and not layer.checked:
            whole = True
        elif not multiples.is_small(factor):
            raise refuse_keyword("multipleOf", layer.at, what="multipleOf of many digits")
        else:
            factors[factor] = None
    lower, upper = number_bounds(layers)
    if whole and any(layer.checked for layer in layers):
        # To a condition 1.0 is an integer as well, and may be what is written.
        written = types(tuple(layer for layer in layers if not layer.checked), infer=True)
        if "number" in written:
            whole = False
            factors[Decimal(1)] = None
    if whole:
        regex = numbers.integer(lower, upper)
    else:
        regex = numbers.number(lower, upper, exponent=not factors and not plain)
    return NEVER if regex is None else Number(regex, tuple(factors))


def free(depth: int, *, plain: bool = False) -> Term:
    """Any value, nested at most `depth` levels; `plain`: numbers without exponent."""
    text = String(ANY, 0, None)
    options: list[Term] = [
        Text("null"),
        Text("true"),
        Text("false"),
        Number(numbers.number(None, None, exponent=not plain) or numbers.NUMBER),
        text,
    ]
    if depth > 0:
        inner = free(depth - 1, plain=plain)
        options += [ArrayTerm((), inner, 0, None), Mapping(text, inner, 0, None)]
    return Either(tuple(options))


MAX_SCHEMA_BYTES = 1 << 20
RECURSION_DEPTHS = (4, 3, 2, 1)


def check_size(schema: Any) -> None:
    """SchemaRefused for a schema too large or too deep to look at."""
    try:
        size = len(json.dumps(schema))
    except RecursionError:
        size = MAX_SCHEMA_BYTES + 1
    except (TypeError, ValueError) as error:
        raise SchemaRefused(SchemaReason.SCHEMA_INVALID, f"not JSON ({error})") from None
    if size > MAX_SCHEMA_BYTES:
        raise SchemaRefused(
            SchemaReason.SCHEMA_TOO_LARGE, f"the schema has over {MAX_SCHEMA_BYTES} bytes"
        )
