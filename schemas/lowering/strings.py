"""Terms for strings: lengths, patterns, formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import pattern as patterns
from .charset import ANY, CharSet
from .facts import counts, each
from .formats import EXACT, FORMATS, UNSUPPORTED
from .keywords import VERBATIM, invalid, refuse_keyword
from .terms import NEVER, String, Term, Worded

if TYPE_CHECKING:
    from .layers import Conjunction, Layer


def string(layers: Conjunction, *, standard: bool) -> Term:
    """The strings that a conjunction allows."""
    low, high = counts(layers, "minLength", "maxLength")
    if high is not None and low > high:
        return NEVER
    if (asking := verbatim(layers)) is not None:
        return _spans(layers, asking, high)
    said = _languages(layers, standard=standard)
    if not said:
        return String(ANY, low, high)
    if len(said) == 1:
        ((text, node),) = said.items()
        repeated = _repeated_character(node)
        if repeated is not None:
            chars, least, most = repeated
            low = max(low, least)
            high = most if high is None else high if most is None else min(high, most)
            return NEVER if high is not None and low > high else String(chars, low, high)
        least, most = patterns.lengths_of(text)
        low = 0 if least >= low else low
        high = None if most is not None and high is not None and most <= high else high
    return Worded(tuple(said), low, high)


def verbatim(layers: Conjunction) -> Layer | None:
    """The layer that asks for spans of the page."""
    asking = None
    saying = tuple(layer for layer in layers if isinstance(layer.schema, dict))
    for value, layer in each(saying, VERBATIM):
        if not isinstance(value, bool):
            raise invalid(VERBATIM, layer.at, "needs true or false")
        if value and (layer.checked or layer.negated):
            raise refuse_keyword(
                VERBATIM,
                layer.at,
                what="verbatim in a condition",
                advice="move it out of not, if and contains",
            )
        if value and asking is None:
            asking = layer
    return asking


def _spans(layers: Conjunction, asking: Layer, high: int | None) -> Term:
    for keyword in ("pattern", "format", "minLength"):
        for value, layer in each(layers, keyword):
            if keyword == "minLength" and value <= 1:
                continue
            raise refuse_keyword(
                keyword,
                layer.at,
                what=f"{keyword} beside {VERBATIM}",
                advice=f"drop one of the two: a span of the page is taken as it is; only "
                f"maxLength bounds it ({asking.at or '/'})",
            )
    return NEVER if high == 0 else String(ANY, 1, high, verbatim=True)


def _languages(layers: Conjunction, *, standard: bool) -> dict[str, patterns.Node]:
    """The different languages that patterns and formats name, as patterns and trees."""
    said: dict[str, patterns.Node] = {}
    for value, layer in each(layers, "pattern"):
        if not isinstance(value, str):
            raise invalid("pattern", layer.at, "needs a string")
        node = parse(value, "pattern", layer.at)
        if node != patterns.Cat((patterns.ANYTHING,)):
            said[value] = node
    for value, layer in sorted(each(layers, "format"), key=lambda said: said[1].checked):
        if not isinstance(value, str):
            raise invalid("format", layer.at, "needs a string")
        if value not in FORMATS:
            if standard and value not in UNSUPPORTED:
                continue
            raise refuse_keyword(
                "format",
                layer.at,
                what=f"unsupported format {value!r}",
                advice=f"use a pattern, or one of {', '.join(sorted(FORMATS))}",
            )
        text = f"^(?:{FORMATS[value]})$"
        if layer.checked and value not in EXACT and text not in said:
            raise refuse_keyword(
                "format",
                layer.at,
                what="a format that a condition asks for",
                advice="use a pattern",
            )
        said[text] = parse(text, "format", layer.at)
    return said


def parse(text: str, keyword: str, at: str) -> patterns.Node:
    try:
        return patterns.parse(text)
    except patterns.PatternError as error:
        raise refuse_keyword(
            keyword, at, what=f"unsupported pattern ({error})", advice="simplify the pattern"
        ) from None


def _repeated_character(
    node: patterns.Node,
) -> tuple[CharSet, int, int | None] | None:
    """`[class]{low,high}` as its parts."""
    if isinstance(node, patterns.Cat) and len(node.parts) == 1:
        node = node.parts[0]
    if (
        isinstance(node, patterns.Repeat)
        and isinstance(node.node, patterns.Chars)
        and node.node.chars
    ):
        return node.node.chars, node.low, node.high
    return None
