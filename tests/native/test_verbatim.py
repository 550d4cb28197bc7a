"""Verbatim strings are spans of the page, whatever the logits, the budget and the drafts say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pagemill._core import ByteDfa, Grammar, GrammarRows, PageSpans, TokenTrie, suffix_array
from pagemill.schemas import SchemaRefused
from pagemill.schemas.compile_worker import compile_schema

from .closing_rows import decode

# What the reference says of characters: letters form words, and marks attach.
SPACES = " \n\t\u00a0"
WORD = "abé7_"
ATTACHED = "\u0301\u200d\u0e35"
OTHER = '"\\/.$😀東京ไทက'
BARRIERS = "\x01\x7f"

WORDS = b"""{" {"name":" "," ","price": ":null null null, "} "]} [" a.b \\" \\\\ \\n foo bar"""
PIECES = [*WORDS.split(), b"foo ", b" a", b'a b"', b'":"a', "éb".encode(), "東京".encode(), b'b","']
VOCABULARY = [*(bytes([b]) for b in range(256)), *PIECES, b""]
EOS = [len(VOCABULARY) - 1]


def spans(text: str, most: int = 2000) -> set[str]:
    """All spans of a small text, by the definition."""
    joined = [False] * (len(text) + 1)  # no border before this character
    base = ""  # the kind of the character that marks attach to
    kinds = []
    for i, char in enumerate(text):
        kind = next(
            name
            for name, chars in [
                ("space", SPACES),
                ("word", WORD),
                ("mark", ATTACHED),
                ("other", OTHER),
                ("barrier", BARRIERS),
            ]
            if char in chars
        )
        if kind != "barrier" and base not in ("", "barrier"):
            after_joiner = text[i - 1] == "\u200d"
            joined[i] = kind == "mark" or after_joiner or (kind == base == "word")
        if not (kind == "mark" and base not in ("", "barrier")):
            base = kind
        kinds.append((kind, base))
    found = set()
    for start in range(len(text)):
        if joined[start] or kinds[start][0] in ("space", "barrier"):
            continue
        for end in range(start + 1, min(len(text), start + most) + 1):
            if kinds[end - 1][0] == "barrier":
                break
            if not joined[end] and kinds[end - 1][1] != "space":
                found.add(text[start:end])
    return found


def written(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


TEXTS = st.text(SPACES + WORD + ATTACHED + OTHER + BARRIERS, max_size=24)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(1, 30))
def test_the_walk_knows_all_spans(text: str, most: int) -> None:
    page = PageSpans(text.encode())
    legal = spans(text, most)
    for start in range(len(text)):
        for end in range(start, len(text) + 1):
            piece = text[start:end]
            assert page.admits(written(piece), most) == (piece in legal), piece


@given(st.binary(max_size=60))
def test_any_bytes_make_a_page(data: bytes) -> None:
    page = PageSpans(data)
    for word in data.split():
        if not page.admits(word):
            continue
        assert word.decode() in data.decode(errors="replace")


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=40),
        st.text("ab", max_size=60).map(str.encode),
        st.tuples(st.binary(max_size=4), st.integers(0, 30), st.binary(max_size=3)).map(
            lambda parts: parts[0] * parts[1] + parts[2]
        ),
    )
)
def test_suffixes_in_order(text: bytes) -> None:
    assert suffix_array(text).tolist() == sorted(range(len(text)), key=lambda i: text[i:])


@pytest.mark.parametrize(
    "text",
    [
        b"a" * 100_000,
        b"ab" * 50_000,
        b"a " * 50_000 + b"b",
        b"\0" * 1000 + b"a\0" * 20_000,
        "東京".encode() * 5_000,
        b"<li>same</li>\n" * 7_000,
    ],
)
def test_suffixes_of_what_repeats(text: bytes) -> None:
    """Each neighbour in the order is the larger one, told by ranks: suffixes are long here."""
    order = suffix_array(text)
    ranks = np.empty(len(text) + 1, dtype=np.int64)
    ranks[order] = np.arange(1, len(text) + 1)
    ranks[len(text)] = 0
    first = np.frombuffer(text, dtype=np.uint8)[order]
    rest = ranks[order + 1]
    assert sorted(order.tolist()) == list(range(len(text)))
    assert ((first[1:] > first[:-1]) | ((first[1:] == first[:-1]) & (rest[1:] > rest[:-1]))).all()


def test_repetitive_and_long_pages() -> None:
    page = PageSpans(b"a " * 20_000)
    assert page.admits(b"a a a")
    assert not page.admits(b"a a a ")
    assert page.admits(b"a " * 999 + b"a")
    assert not page.admits(b"a " * 1000 + b"a")
    assert not PageSpans(b"x" * 2001).admits(b"x" * 2001, 2000)
    assert not PageSpans(b"").admits(b"")
    assert not PageSpans(b" \n ").admits(b"")


STRING: dict[str, Any] = {"type": ["string", "null"], "x-pagemill-verbatim": True}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": STRING,
        "price": {"type": ["integer", "null"], "maximum": 999, "minimum": 0},
        "parts": {"type": "array", "items": {**STRING, "maxLength": 9}, "maxItems": 4},
        "free": {"type": ["string", "null"], "maxLength": 12},
    },
    "required": ["name", "price", "parts", "free"],
    "additionalProperties": False,
}


def grammar_of(schema: dict[str, Any]) -> Grammar:
    table, _, _ = compile_schema(schema)
    return Grammar(ByteDfa.from_bytes(table), TokenTrie(VOCABULARY, EOS))


GRAMMAR = grammar_of(SCHEMA)


def check(text: bytes, page: str) -> None:
    record = json.loads(text)
    assert Draft202012Validator(SCHEMA).is_valid(record)
    assert record["name"] is None or record["name"] in spans(page)
    for part in record["parts"]:
        assert part is None or part in spans(page, 9)


PAGES = [
    "",
    "  ",
    'a b "quoted" a\\b foo\n\tbar.',
    "東京 é\u0301b 😀 a\u00a0b foo bar foo",
    "a" * 40 + " " + "foo bar " * 6,
    "\x01a\x7f b",
]
LETTERS = 'quotedfr"'


@pytest.mark.parametrize("number", range(len(PAGES)))
@pytest.mark.parametrize("seed", range(3))
def test_records_are_whole_at_every_budget(number: int, seed: int) -> None:
    page = PAGES[number].translate({ord(c): "a" for c in "quotedfr"})
    budgets = list(range(GRAMMAR.min_tokens, 121))
    random = np.random.default_rng([number, seed])
    lean = random.normal(size=len(VOCABULARY)).astype(np.float32) * seed
    lean[ord('"')] += 3 * (seed == 1)

    def logits(step: int, rows: int) -> Any:
        return random.normal(size=(rows, len(VOCABULARY))).astype(np.float32) + lean

    for row in decode(
        GRAMMAR, VOCABULARY, budgets, logits, loops=True, page=PageSpans(page.encode())
    ):
        check(row.text, page)


def test_without_a_page_they_are_null() -> None:
    def logits(step: int, rows: int) -> Any:
        row = np.zeros((rows, len(VOCABULARY)), dtype=np.float32)
        row[:, ord('"')] = 5
        return row

    for row in decode(GRAMMAR, VOCABULARY, [60], logits):
        record = json.loads(row.text)
        assert record["name"] is None


def test_masks_are_those_of_the_automaton_and_the_page() -> None:
    page = PageSpans('a b "ab" 東京 foo bar'.encode())
    row = GRAMMAR.start(page)
    random = np.random.default_rng(5)
    for _ in range(300):
        mask = GRAMMAR.mask(row)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(VOCABULARY)]
        legal = [t for t in range(len(PIECES) + 256) if GRAMMAR.advance(row, t) is not None]
        assert np.flatnonzero(bits[: EOS[0]]).tolist() == legal
        if not legal:
            row = GRAMMAR.start(page)
            continue
        moved = GRAMMAR.advance(row, int(random.choice(legal)))
        assert moved is not None
        row = moved


def test_masks_follow_the_page_wherever_it_lies() -> None:
    """Masks of the latest pages are kept; one that comes to lie where another lay has its own."""
    start = b'{"name":"'
    for letter in b"abfobr" * 40:
        page = PageSpans(bytes([letter]) * 3)
        row: Any = GRAMMAR.start(page)
        for byte in start:
            row = GRAMMAR.advance(row, byte)
        for _ in range(2):
            bits = np.unpackbits(GRAMMAR.mask(row).view(np.uint8), bitorder="little")[:256]
            assert np.flatnonzero(bits).tolist() == [letter]
        del row, page


def test_pages_do_not_mix() -> None:
    rows = GrammarRows(2, len(VOCABULARY))
    rows.attach(0, GRAMMAR, PageSpans(b"foo"))
    rows.attach(1, GRAMMAR, PageSpans(b"bar"))
    start = b'{"name":"'
    for slot in (0, 1):
        for byte in start:
            rows.advance(
                np.array([slot], np.int32), np.array([byte], np.int32), np.zeros(1, np.uint8)
            )
    assert [rows.count_legal(slot, np.array(list(b'foo"'), np.int32)) for slot in (0, 1)] == [4, 0]
    assert [rows.count_legal(slot, np.array(list(b'bar"'), np.int32)) for slot in (0, 1)] == [0, 4]
    with pytest.raises(ValueError, match="another page"):
        rows.set_state(1, rows.state(0))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "not null": ({**STRING, "type": "string"}, "/properties/a/x-pagemill-verbatim"),
    "pattern": ({**STRING, "pattern": "^a"}, "/properties/a/pattern"),
    "format": ({**STRING, "format": "date"}, "/properties/a/format"),
    "least length": ({**STRING, "minLength": 2}, "/properties/a/minLength"),
    "enum": ({**STRING, "enum": ["a", None]}, "/properties/a/x-pagemill-verbatim"),
    "number": ({"type": "integer", **{k: v for k, v in STRING.items() if k != "type"}},
               "/properties/a/x-pagemill-verbatim"),
    "no boolean": ({**STRING, "x-pagemill-verbatim": 1}, "/properties/a/x-pagemill-verbatim"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    schema, at = REFUSED[name]
    with pytest.raises(SchemaRefused) as refused:
        compile_schema({"type": "object", "properties": {"a": schema}})
    assert refused.value.at == at
    assert refused.value.advice or name == "no boolean"
