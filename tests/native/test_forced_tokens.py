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
