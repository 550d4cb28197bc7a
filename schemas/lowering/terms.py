"""What a lowered schema consists of: a tree of JSON languages, from which automata are built."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from .charset import CharSet


def _hash(term: Any) -> int:
    """The hash of a term, computed once: trees of terms are compared a lot."""
    known: int | None = term.__dict__.get("_known_hash")
    if known is None:
        known = hash((type(term), *term.__dict__.values()))
        term.__dict__["_known_hash"] = known
    return known


@dataclass(frozen=True)
class Never:
    """No value at all."""


@dataclass(frozen=True)
class Text:
    """Exactly this JSON text."""

    __hash__ = _hash
    text: str


@dataclass(frozen=True)
class Number:
    """Numbers whose text a regex matches whole, of these the multiples of each of some factors."""

    __hash__ = _hash
    regex: str
    factors: tuple[Decimal, ...] = ()


@dataclass(frozen=True)
class String:
    """Strings of `low` to `high` characters, each out of a set; `verbatim`: spans of the page."""

    __hash__ = _hash
    characters: CharSet
    low: int
    high: int | None
    verbatim: bool = False


@dataclass(frozen=True)
class Worded:
    """Strings of `low` to `high` characters that every one of some patterns matches.

    The patterns are those of `pattern.parse`; lengths that they imply are left out (0 and None).
    """

    __hash__ = _hash
    patterns: tuple[str, ...]
    low: int
    high: int | None


@dataclass(frozen=True)
class Array:
    """A fixed beginning, then items of one kind; `low` to `high` items in all."""

    __hash__ = _hash
    prefix: tuple[Term, ...]
    item: Term
    low: int
    high: int | None


@dataclass(frozen=True)
class Member:
    __hash__ = _hash
    key: str
    value: Term
    required: bool


@dataclass(frozen=True)
class Pair:
    """A member with a free key."""

    __hash__ = _hash
    key: Term
    value: Term


@dataclass(frozen=True)
class Object:
    """Declared members in their order, then such with free keys; `low` to `high` in all.

    Free keys may be equal to each other, so that they count as one towards `low`.
    """

    __hash__ = _hash
    members: tuple[Member, ...]
    rest: tuple[Pair, ...] = ()
    low: int = 0
    high: int | None = None


@dataclass(frozen=True)
class Mapping:
    """Free keys with values of one kind; `low` to `high` members."""

    __hash__ = _hash
    key: Term
    value: Term
    low: int
    high: int | None


@dataclass(frozen=True)
class Either:
    __hash__ = _hash
    options: tuple[Term, ...]


@dataclass(frozen=True)
class Difference:
    """What is in one language and not in the other."""

    __hash__ = _hash
    base: Term
    minus: Term


Term = Never | Text | Number | String | Worded | Array | Object | Mapping | Either | Difference

NEVER = Never()


def either(options: list[Term]) -> Term:
    """The union, flattened, without the impossible and without repetition."""
    flat: dict[Term, None] = {}
    for option in options:
        for term in option.options if isinstance(option, Either) else (option,):
            if term != NEVER:
                flat[term] = None
    if not flat:
        return NEVER
    return next(iter(flat)) if len(flat) == 1 else Either(tuple(flat))


def first_character(term: Term) -> set[str]:
    """Kinds of first characters: a quote, a bracket, a brace, "0" for numbers, letters."""
    if isinstance(term, Text):
        return {"0" if term.text[0] in "-0123456789" else term.text[0]}
    if isinstance(term, Number):
        return {"0"}
    if isinstance(term, String | Worded):
        return {'"'}
    if isinstance(term, Array):
        return {"["}
    if isinstance(term, Object | Mapping):
        return {"{"}
    if isinstance(term, Either):
        return set().union(*map(first_character, term.options))
    if isinstance(term, Difference):
        return first_character(term.base)
    return set()
