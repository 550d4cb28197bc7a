"""Regular expressions of JSON Schema's `pattern` (ECMA-262) as a tree over code points.

Only what denotes a regular language is read: no look-around, no back-references, no word
boundaries. Lazy quantifiers denote the same language as greedy ones.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from dataclasses import dataclass

from . import charset
from .charset import CharSet
from .json_text import character

MAX_NODES = 5000
MAX_REPEAT = 5000
MAX_ANCHORED = 64


class PatternError(ValueError):
    """A pattern that can't be read, or says more than a regular language can."""


@dataclass(frozen=True)
class Chars:
    """One character of a set; never, when the set is empty."""

    chars: CharSet


@dataclass(frozen=True)
class Cat:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Or:
    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    node: Node
    low: int
    high: int | None


@dataclass(frozen=True)
class Edge:
    """An anchor: the start or the end of the text."""

    start: bool


Node = Chars | Cat | Or | Repeat | Edge

ANYTHING = Repeat(Chars(charset.ANY), 0, None)
_DOT = charset.complement(charset.LINE_END)
_CLASSES = {
    "d": charset.DIGIT,
    "D": charset.complement(charset.DIGIT),
    "w": charset.WORD,
    "W": charset.complement(charset.WORD),
    "s": charset.SPACE,
    "S": charset.complement(charset.SPACE),
}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.nodes = 0

    def fail(self, what: str) -> PatternError:
        return PatternError(f"{what} at character {self.at}")

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def take(self) -> str:
        char = self.peek()
        if not char:
            raise self.fail("ends too early")
        self.at += 1
        return char

    def skip(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def alternatives(self, depth: int) -> Node:
        if depth > 50:
            raise self.fail("groups nest too deeply")
        options = [self.sequence(depth)]
        while self.skip("|"):
            options.append(self.sequence(depth))
        return options[0] if len(options) == 1 else Or(tuple(options))

    def sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.peek() not in ("", "|", ")"):
            self.nodes += 1
            if self.nodes > MAX_NODES:
                raise self.fail("too long")
            parts.append(self.quantified(self.atom(depth)))
        return parts[0] if len(parts) == 1 else Cat(tuple(parts))

    def quantified(self, node: Node) -> Node:
        bounds = self.bounds()
        if bounds is None:
            return node
        self.skip("?")
        if isinstance(node, Edge):
            raise self.fail("repeats an anchor")
        return Repeat(node, *bounds)

    def bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.skip(sign):
                return bounds
        if self.peek() != "{":
            return None
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : max(end, self.at)].partition(",")
        if end < 0 or not low.isdecimal() or not (high == "" or high.isdecimal()):
            return None  # a brace that stands for itself
        self.at = end + 1
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if least > MAX_REPEAT or (most is not None and (most > MAX_REPEAT or most < least)):
            raise self.fail("repeat count out of range")
        return least, most

    def atom(self, depth: int) -> Node:
        char = self.take()
        if char == "(":
            return self.group(depth)
        if char == "[":
            return Chars(self.bracket())
        if char == ".":
            return Chars(_DOT)
        if char in "^$":
            return Edge(start=char == "^")
        if char == "\\":
            return Chars(self.escape(in_class=False))
        if char in "*+?":
            raise self.fail("nothing to repeat")
        return Chars(charset.of(char))

    def group(self, depth: int) -> Node:
        if self.skip("?"):
            if self.skip("<") and self.peek() not in "=!":
                while self.take() != ">":
                    pass
            elif not self.skip(":"):
                raise self.fail("look-around or inline flags")
        node = self.alternatives(depth + 1)
        if not self.skip(")"):
            raise self.fail("a group without its end")
        return node

    def escape(self, in_class: bool) -> CharSet:
        char = self.take()
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _CONTROLS:
            return charset.of(chr(_CONTROLS[char]))
        if char == "b" and in_class:
            return charset.of("\b")
        if char in "bB":
            raise self.fail("word boundary")
        if char in "pP":
            named = self.property()
            return charset.complement(named) if char == "P" else named
        if char == "c":
            return charset.of(chr(ord(self.take()) % 32))
        if char == "x":
            return charset.of(chr(self.hex(2)))
        if char == "u":
            return self.unicode_escape()
        if char == "0" and not self.peek().isdigit():
            return charset.of("\0")
        if char.isdigit() or char == "k":
            raise self.fail("back-reference")
        return charset.of(char)

    def hex(self, digits: int) -> int:
        text = self.text[self.at : self.at + digits]
        self.at += digits
        try:
            return int(text, 16)
        except ValueError:
            raise self.fail("not a hexadecimal number") from None

    def unicode_escape(self) -> CharSet:
        if self.skip("{"):
            end = self.text.find("}", self.at)
            code = self.hex(max(end - self.at, 0))
            self.at += 1
        else:
            code = self.hex(4)
            if 0xD800 <= code <= 0xDBFF and self.skip("\\u"):
                code = 0x10000 + ((code - 0xD800) << 10) + (self.hex(4) - 0xDC00)
        if not 0 <= code <= charset.LAST:
            raise self.fail("no such code point")
        return ((code, code),)

    def property(self) -> CharSet:
        if not self.skip("{"):
            raise self.fail("a property without its name")
        end = self.text.find("}", self.at)
        name = self.text[self.at : end] if end > 0 else ""
        self.at = end + 1
        chars = general_category(name.removeprefix("gc=").removeprefix("General_Category="))
        if not chars:
            raise self.fail(f"unknown property {name!r}")
        return chars

    def bracket(self) -> CharSet:
        negated = self.skip("^")
        members: list[CharSet] = []
        while self.peek() != "]":
            low = self.member()
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.take()
                high = self.member()
                if (
                    len(low) == len(high) == 1
                    and low[0][0] == low[0][1]
                    and high[0][0] == high[0][1]
                ):
                    if low[0][0] > high[0][0]:
                        raise self.fail("a range that runs back")
                    low = ((low[0][0], high[0][0]),)
                else:  # a class at one end: the hyphen stands for itself
                    low = charset.union(low, high, charset.of("-"))
            members.append(low)
        self.take()
        chars = charset.intersect(charset.union(*members), charset.ANY)
        return charset.complement(chars) if negated else chars

    def member(self) -> CharSet:
        char = self.take()
        return self.escape(in_class=True) if char == "\\" else charset.of(char)


@functools.lru_cache(maxsize=64)
def general_category(name: str) -> CharSet:
    """The characters of a Unicode general category (`L`, `Lu`, `Letter`, ...); () if unknown."""
    longer = {"Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Number": "N"}
    longer |= {"Decimal_Number": "Nd", "Punctuation": "P", "Separator": "Z", "Symbol": "S"}
    wanted = longer.get(name, name)
    if not 1 <= len(wanted) <= 2:
        return ()
    codes = (code for span in charset.ANY for code in range(span[0], span[1] + 1))
    found = ((c, c) for c in codes if unicodedata.category(chr(c)).startswith(wanted))
    return charset.union(found)


def exactly(text: str) -> str:
    """The pattern that only `text` matches."""
    return "^" + re.sub(r"[\^$\\.*+?()\[\]{}|/]", r"\\\g<0>", text) + "$"


@functools.lru_cache(maxsize=1024)
def parse(pattern: str) -> Node:
    """Return the tree of the whole texts that `pattern` matches somewhere in.

    The result holds no anchors: unanchored ends are spelled out. PatternError says what can't be.
    """
    parser = _Parser(pattern)
    node = parser.alternatives(0)
    if parser.at < len(pattern):
        raise parser.fail("an unmatched parenthesis")
    return _anchored(node)


def _anchored(node: Node) -> Node:
    """Rewrite anchors at the ends into `anything` around the unanchored ends."""
    branches = [_spelled_out(branch) for branch in _branches(node)]
    return branches[0] if len(branches) == 1 else Or(tuple(branches))


def _branches(node: Node) -> list[Node]:
    """The alternatives, with those that hold anchors lifted out of groups to the top."""
    if not _has_edge(node):
        return [node]
    if isinstance(node, Or):
        return [branch for option in node.options for branch in _branches(option)]
    if not isinstance(node, Cat):
        return [node]
    result: list[tuple[Node, ...]] = [()]
    for part in node.parts:
        options = _branches(part)
        result = [(*done, *_parts(option)) for done in result for option in options]
        if len(result) > MAX_ANCHORED:
            raise PatternError("too many alternatives with anchors")
    return [Cat(parts) for parts in result]


def _spelled_out(node: Node) -> Node:
    parts = list(_parts(node))
    starts = ends = False
    while parts and parts[0] == Edge(start=True):
        parts.pop(0)
        starts = True
    while parts and parts[-1] == Edge(start=False):
        parts.pop()
        ends = True
    if any(_has_edge(part) for part in parts):
        raise PatternError("an anchor inside the pattern")
    if not starts:
        parts.insert(0, ANYTHING)
    if not ends and parts != [ANYTHING]:
        parts.append(ANYTHING)
    return Cat(tuple(parts))


def _parts(node: Node) -> tuple[Node, ...]:
    return node.parts if isinstance(node, Cat) else (node,)


def _has_edge(node: Node) -> bool:
    if isinstance(node, Edge):
        return True
    if isinstance(node, Cat):
        return any(_has_edge(part) for part in node.parts)
    if isinstance(node, Or):
        return any(_has_edge(option) for option in node.options)
    return isinstance(node, Repeat) and _has_edge(node.node)


@functools.lru_cache(maxsize=1024)
def lengths_of(pattern: str) -> tuple[int, int | None]:
    """`lengths` of a pattern's tree."""
    return lengths(parse(pattern))


def lengths(node: Node) -> tuple[int, int | None]:
    """The least and greatest length of a text, in characters; None is without limit."""
    if isinstance(node, Chars):
        return 1, 1
    if isinstance(node, Cat):
        low = 0
        total: int | None = 0
        for part in node.parts:
            least, most = lengths(part)
            low += least
            total = None if total is None or most is None else total + most
        return low, total
    if isinstance(node, Or):
        bounds = [lengths(option) for option in node.options]
        highs = [high for _, high in bounds]
        return min(low for low, _ in bounds), None if None in highs else max(
            h for h in highs if h is not None
        )
    if isinstance(node, Repeat):
        low, most = lengths(node.node)
        if most == 0 or node.high == 0:
            return 0, 0
        return low * node.low, None if most is None or node.high is None else most * node.high
    return 0, 0


def regex(node: Node) -> str:
    """The regex of the texts as they stand in a JSON string; PatternError when there are none."""
    if isinstance(node, Chars):
        text = character(node.chars)
        if not text:
            raise PatternError("a class that no character is in")
        return text
    if isinstance(node, Cat):
        return "".join(regex(part) for part in node.parts)
    if isinstance(node, Or):
        return "(?:" + "|".join(regex(option) for option in node.options) + ")"
    if isinstance(node, Repeat):
        inner = regex(node.node)
        if node.high is None:
            count = "*" if node.low == 0 else "+" if node.low == 1 else f"{{{node.low},}}"
        else:
            count = "?" if (node.low, node.high) == (0, 1) else f"{{{node.low},{node.high}}}"
        return f"(?:{inner}){count}" if inner else ""
    raise PatternError("an anchor inside the pattern")
