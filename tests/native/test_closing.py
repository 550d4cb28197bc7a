"""Records end, valid, within any number of tokens; what repeats without end is left."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill import schemas
from pagemill._core import ByteDfa, Grammar, GrammarRows, RowState, TokenTrie
from pagemill.schemas.compile_worker import compile_schema

from .closing_rows import CUT, LOOPED, Logits, Written, by_byte, decode

NEVER = 1 << 30
PIECES = b"""{" {"name":" "," ","price": ":null ,"url":null null,"image":null null null, "} "]} ]}
}] [" [" ":[]," ":null," an the Oak table 12 00 .5 true false \\n \\" \\u00e9 aaaa name
description url date http:// https:// ":[ null} ":" "}," {"@type":" 20 19
-01- T12: 0.0 99""".split()
VOCABULARY = [*(bytes([b]) for b in range(256)), *PIECES, b" a", "éé".encode(), b"", b""]
EOS = [len(VOCABULARY) - 1]

HARD: dict[str, Any] = {
    "long minimum": {"type": "string", "minLength": 40, "maxLength": 60},
    "nested minimums": {
        "type": "array",
        "minItems": 3,
        "maxItems": 9,
        "items": {
            "type": "array",
            "minItems": 2,
            "maxItems": 8,
            "items": {"type": "string", "minLength": 2, "maxLength": 9},
        },
    },
    "exact length": {"type": "string", "minLength": 8, "maxLength": 8},
    "pattern": {"type": "string", "pattern": "^[a-z]{3}-[0-9]{4}$"},
    "pattern and length": {
        "type": "string",
        "pattern": "^[a-z ]*(table|the Oak)$",
        "maxLength": 20,
    },
    "pattern and least length": {
        "type": "string",
        "pattern": "^[a-z]+(-[a-z]+)*$",
        "minLength": 20,
        "maxLength": 30,
    },
    "number": {"type": "number"},
    "integer": {"type": "integer", "minimum": 100, "maximum": 99999},
    "dates": {"type": "array", "items": {"type": "string", "format": "date-time"}, "maxItems": 4},
    "choice": {
        "anyOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "array", "items": {"type": "number"}, "minItems": 5, "maxItems": 50},
        ]
    },
}


def grammar_of(schema: Any, vocabulary: list[bytes] = VOCABULARY, eos: list[int] = EOS) -> Grammar:
    return Grammar(ByteDfa.from_bytes(compile_schema(schema)[0]), TokenTrie(vocabulary, eos))


def ids(mask: np.ndarray) -> set[int]:
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


# --- distances, against brute force ---------------------------------------------------------------

TINY = [b"{", b'"', b"a", b"b", b"ab", b'":', b"[", b"]", b",", b'"]', b"n", b"null", b"u", b"l",
        b"}", b'",', b":", b"t", b"abab", b""]  # fmt: skip
TINY_SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": ["string", "null"], "minLength": 3, "maxLength": 40},
        "t": {
            "type": "array",
            "items": {"enum": ["b", None]},
            "minItems": 3,
            "maxItems": 40,
        },
    },
    "required": ["a", "t"],
}


def explore(grammar: Grammar) -> tuple[dict[Any, RowState], dict[Any, set[int]], dict[Any, int]]:
    """All rows that tokens lead to, their legal tokens, and their distance to an end."""

    def key(row: RowState) -> Any:
        return (row.state, tuple(row.counters))

    start = grammar.start()
    rows, legal, into = {key(start): start}, {}, collections.defaultdict(set)
    pending = [start]
    final = []
    while pending:
        row = pending.pop()
        allowed = ids(grammar.mask(row))
        if len(TINY) - 1 in allowed:
            final.append(key(row))
        legal[key(row)] = allowed - {len(TINY) - 1}
        for token in legal[key(row)]:
            moved = grammar.advance(row, token)
            assert moved is not None
            into[key(moved)].add(key(row))
            if key(moved) not in rows:
                rows[key(moved)] = moved
                pending.append(moved)
    distance = dict.fromkeys(final, 0)
    queue = collections.deque(final)
    while queue:
        at = queue.popleft()
        for source in into[at] - distance.keys():
            distance[source] = distance[at] + 1
            queue.append(source)
    return rows, legal, distance


def test_distances_and_masks_are_what_brute_force_finds() -> None:
    grammar = grammar_of(TINY_SCHEMA, TINY, [len(TINY) - 1])
    rows, legal, distance = explore(grammar)
    assert len(rows) > 100
    assert grammar.min_tokens == distance[(grammar.start().state, (0,) * 6)]
    slots = GrammarRows(1, len(TINY))
    slot = np.zeros(1, dtype=np.int32)
    mask = np.zeros((1, slots.num_words), dtype=np.int32)
    narrowed = 0
    for key, row in rows.items():
        assert grammar.tokens_to_end(row) == distance.get(key, NEVER)
        for left in range(distance.get(key, 0), distance.get(key, 0) + 8):
            slots.attach(0, grammar)
            slots.set_closing(0, tokens_left=left, loops=False)
            slots.set_state(0, row)
            slots.fill_bitmask(slot, mask)
            fitting = set()
            for token in legal[key]:
                moved = grammar.advance(row, token)
                assert moved is not None
                if distance.get((moved.state, tuple(moved.counters)), NEVER) < left:
                    fitting.add(token)
            if key in distance and left:
                assert ids(mask[0]) - {len(TINY) - 1} == fitting
                assert slots.is_narrowed(0) or fitting == legal[key]
                narrowed += fitting != legal[key]
    assert narrowed > 100


def test_a_vocabulary_without_a_byte_is_led_round_it() -> None:
    vocabulary = [text for text in TINY if text not in (b"u", b"l")]
    grammar = grammar_of({"type": ["null", "boolean"]}, vocabulary, [len(vocabulary) - 1])
    assert grammar.min_tokens == 1, "only the whole word can be written"
    (row,) = decode(grammar, vocabulary, [3], lambda _, n: np.zeros((n, len(vocabulary)), "f4"))
    assert row.text == b"null"


def test_too_many_situations_are_let_be() -> None:
    schema: Any = {"type": "string", "minLength": 100, "maxLength": 200}
    for _ in range(3):
        schema = {"type": "array", "items": schema, "minItems": 30, "maxItems": 60}
    grammar = grammar_of(schema)
    assert grammar.min_tokens == 0
    (row,) = decode(grammar, VOCABULARY, [40], lambda _, n: np.zeros((n, len(VOCABULARY)), "f4"))
    assert row.tokens == 40
    assert not row.cut


# --- a sweep of budgets ---------------------------------------------------------------------------

Chooser = Callable[[int, int], Logits]


def choosers(vocabulary: list[bytes], window: int) -> dict[str, Chooser]:
    """Random logits; such that never end a string, or open all that can be opened."""
    noise = np.random.default_rng(11).random((window + 64, len(vocabulary)), dtype=np.float32)
    endless = by_byte(vocabulary, b"", b'"\\]}', seed=1)
    longest = by_byte(vocabulary, b"{[,", b"]}nE-", seed=2)
    verbose = by_byte(vocabulary, b'"[{', b"]}n", seed=3)
    return {
        "random": lambda step, rows: noise[step % 64 : step % 64 + rows],
        "endless strings": lambda _, rows: np.tile(endless, (rows, 1)),
        "longest ways": lambda _, rows: np.tile(longest, (rows, 1)),
        "many strings": lambda _, rows: np.tile(verbose, (rows, 1)),
    }


def check(written: list[Written], budgets: list[int], schema: Any, context: str) -> None:
    validator = schemas.Validator(schema)
    for row, budget in zip(written, budgets, strict=True):
        assert row.tokens <= budget
        try:
            value = json.loads(row.text)
        except ValueError:
            pytest.fail(f"{context}, {budget} tokens: {row.text!r}")
        assert not validator.errors(value), (context, budget, row.text)


def sweep(
    grammar: Grammar, schema: Any, vocabulary: list[bytes], budgets: list[int], loops: bool
) -> None:
    cut = 0
    for name, logits in choosers(vocabulary, len(budgets)).items():
        written = decode(grammar, vocabulary, budgets, logits, loops=loops)
        check(written, budgets, schema, name)
        cut += sum(row.cut for row in written)
    assert cut, "the sweep reaches budgets that are too small"


@pytest.mark.parametrize("name", [*schemas.library.names(), *HARD])
@pytest.mark.parametrize("loops", [False, True])
def test_every_budget_gives_a_valid_record(name: str, loops: bool) -> None:
    schema = HARD[name] if name in HARD else schemas.library.get(name)
    grammar = grammar_of(schema)
    least = grammar.min_tokens
    assert least > 0
    budgets = sorted({*range(least, least + 24), *range(least + 24, 301, 13), 300, least + 1})
    if name in ("exact length", "pattern", "integer", "number"):
        budgets = list(range(least, least + 12))
        for label, logits in choosers(VOCABULARY, len(budgets)).items():
            check(decode(grammar, VOCABULARY, budgets, logits, loops=loops), budgets, schema, label)
        return
    sweep(grammar, schema, VOCABULARY, budgets, loops)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("name", schemas.library.names())
def test_every_budget_of_the_default_model_s_vocabulary(
    name: str, canonical: bool, model_files: Any
) -> None:
    from pagemill.engine.tokenizer import Tokenizer
    from pagemill.engine.vocabulary import Vocabulary

    vocabulary = Vocabulary.of(Tokenizer.load(Path(model_files.directory)))
    schema = schemas.library.get(name)
    tokens = [
        b"" if token in vocabulary.eos_ids else text for token, text in enumerate(vocabulary.tokens)
    ]
    assert vocabulary.byte_pairs is not None
    grammar = Grammar(
        ByteDfa.from_bytes(compile_schema(schema)[0]),
        TokenTrie(tokens, list(vocabulary.eos_ids)),
        vocabulary.byte_pairs.encoder() if canonical else None,
    )
    budgets = list(range(grammar.min_tokens, 301))
    sweep(grammar, schema, tokens, budgets, loops=False)


# --- when it acts, and when not -------------------------------------------------------------------


def constant(row: Logits) -> Chooser:
    return lambda _, rows: np.tile(row, (rows, 1))


def test_enough_tokens_change_nothing() -> None:
    schema = schemas.library.get("product")
    grammar = grammar_of(schema)
    logits = choosers(VOCABULARY, 1)["random"]
    (free,) = decode(grammar, VOCABULARY, [4000], logits, bounded=False)
    assert free.ended
    (exact,) = decode(grammar, VOCABULARY, [free.tokens], logits)
    assert exact == free, "a record that fits is not marked"
    (less,) = decode(grammar, VOCABULARY, [free.tokens - 1], logits)
    assert less.cut
    assert less.tokens < free.tokens


def test_a_refused_token_leaves_the_budget() -> None:
    grammar = grammar_of({"type": "array", "items": {"type": "integer"}})
    rows = GrammarRows(1, len(VOCABULARY))
    rows.attach(0, grammar)
    rows.set_closing(0, tokens_left=4, loops=True)
    ends = np.zeros(3, dtype=np.uint8)
    slot = np.zeros(3, dtype=np.int32)
    before = np.zeros((1, rows.num_words), dtype=np.int32)
    after = np.zeros_like(before)
    rows.fill_bitmask(slot[:1], before)
    with pytest.raises(ValueError, match="not legal"):
        rows.advance(slot, np.frombuffer(b"[1x", np.uint8).astype(np.int32), ends)
    rows.fill_bitmask(slot[:1], after)
    assert (before == after).all()
    rows.advance(slot, np.frombuffer(b"[12", np.uint8).astype(np.int32), ends)
    rows.fill_bitmask(slot[:1], after)
    assert ids(after[0]) == {ord("]")}


def test_marks_need_a_better_token() -> None:
    grammar = grammar_of({"type": "string"})
    rows = GrammarRows(1, len(VOCABULARY))
    slot = np.zeros(1, dtype=np.int32)
    marks = np.zeros(1, dtype=np.uint8)
    for token, expected in ((ord('"'), 0), (ord("a"), CUT), (EOS[0], 0)):
        rows.attach(0, grammar)
        rows.set_closing(0, tokens_left=2, loops=False)
        rows.advance(slot, np.array([ord('"')], dtype=np.int32), np.zeros(1, dtype=np.uint8))
        assert rows.is_narrowed(0)
        rows.note_best(0, token)
        rows.take_marks(slot, marks)
        assert marks[0] == expected
        rows.take_marks(slot, marks)
        assert marks[0] == 0, "marks are told once"


# --- loops ----------------------------------------------------------------------------------------

PAIR = {
    "type": "object",
    "properties": {"s": {"type": "string"}, "t": {"type": ["string", "null"]}},
    "required": ["s", "t"],
}


def cycle(text: bytes, prefix: int = 0) -> Chooser:
    """Logits that want `text` again and again, byte by byte, after `prefix` forced bytes."""

    def logits(step: int, rows: int) -> Logits:
        row = by_byte(VOCABULARY, b"", b'"\\')
        row[text[(step - prefix) % len(text)]] += 40
        return np.tile(row, (rows, 1))

    return logits


@pytest.mark.parametrize(("text", "length"), [(b"a", 24), (b"no, ", 24), (b"a page of ours! ", 64)])
def test_a_string_that_repeats_is_closed(text: bytes, length: int) -> None:
    grammar = grammar_of({"type": "string"})
    (row,) = decode(grammar, VOCABULARY, [500], cycle(text, 1), bounded=False, loops=True)
    assert row.loops == 1
    assert row.ended
    assert row.tokens == 1 + length + 1, "a token that opens, the loop, one that closes"
    assert json.loads(row.text)[2:-1] == (text * length)[:length].decode()
    assert not row.cut
    (free,) = decode(grammar, VOCABULARY, [500], cycle(text, 1), bounded=False)
    assert free.tokens == 500
    assert free.loops == 0


def test_the_record_goes_on_after_a_loop() -> None:
    grammar = grammar_of(PAIR)
    row_of_logits = by_byte(VOCABULARY, b"x", b'"')
    (row,) = decode(grammar, VOCABULARY, [400], constant(row_of_logits), loops=True)
    record = json.loads(row.text)
    assert set(record) == {"s", "t"}
    assert row.loops >= 1
    assert row.ended
    assert row.tokens < 120


def test_numbers_without_end_are_closed() -> None:
    grammar = grammar_of({"type": "array", "items": {"type": "number"}, "minItems": 2})
    sevens = constant(by_byte(VOCABULARY, b"7", b""))
    (row,) = decode(grammar, VOCABULARY, [60], sevens, loops=True)
    first, *_ = row.text[1:].split(b",")
    assert 25 <= len(first) <= 26
    assert row.loops >= 1
    assert len(json.loads(row.text)) >= 2


def test_repetition_across_strings_is_none() -> None:
    grammar = grammar_of({"type": "array", "items": {"enum": ["a", "b"]}})
    (row,) = decode(grammar, VOCABULARY, [400], cycle(b'"a",', 1), bounded=False, loops=True)
    assert row.tokens == 400
    assert row.loops == 0


def test_a_loop_depends_on_the_row_alone_and_on_no_resumption() -> None:
    grammar = grammar_of(PAIR)
    logits = by_byte(VOCABULARY, b"x", b'"')
    alone = decode(grammar, VOCABULARY, [90], constant(logits), loops=True)
    together = decode(grammar, VOCABULARY, [90, 60, 80, 300], constant(logits), loops=True)
    assert together[0] == alone[0]
    # Replayed token by token, as after a preemption, each mask is the same again.
    rows = GrammarRows(2, len(VOCABULARY))
    for slot in (0, 1):
        rows.attach(slot, grammar)
        rows.set_closing(slot, tokens_left=90, loops=True)
    tokens: list[int] = []
    one, two = np.zeros(1, dtype=np.int32), np.ones(1, dtype=np.int32)
    choice, end = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.uint8)
    masks = np.zeros((2, rows.num_words), dtype=np.int32)
    marks = np.zeros(1, dtype=np.uint8)
    looped = 0
    while not end[0]:
        rows.attach(1, grammar)
        rows.set_closing(1, tokens_left=90, loops=True)
        rows.advance(np.ones(len(tokens), np.int32), np.array(tokens, np.int32),
                     np.zeros(len(tokens), np.uint8))  # fmt: skip
        rows.fill_bitmask(np.concatenate([one, two]), masks)
        assert (masks[0] == masks[1]).all()
        rows.masked_argmax(logits.ctypes.data, len(logits), one, choice)
        rows.advance(one, choice, end)
        rows.take_marks(one, marks)
        looped += bool(marks[0] & LOOPED)
        tokens.append(int(choice[0]))
    assert looped == alone[0].loops > 0
