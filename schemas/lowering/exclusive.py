"""Whether two conjunctions provably share no value that could be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .facts import closed, counts, declared, number_bounds, required, types

if TYPE_CHECKING:
    from .layers import Conjunction, Expander

MAX_DEPTH = 4
_COUNTED = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}


def disjoint(expander: Expander, written: Conjunction, other: Conjunction, depth: int = 0) -> bool:
    """True when no value written for `written` satisfies `other`; False when that isn't proven.

    Objects are written with declared members only, unless the schema is read as the standard has
    it, so `other` is out of reach when it requires a member that `written` doesn't declare.
    """
    # Fewer layers of the one mean more values; those of the other must all be read.
    written = tuple(layer for layer in written if not layer.negated)
    other = tuple(layer for layer in other if not layer.negated)
    listed = expander.values.listed(written)
    if listed is not None:
        return not any(expander.values.satisfies(value, other) for value in listed)
    shared = _kinds(types(written, infer=True)) & _kinds(types(other, infer=False))
    listed = expander.values.listed(other)
    if listed is not None and not any(expander.values.satisfies(v, written) for v in listed):
        return True
    return all(_apart(expander, kind, written, other, depth) for kind in shared)


def _kinds(names: frozenset[str]) -> set[str]:
    """The types, every number of one kind."""
    return {"number" if name == "integer" else name for name in names}


def _apart(
    expander: Expander, kind: str, written: Conjunction, other: Conjunction, depth: int
) -> bool:
    if kind == "number":
        return _ranges_apart(written, other)
    if kind in _COUNTED:
        (low, high), (other_low, other_high) = (
            counts(c, *_COUNTED[kind]) for c in (written, other)
        )
        return (high is not None and high < other_low) or (
            other_high is not None and other_high < low
        )
    return (
        kind == "object" and depth < MAX_DEPTH and _objects_apart(expander, written, other, depth)
    )


def _ranges_apart(written: Conjunction, other: Conjunction) -> bool:
    ours, theirs = number_bounds(written), number_bounds(other)
    for upper, lower in ((ours[1], theirs[0]), (theirs[1], ours[0])):
        if upper is None or lower is None:
            continue
        if upper.value < lower.value:
            return True
        if upper.value == lower.value and not (upper.inclusive and lower.inclusive):
            return True
    return False


def _objects_apart(
    expander: Expander, written: Conjunction, other: Conjunction, depth: int
) -> bool:
    ours, theirs = declared(written), declared(other)
    if not ours:
        return False  # written with free keys
    if not expander.standard and any(key not in ours for key in required(other)):
        return True
    for key in required(written):
        if closed(other) and key not in theirs:
            return True
        if key not in theirs or key not in ours:
            continue
        pairs = (
            expander.disjoint(a, b, depth + 1)
            for a in expander.alternatives(ours[key])
            for b in expander.alternatives(theirs[key])
        )
        if all(pairs):
            return True
    return False
