"""Masks over the default model's whole vocabulary are those of Outlines' own index."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from outlines_core import Guide, Index, Vocabulary
from pagemill._core import ByteDfa, Grammar, GrammarRows, TokenTrie
from pagemill.engine.store import ModelFiles
from pagemill.engine.tokenizer import Tokenizer
from pagemill.schemas import Validator, library, lower
from pagemill.schemas.compile_worker import compile_schema

pytestmark = pytest.mark.model
# Outlines' index over the whole vocabulary takes time and memory in proportion to the bounds.
BOUND = 8
QUICK = [("product", 2), ("job_posting", 2)]


def cut(schema: Any, bound: int) -> Any:
    """A copy with short bounds."""
    if isinstance(schema, list):
        return [cut(item, bound) for item in schema]
    if not isinstance(schema, dict):
        return schema
    bounds = {"maxLength", "maxItems", "minLength", "minItems"}
    return {
        key: min(value, bound) if key in bounds and isinstance(value, int) else cut(value, bound)
        for key, value in schema.items()
    }


@pytest.fixture(scope="module")
def tokenizer(model_files: ModelFiles) -> Tokenizer:
    return Tokenizer.load(model_files.directory)


@pytest.fixture(scope="module")
def trie(tokenizer: Tokenizer) -> TokenTrie:
    return TokenTrie(tokenizer.token_bytes(), tokenizer.eos_ids)


@pytest.mark.parametrize(
    ("name", "bound"),
    [*QUICK, *(pytest.param(name, BOUND, marks=pytest.mark.slow) for name in library.names())],
)
@pytest.mark.timeout(600)
def test_masks_equal_those_of_outlines(
    name: str, bound: int, tokenizer: Tokenizer, trie: TokenTrie
) -> None:
    schema = cut(library.get(name), bound)
    by_bytes: dict[bytes, list[int]] = {}
    for token, text in enumerate(tokenizer.token_bytes()):
        if text and token not in tokenizer.eos_ids:
            by_bytes.setdefault(text, []).append(token)
    eos = tokenizer.eos_ids[0]
    guide = Guide(Index(lower(schema), Vocabulary(eos, by_bytes)), 0)
    grammar = Grammar(ByteDfa.from_bytes(compile_schema(schema)[0]), trie)
    theirs = np.zeros(trie.num_words, dtype=np.int32)
    draw = random.Random(name)
    finished = 0
    for _ in range(4):
        guide.reset()
        row = grammar.start()
        for _ in range(250):
            guide.write_mask_into(theirs.ctypes.data, theirs.size, 4)
            # Outlines knows one end-of-sequence id, a model may have several.
            other = np.array(tokenizer.eos_ids[1:], dtype=np.int64)
            ours = grammar.mask(row)
            ours[other // 32] &= ~(np.int32(1) << (other % 32).astype(np.int32))
            assert (ours == theirs).all()
            allowed = np.flatnonzero(np.unpackbits(ours.view(np.uint8), bitorder="little"))
            token = int(draw.choice(allowed))
            if token == eos:
                finished += 1
                break
            guide.advance(token, return_tokens=False)
            moved = grammar.advance(row, token)
            assert moved is not None
            row = moved
    assert finished


@pytest.mark.parametrize("name", library.names())
def test_random_decoding_ends_in_a_valid_record(
    name: str, tokenizer: Tokenizer, trie: TokenTrie
) -> None:
    """Uncut bounds, random logits: what the masks let through is a valid record."""
    schema = library.get(name)
    validator = Validator(schema)
    rows = GrammarRows(8, trie.vocab_size)
    grammar = Grammar(ByteDfa.from_bytes(compile_schema(schema)[0]), trie)
    draw = np.random.default_rng(len(name))
    texts = tokenizer.token_bytes()
    bias = np.zeros(trie.vocab_size, dtype=np.float32)
    for token, text in enumerate(texts):
        # Records get done sooner when quotes and brackets are likely.
        bias[token] = 3.0 if set(text) & set(b'"]}') else 0.0
    live = list(range(8))
    out: list[bytes] = [b""] * 8
    for slot in live:
        rows.attach(slot, grammar)
    for _ in range(6000):
        slots = np.array(live, dtype=np.int32)
        logits = draw.standard_normal((len(live), trie.vocab_size), dtype=np.float32) + bias
        tokens = np.zeros(len(live), dtype=np.int32)
        rows.masked_argmax(logits.ctypes.data, trie.vocab_size, slots, tokens)
        ends = np.zeros(len(live), dtype=np.uint8)
        rows.advance(slots, tokens, ends)
        for slot, token in zip(live, tokens, strict=True):
            out[slot] += texts[token]
        live = [slot for slot, end in zip(live, ends, strict=True) if not end]
        if not live:
            break
    assert len(live) < 8
    for slot in set(range(8)) - set(live):
        assert validator.errors(json.loads(out[slot])) == []
