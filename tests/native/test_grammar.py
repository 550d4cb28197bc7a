"""Grammars over a vocabulary small enough to try every token, and tables that are broken."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pagemill._core import ByteDfa, Grammar, GrammarRows, RowState, TokenTrie
from pagemill.schemas.compile_worker import compile_schema

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "string", "minLength": 2, "maxLength": 6},
        "t": {"type": "array", "items": {"enum": ["ab", "é", None]}, "maxItems": 5},
        "p": {"type": ["number", "null"], "minimum": 0},
    },
    "required": ["n", "t"],
}
TOKENS = [bytes([byte]) for byte in range(256)] + [
    b'{"',
    b'{"n":"',
    b'","',
    b'","t":[',
    b'"],"',
    b"null",
    b"null,null",
    b"]}",
    b"abcd",
    b"abcdefg",
    "éé".encode(),
    "é".encode()[1:] + b"a",
    b'\\n\\"',
    b'":[]}',
    b"",
    b"ab",
    b"ab",
]
EOS = [len(TOKENS), len(TOKENS) + 2]
VOCABULARY = [*TOKENS, b"</s>", b"", b"<end>"]
SPECIAL = {TOKENS.index(b""), len(TOKENS) + 1}


@pytest.fixture(scope="module")
def dfa() -> ByteDfa:
    return ByteDfa.from_bytes(compile_schema(SCHEMA)[0])


@pytest.fixture(scope="module")
def grammar(dfa: ByteDfa) -> Grammar:
    return Grammar(dfa, TokenTrie(VOCABULARY, EOS))


def after(dfa: ByteDfa, row: RowState, text: bytes) -> RowState | None:
    row = row.copy()
    return row if all(dfa.step(row, byte) for byte in text) else None


def legal(dfa: ByteDfa, row: RowState) -> set[int]:
    """By brute force: each token, byte by byte."""
    ids = {
        token
        for token, text in enumerate(VOCABULARY)
        if token not in SPECIAL and token not in EOS and after(dfa, row, text) is not None
    }
    return ids | (set(EOS) if dfa.is_final(row.state) else set())


def ids(mask: np.ndarray) -> set[int]:
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def test_masks_are_what_brute_force_finds(dfa: ByteDfa, grammar: Grammar) -> None:
    draw = random.Random(5)
    finished = 0
    for _ in range(60):
        row = grammar.start()
        for _ in range(40):
            allowed = legal(dfa, row)
            assert ids(grammar.mask(row)) == allowed
            ordinary = sorted(allowed - set(EOS))
            if not ordinary:
                assert allowed == set(EOS)
                finished += 1
                break
            # Long tokens first, so that walks get through the record.
            token = max(draw.sample(ordinary, min(3, len(ordinary))), key=lambda t: VOCABULARY[t])
            moved = grammar.advance(row, token)
            assert moved is not None
            assert moved == after(dfa, row, VOCABULARY[token])
            row = moved
    assert finished > 5


def test_masks_are_shared(grammar: Grammar) -> None:
    grammar.mask(grammar.start())
    before = grammar.num_masks
    grammar.mask(grammar.start())
    assert grammar.num_masks == before > 0


def test_a_row_runs_to_its_only_end(dfa: ByteDfa, grammar: Grammar) -> None:
    rows = GrammarRows(3, len(VOCABULARY) + 5)
    rows.attach(1, grammar)
    slot = np.array([1], dtype=np.int32)
    ends = np.zeros(1, dtype=np.uint8)
    text = b'{"n":"abc","t":["ab",null]}'
    for byte in text:
        assert ends[0] == 0
        rows.advance(slot, np.array([byte], dtype=np.int32), ends)
    assert ends[0] == 1, "a final state without edges ends the row"
    mask = np.zeros((1, rows.num_words), dtype=np.int32)
    rows.fill_bitmask(slot, mask)
    assert ids(mask[0]) == set(EOS)
    rows.advance(slot, np.array([EOS[1]], dtype=np.int32), ends)
    assert ends[0] == 1


def test_an_illegal_token_moves_nothing(grammar: Grammar) -> None:
    rows = GrammarRows(2, len(VOCABULARY))
    rows.attach(0, grammar)
    rows.attach(1, grammar)
    before = [rows.state(slot) for slot in (0, 1)]
    brace, quote = ord("{"), ord('"')
    slots = np.array([0, 0, 1], dtype=np.int32)
    ends = np.zeros(3, dtype=np.uint8)
    for bad in (quote, EOS[0], *SPECIAL, -1, len(VOCABULARY) + 7):
        with pytest.raises(ValueError, match="not legal"):
            rows.advance(slots, np.array([brace, quote, bad], dtype=np.int32), ends)
        assert [rows.state(slot) for slot in (0, 1)] == before
    rows.advance(slots, np.array([brace, quote, brace], dtype=np.int32), ends)
    assert rows.state(0) != rows.state(1)


def test_drafts_are_counted_on_a_copy(grammar: Grammar) -> None:
    rows = GrammarRows(1, len(VOCABULARY))
    rows.attach(0, grammar)
    before = rows.state(0)
    draft = np.frombuffer(b'{"n":"\n"', dtype=np.uint8).astype(np.int32)
    assert rows.count_legal(0, draft) == 6
    assert rows.state(0) == before
    ends = np.zeros(6, dtype=np.uint8)
    rows.advance(np.zeros(6, dtype=np.int32), draft[:6], ends)
    rows.set_state(0, before)
    assert rows.state(0) == before


def test_masked_argmax(dfa: ByteDfa, grammar: Grammar) -> None:
    vocab = len(VOCABULARY) + 11
    rows = GrammarRows(4, vocab)
    draw = np.random.default_rng(3)
    for slot, text in ((0, b""), (1, b'{"n":"ab'), (3, b'{"n":"abc","t":["')):
        rows.attach(slot, grammar)
        tokens = np.frombuffer(text, dtype=np.uint8).astype(np.int32)
        rows.advance(np.full(len(text), slot, np.int32), tokens, np.zeros(len(text), np.uint8))
    slots = np.array([3, 2, 1, 0], dtype=np.int32)
    out = np.zeros(4, dtype=np.int32)
    mask = np.zeros((4, rows.num_words), dtype=np.int32)
    rows.fill_bitmask(slots, mask)
    bits = np.unpackbits(mask.view(np.uint8), axis=1, bitorder="little")[:, :vocab].astype(bool)
    for _ in range(20):
        logits = draw.integers(-3, 3, (4, vocab + 3)).astype(np.float32)  # many equal ones
        logits[0, 5] = np.nan
        rows.masked_argmax(logits.ctypes.data, vocab + 3, slots, out)
        expected = np.where(bits, logits[:, :vocab], -np.inf).argmax(axis=1)
        assert (out == expected).all()
    rows.detach(3)
    assert not rows.is_attached(3)


def test_bad_arguments_are_refused(grammar: Grammar) -> None:
    with pytest.raises(ValueError, match="slots"):
        GrammarRows(0, 10)
    rows = GrammarRows(2, len(VOCABULARY))
    with pytest.raises(ValueError, match="slot 2"):
        rows.attach(2, grammar)
    with pytest.raises(ValueError, match="logits of"):
        GrammarRows(2, 100).attach(0, grammar)
    with pytest.raises(ValueError, match="no grammar"):
        rows.state(0)
    with pytest.raises(ValueError, match="shape"):
        rows.fill_bitmask(np.zeros(2, np.int32), np.zeros((1, rows.num_words), np.int32))
    with pytest.raises(ValueError, match="state"):
        grammar.mask(100_000)
    with pytest.raises(ValueError, match="outside"):
        TokenTrie([b"a"], [1])
    with pytest.raises(ValueError, match="vocabulary"):
        TokenTrie([], [])


def test_what_the_automaton_knows(dfa: ByteDfa) -> None:
    assert dfa.forced_run(dfa.start) == b'{"n":"'
    assert dfa.distance(dfa.start) == len('{"n":"","t":[]}')
    row = RowState()
    row.state = dfa.start
    inside = after(dfa, row, b'{"n":"abc","t":[')
    assert inside is not None
    assert dfa.forced_run(inside.state) == b""
    final = after(dfa, row, b'{"n":"abc","t":[]}')
    assert final is not None
    assert dfa.is_final(final.state)
    assert not dfa.has_edges(final.state)
    assert dfa.distance(final.state) == 0
    json.loads(b'{"n":"abc","t":[]}')


TABLE, _, _ = compile_schema(SCHEMA)
PLACE = st.integers(0, len(TABLE) - 1)


@given(st.integers(0, len(TABLE)))
@settings(max_examples=60)
def test_a_truncated_table_is_refused(length: int) -> None:
    if length < len(TABLE):
        with pytest.raises(ValueError, match="grammar table"):
            ByteDfa.from_bytes(TABLE[:length])


@given(st.binary(max_size=400))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="grammar table"):
        ByteDfa.from_bytes(data)


@given(
    st.lists(
        st.tuples(st.integers(0, len(TABLE) - 1), st.integers(0, 255)), min_size=1, max_size=6
    ),
    st.integers(0, 2**32 - 1),
)
@example(damage=[(132, 0)], seed=0)  # leaves a class of bytes without a byte
@settings(max_examples=300, deadline=None)
def test_a_damaged_table_is_refused_or_safe(damage: list[tuple[int, int]], seed: int) -> None:
    table = bytearray(TABLE)
    for place, value in damage:
        # Half of the damage goes where it hurts: header, classes, operations.
        table[place % 320 if seed % 2 else place] = value
    try:
        dfa = ByteDfa.from_bytes(bytes(table))
    except ValueError:
        return
    grammar = Grammar(dfa, TokenTrie(VOCABULARY, EOS))
    draw = random.Random(seed)
    row = grammar.start()
    for _ in range(30):
        allowed = sorted(ids(grammar.mask(row)) - set(EOS))
        if not allowed:
            break
        moved = grammar.advance(row, draw.choice(allowed))
        assert moved is not None
        row = moved
        dfa.forced_run(row.state)
    rows = GrammarRows(1, len(VOCABULARY))
    slot, choice = np.zeros((2, 1), dtype=np.int32)
    for budget in (grammar.min_tokens, 40):
        rows.attach(0, grammar)
        rows.set_closing(0, tokens_left=budget, loops=True)
        logits = np.random.default_rng(seed).random(len(VOCABULARY), dtype=np.float32)
        for _ in range(budget):
            rows.masked_argmax(logits.ctypes.data, len(logits), slot, choice)
            if choice[0] < 0 or choice[0] in EOS:
                break
            rows.advance(slot, choice, np.zeros(1, dtype=np.uint8))
