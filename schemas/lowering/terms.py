"""What a lowered schema consists of: a tree of JSON languages, from which the regex is written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Never:
    """No value at all."""


@dataclass(frozen=True)
class Text:
    """Exactly this JSON text."""

    text: str


@dataclass(frozen=True)
class Fragment:
    """A regex over JSON text that is safe to stand alone (grouped where needed).

    `first` is a character that every word begins with one of: `"` for strings, "0" for numbers.
    """

    regex: str
    first: str


@dataclass(frozen=True)
class String:
    """Strings of `low` to `high` characters, each of the regex `character`."""

    character: str
    low: int
    high: int | None


@dataclass(frozen=True)
class Array:
    """A fixed beginning, then items of one kind; `low` to `high` items in all."""

    prefix: tuple[Term, ...]
    item: Term
    low: int
    high: int | None


@dataclass(frozen=True)
class Member:
    key: str
    value: Term
    required: bool


@dataclass(frozen=True)
class Object:
    """Declared members in their order."""

    members: tuple[Member, ...]


@dataclass(frozen=True)
class Mapping:
    """Free keys with values of one kind; `low` to `high` members."""

    key: Term
    value: Term
    low: int
    high: int | None


@dataclass(frozen=True)
class Either:
    options: tuple[Term, ...]


Term = Never | Text | Fragment | String | Array | Object | Mapping | Either

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
    if isinstance(term, Fragment):
        return {term.first}
    if isinstance(term, String):
        return {'"'}
    if isinstance(term, Array):
        return {"["}
    if isinstance(term, Object | Mapping):
        return {"{"}
    if isinstance(term, Either):
        return set().union(*map(first_character, term.options))
    return set()
