"""Forced text in the tokenizer's own tokens: masks against brute force, and whole records."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import tokenizers
from pagemill import _core
from pagemill.engine.byte_pairs import BytePairs
from pagemill.engine.tokenizer import _byte_alphabet
from pagemill.schemas.compile_worker import compile_schema

from .closing_rows import by_byte, decode
from .test_bpe import train

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9},
        "price": {"type": ["number", "null"], "minimum": 0, "maximum": 999},
        "currency": {"enum": ["EUR", "EURO", "USD", None]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 3},
        'it"s': {"const": {"b": [1, "two \u00e9"]}},
    },
    "required": ["name", "price", "currency", "tags", 'it"s'],
    "additionalProperties": False,
}


class Case:
    def __init__(self, folder: Path) -> None:
        trained = train(folder, tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False))
        alphabet = _byte_alphabet()
        pairs = BytePairs.of(json.loads(trained.to_str()), alphabet)
        assert pairs is not None
        self.encoder = pairs.encoder()
        size = trained.get_vocab_size()
        names = [trained.id_to_token(i) for i in range(size)]
        self.tokens = [
            b"" if name.startswith("<|") else name.translate(alphabet).encode("latin-1")
            for name in names
        ]
        self.trie = _core.TokenTrie(self.tokens, [self.tokens.index(b"")])
        self.dfa = _core.ByteDfa.from_bytes(compile_schema(SCHEMA)[0])
        self.grammar = _core.Grammar(self.dfa, self.trie, self.encoder)
        self.plain = _core.Grammar(self.dfa, self.trie)

    def ids(self, mask: Any) -> set[int]:
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        return set(np.flatnonzero(bits).tolist())


@pytest.fixture(scope="module")
def case(tmp_path_factory: Any) -> Case:
    return Case(tmp_path_factory.mktemp("bpe"))


def expected(case: Case, state: int, legal: set[int]) -> set[int]:
    """What is left of the legal tokens, from the definition."""
    run = case.dfa.forced_run(state)
    if not run:
        return legal
    own = case.encoder.encode(run).tolist()
    longer = {t for t in legal if len(case.tokens[t]) > len(run)}
    # The own split is settled up to where a token that goes on beyond the run could stand.
    starts = np.cumsum([0] + [len(case.tokens[t]) for t in own[:-1]]).tolist()
    for place in starts[-3:]:
        rest = run[place:]
        at = state
        for byte in run[:place]:
            at = case.dfa.next(at, byte)
        further = case.ids(case.plain.mask(at))
        if any(len(case.tokens[t]) > len(rest) for t in further):
            if place:
                return {own[0]}
            break
    else:
        return {own[0]}
    whole = {t for t in legal if len(case.tokens[t]) == len(run)}
    return longer | whole | {own[0]}


def test_masks_are_what_brute_force_finds(case: Case) -> None:
    forced = tails = 0
    for state in range(case.dfa.num_states):
        legal = case.ids(case.plain.mask(state))
        assert case.ids(case.grammar.mask(state, any_split=True)) == legal
        left = case.ids(case.grammar.mask(state))
        assert left == expected(case, state, legal)
        assert left
        assert left <= legal
        only = case.grammar.only_token(state)
        run = case.dfa.forced_run(state)
        if only >= 0:
            assert left == {only}
            forced += 1
        elif run:
            tails += len(left) < len(legal)
    assert forced > 20
    assert tails > 1


def test_every_walk_is_a_record_in_own_tokens(case: Case) -> None:
    rng = random.Random(5)
    for _ in range(60):
        row = case.grammar.start()
        text = b""
        while True:
            choices = sorted(case.ids(case.grammar.mask(row)))
            choices = [t for t in choices if case.tokens[t]]
            if not choices:
                break
            # Mostly towards an end: quotes, commas and brackets.
            closing = [t for t in choices if case.tokens[t][:1] in b'"]},n']
            token = rng.choice(closing if closing and rng.random() < 0.5 else choices)
            row = case.grammar.advance(row, token)
            text += case.tokens[token]
        record = json.loads(text)
        jsonschema.validate(record, SCHEMA)


def test_a_vocabulary_that_cannot_say_a_run_forces_nothing() -> None:
    tokens = [bytes([b]) for b in range(256)] + [b""]
    trie = _core.TokenTrie(tokens, [256])
    byte_ids = np.arange(256, dtype=np.int32)
    byte_ids[ord("n")] = -1
    none = np.zeros(0, dtype=np.int32)
    encoder = _core.BpeEncoder(
        byte_ids=byte_ids, merges=none, class_starts=none, classes=none.astype(np.uint8),
        split_digits=False,
    )  # fmt: skip
    dfa = _core.ByteDfa.from_bytes(compile_schema({"const": "nn"})[0])
    grammar = _core.Grammar(dfa, trie, encoder)
    assert grammar.only_token(dfa.start) == -1
    assert grammar.mask(dfa.start).any()


@pytest.mark.parametrize("most", [0, 3, 256])
def test_wanted_logits_are_enough(case: Case, most: int) -> None:
    """The same choices from the wanted logits alone, drafts, draws and closing included."""
    rng = np.random.default_rng(7)
    vocab = len(case.tokens)
    settled_ones = sparse_ones = 0
    for budget in (300, 12):
        rows = _core.GrammarRows(2, vocab)
        for slot, tokens_left in ((0, budget), (1, -1)):
            rows.attach(slot, case.grammar)
            rows.set_closing(slot, tokens_left=tokens_left, loops=False)
        slots = np.array([1, 0], dtype=np.int32)
        for text in (b'{"name":"', b'a","price":1,"currency":"EUR"', b',"tags":["x"]'):
            drafts = case.encoder.encode(text)
            starts = np.array([0, len(drafts), 2 * len(drafts)], dtype=np.int32)
            both = np.concatenate([drafts, drafts])
            positions = len(both) + 2
            logits = rng.normal(size=(positions, vocab)).astype(np.float32)
            full = np.empty(positions, dtype=np.int32)
            rows.masked_argmax(logits.ctypes.data, vocab, slots, full, starts, both)
            whole = np.array([0, 1], dtype=np.uint8)
            some, lines, count, sparse, outputs = rows.find_wanted(
                slots, starts, both, most=most, whole=whole
            )
            settled_ones += int((some >= 0).sum())
            sparse_ones += sparse
            assert (some[some >= 0] == full[some >= 0]).all()
            assert ((some < 0) == (lines >= 0)).all()
            assert sorted(lines[lines >= 0]) == list(range(count))
            assert 0 <= lines[starts[1] + 1] < count - sparse  # wanted as a whole
            needed = np.full((count, vocab), np.nan, dtype=np.float32)
            needed[lines[lines >= 0]] = logits[lines >= 0]
            unread = np.setdiff1d(np.arange(vocab), outputs)
            needed[count - sparse :, unread] = np.inf
            drawn, drawn_whole = some.copy(), np.empty_like(some)
            rows.masked_argmax(needed.ctypes.data, vocab, slots, some, starts, both, lines)
            assert (some == full).all()
            ones = np.ones(positions, dtype=np.float32)
            draw = {"temperature": ones, "top_p": ones, "uniforms": rng.random(positions)}
            rows.masked_sample(logits.ctypes.data, vocab, slots, drawn_whole, starts, both, **draw)
            rows.masked_sample(
                needed.ctypes.data, vocab, slots, drawn, starts, both, **draw, lines=lines
            )
            assert (drawn == drawn_whole).all()
            for slot in (0, 1):
                rows.advance(
                    np.full(len(drafts), slot, np.int32), drafts, np.zeros(len(drafts), np.uint8)
                )
    assert settled_ones > 10
    assert (sparse_ones > 10) == (most > 0)


def test_every_budget_gives_a_valid_record(case: Case) -> None:
    budgets = list(range(case.grammar.min_tokens, 101))
    vocab = len(case.tokens)
    rng = np.random.default_rng(11)
    never_ends = by_byte(case.tokens, b"x1", b'"]},')
    for logits in (
        lambda _, rows: rng.random((rows, vocab), dtype=np.float32),
        lambda _, rows: np.tile(never_ends, (rows, 1)),
    ):
        for row, budget in zip(
            decode(case.grammar, case.tokens, budgets, logits), budgets, strict=True
        ):
            assert row.ended or row.tokens == budget
            jsonschema.validate(json.loads(row.text), SCHEMA)
