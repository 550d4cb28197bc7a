"""Regexes for characters inside a JSON string, and literal text, in the regex crate's syntax."""

from __future__ import annotations

from .charset import CharSet, contains, difference, of, union

SHORT_ESCAPES = {
    0x08: "b",
    0x09: "t",
    0x0A: "n",
    0x0C: "f",
    0x0D: "r",
    0x22: '"',
    0x2F: "/",
    0x5C: "\\",
}
# What never stands raw in a string: RFC 8259, section 7. DEL and the C1 controls may, but no
# text wants them, and a class of few ranges keeps the automaton small.
NEVER_RAW = union([(0x00, 0x1F), (0x7F, 0x7F)], of('"\\'))
# Controls that are written \u00XX.
NUMERIC_ESCAPES = [code for code in [*range(0x20), 0x7F] if code not in SHORT_ESCAPES]

_ESCAPABLE = frozenset(map(chr, [*SHORT_ESCAPES, *NUMERIC_ESCAPES]))


def escapable(text: str) -> bool:
    """Whether a character of `text` may or must be escaped in a JSON string."""
    return not _ESCAPABLE.isdisjoint(text)


def literal(text: str) -> str:
    """A regex for exactly `text`."""
    return "".join(
        char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):X}}}" for char in text
    )


def _ranges(chars: CharSet) -> str:
    parts = []
    for low, high in chars:
        parts.append(f"\\x{{{low:X}}}" if low == high else f"\\x{{{low:X}}}-\\x{{{high:X}}}")
    return "[" + "".join(parts) + "]"


def character(chars: CharSet) -> str:
    """A regex for one character of `chars` as it may stand in a JSON string, grouped.

    Quote, backslash and control characters are escaped, in their short form where there is one,
    else as \\u00XX; a slash may stand either way. "" when `chars` is empty.
    """
    options = []
    raw = difference(chars, NEVER_RAW)
    if raw:
        options.append(_ranges(raw))
    short = [letter for code, letter in SHORT_ESCAPES.items() if contains(chars, code)]
    escapes = []
    if short:
        escapes.append("[" + "".join(f"\\x{{{ord(letter):X}}}" for letter in short) + "]")
    escapes.extend(_numeric([code for code in NUMERIC_ESCAPES if contains(chars, code)]))
    if escapes:
        options.append(
            "\\x{5C}" + (escapes[0] if len(escapes) == 1 else f"(?:{'|'.join(escapes)})")
        )
    if not options:
        return ""
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"


def _numeric(codes: list[int]) -> list[str]:
    """Regexes for u00XX of the codes, those that differ in the last digit together."""
    by_high: dict[int, list[int]] = {}
    for code in codes:
        by_high.setdefault(code >> 4, []).append(code & 15)
    regexes = []
    for high, lows in by_high.items():
        digits = "".join(
            sorted({case(f"{low:x}") for low in lows for case in (str.lower, str.upper)})
        )
        regexes.append(f"u00{high:x}[{digits}]")
    return regexes
