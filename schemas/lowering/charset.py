"""Sets of code points as sorted, disjoint, inclusive ranges."""

from __future__ import annotations

from collections.abc import Iterable

CharSet = tuple[tuple[int, int], ...]

LAST = 0x10FFFF
# Every Unicode scalar value: surrogates stand for nothing in UTF-8.
ANY: CharSet = ((0, 0xD7FF), (0xE000, LAST))


def union(*sets: Iterable[tuple[int, int]]) -> CharSet:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(span for chars in sets for span in chars):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(chars: CharSet) -> CharSet:
    """All scalar values outside `chars`."""
    gaps = []
    start = 0
    for low, high in chars:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        gaps.append((start, LAST))
    return intersect(tuple(gaps), ANY)


def intersect(a: CharSet, b: CharSet) -> CharSet:
    common = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            common.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


def difference(a: CharSet, b: CharSet) -> CharSet:
    return intersect(a, complement(b))


def of(text: str) -> CharSet:
    """The set of the characters of `text`."""
    return union([(ord(char), ord(char)) for char in text])


def contains(chars: CharSet, code: int) -> bool:
    return any(low <= code <= high for low, high in chars)


DIGIT: CharSet = ((0x30, 0x39),)
WORD: CharSet = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
# WhiteSpace and LineTerminator of ECMA-262, section 12.
SPACE: CharSet = union(
    [(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)],
    [(0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)],
)
LINE_END: CharSet = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
