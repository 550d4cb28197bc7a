"""JSON Schema (draft 2020-12, and what older drafts share) to automata over compact JSON text.

The language holds only valid instances: compact, members in declared order, no undeclared ones.
Every keyword is either honoured exactly, known to say nothing about validity, or refused with
its place; nothing is ignored silently.

A schema becomes a term (`build`); from a term comes either a regex for Outlines (`emit`) or an
automaton (`construct`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import SchemaReason, SchemaRefused
from .build import RECURSION_DEPTHS, Builder, check_size
from .emit import Counting, Lowered, NoRegexError, Op, OpKind, write
from .terms import NEVER, Term
from .verbatim import spread

__all__ = [
    "Counting",
    "Lowered",
    "NoRegexError",
    "Op",
    "OpKind",
    "check",
    "lower",
    "lower_counted",
    "lowered",
]
_Made = TypeVar("_Made")


def lowered(schema: Any, make: Callable[[Term], _Made]) -> _Made:
    """Return what `make` makes of the schema's term.

    A recursive schema is followed as deep as `make` takes it: less far each time that it refuses
    with SCHEMA_TOO_LARGE.
    """
    check_size(schema)
    builder = Builder(spread(schema))
    for attempt, depth in enumerate(RECURSION_DEPTHS, 1):
        try:
            return make(_satisfiable(builder.root(depth)))
        except SchemaRefused as refusal:
            too_large = refusal.reason is SchemaReason.SCHEMA_TOO_LARGE
            if not (too_large and builder.recursive) or attempt == len(RECURSION_DEPTHS):
                raise
        except RecursionError:
            raise SchemaRefused(
                SchemaReason.SCHEMA_TOO_LARGE, "the schema nests too deeply"
            ) from None
    raise AssertionError("unreachable")


def check(schema: Any) -> None:
    """SchemaRefused for a schema that can't be served, as far as that shows without compiling."""
    lowered(schema, lambda _: None)


def lower(schema: Any) -> str:
    """Return a regex (regex crate's syntax, to be matched whole) for the valid compact JSON texts.

    Bounds are unrolled, so the regex is self-contained. SchemaRefused carries the reason, the
    JSON pointer of the keyword in the way, and advice; NoRegexError says that the language is an
    intersection or a difference of others, which only an automaton holds.
    """
    return lower_counted(schema, Counting.NONE).regex


def lower_counted(schema: Any, counting: Counting = Counting.ALL) -> Lowered:
    """Return the regex with lengths and counts as marks for counters (`lowering.emit`)."""
    return lowered(schema, lambda term: write(term, counting))


def _satisfiable(term: Term) -> Term:
    if term == NEVER:
        raise SchemaRefused(
            SchemaReason.SCHEMA_UNSATISFIABLE,
            "no value satisfies the schema",
            advice="look for contradicting bounds, or a reference that must contain itself",
        )
    return term
