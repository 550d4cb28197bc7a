"""One record out of those of a page's windows.

Scalars: the first window's value that stands in its text, else the first that is there at all.
Objects: member by member. Arrays: one after the other, but for items that two windows both saw
because they overlap; real repeats stay.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from pagemill.schemas import Validator

from .grounding import Searchable
from .windows import Window


def merge(records: Sequence[Any], windows: Sequence[Window], validator: Validator) -> Any:
    """Return the record of the windows' records, in order, each of which obeys the schema.

    Arrays that together exceed what the schema allows lose their last items, or their repeats. If
    the whole breaks the schema in another way, the first record is the answer.
    """
    if len(records) == 1:
        return records[0]
    merged = validator.trimmed(_Merger(windows).value(list(enumerate(records))))
    return merged if not validator.errors(merged) else records[0]


Candidate = tuple[int, Any]  # number of the window, its value


class _Merger:
    def __init__(self, windows: Sequence[Window]) -> None:
        self._texts = [Searchable(window.text) for window in windows]
        self._repeated = [Searchable(window.repeated) for window in windows]

    def value(self, candidates: list[Candidate]) -> Any:
        present = [one for one in candidates if one[1] not in (None, "", [], {})]
        if not present:
            return candidates[0][1]
        first = present[0][1]
        if isinstance(first, dict):
            return self._object([one for one in present if isinstance(one[1], dict)])
        if isinstance(first, list):
            return self._array([one for one in present if isinstance(one[1], list)])
        for window, value in present:
            if _stands(self._texts[window], value):
                return value
        return first

    def _object(self, candidates: list[Candidate]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for _, record in candidates:
            for key in record:
                if key not in merged:
                    merged[key] = self.value(
                        [(window, other[key]) for window, other in candidates if key in other]
                    )
        return merged

    def _array(self, candidates: list[Candidate]) -> list[Any]:
        merged: list[Any] = []
        before = -1
        for window, items in candidates:
            shared = 0
            if before == window - 1:
                shared = _shared(merged, items, self._repeated[window])
            for i in range(shared):
                merged[i - shared] = _richer(merged[i - shared], items[i])
            merged.extend(copy.deepcopy(items[shared:]))
            before = window
        return merged


def _shared(earlier: Sequence[Any], later: Sequence[Any], repeated: Searchable) -> int:
    """How many of the last items of `earlier` are the first of `later`, seen twice."""
    for count in range(min(len(earlier), len(later)), 0, -1):
        pairs = list(zip(earlier[-count:], later[:count], strict=True))
        if all(_agree(a, b) and _seen_twice(b, repeated) for a, b in pairs):
            return count
    return 0


def _agree(a: Any, b: Any) -> bool:
    """Whether two items may be the same thing: equal but for what only one of them has."""
    if isinstance(a, dict) and isinstance(b, dict):
        both = [key for key in a if key in b and None not in (a[key], b[key])]
        return bool(both) and all(_agree(a[key], b[key]) for key in both)
    return bool(a == b)


def _seen_twice(item: Any, repeated: Searchable) -> bool:
    leaves = list(_leaves(item))
    return bool(leaves) and any(_stands(repeated, leaf) for leaf in leaves)


def _richer(a: Any, b: Any) -> Any:
    if isinstance(a, dict) and isinstance(b, dict):
        return {key: b[key] if a.get(key) is None and key in b else a[key] for key in a} | {
            key: value for key, value in b.items() if key not in a
        }
    return a


def _leaves(value: Any) -> Iterator[str | int | float]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield value


def _stands(text: Searchable, value: Any) -> bool:
    return isinstance(value, str | int | float) and (
        not isinstance(value, bool) and bool(text.places(value))
    )
