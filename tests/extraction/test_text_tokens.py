"""Parts of a text have the ids that they would have alone, wherever they are cut."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction import text_tokens
from pagemill.extraction.text_tokens import TextTokens

pre = tokenizers.pre_tokenizers

SAMPLES = [
    "Shelf of oak, 80.5 EUR\n  Only 3 left!\nIt's ours\n\nthe shop's shelf  two spaces",
    "größe 12,5 cm²\n日本語のテキスト、価格は1,280円です。\nемкость 5 л\tдом",
    "<page>\n# Shelf\n</page>\n- item 1\n- item 2 \n",
]


def trained(split: list[Any], *, native: bool = True) -> Tokenizer:
    """A byte-level BPE of a few merges; `split` stands before the expression's split."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = pre.Sequence([*split, pre.ByteLevel(add_prefix_space=False)])
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        special_tokens=["<|end|>"],
        initial_alphabet=pre.ByteLevel.alphabet(),
    )
    model.train_from_iterator(SAMPLES * 3, trainer)
    spec = json.loads(model.to_str())
    return Tokenizer(spec, {"eos_token": "<|end|>"}, (0,), native=native)


TOKENIZERS = {
    "digits": trained([pre.Digits(individual_digits=True)]),
    "gpt2": trained([]),
    "not native": trained([pre.Digits(individual_digits=True)], native=False),
    # White space goes with what stands before it: lines aren't apart.
    "other": trained([pre.Split(tokenizers.Regex(r"\S+\s*"), "isolated")]),
}

LINES = st.lists(
    st.one_of(
        st.sampled_from(
            ["", " ", "a", "It's 5 EUR", " x", "y ", "\x1c", "é日本", "12", "# h", "\t"]
        ),
        st.text(alphabet=st.sampled_from(" '\n.s1aé🙂"), max_size=8),
        st.text(max_size=6),
    ),
    max_size=12,
).map("\n".join)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=300, deadline=None)
@given(
    text=LINES,
    before=st.sampled_from(["", "<page>\n", "x\n"]),
    after=st.sampled_from(["", "\n</page>", "\n\ntitle: x\n</page>", " more", "s"]),
    data=st.data(),
)
def test_parts_have_the_ids_that_they_have_alone(
    name: str, text: str, before: str, after: str, data: Any
) -> None:
    tokenizer = TOKENIZERS[name]
    tokens = TextTokens(tokenizer, text)
    for _ in range(3):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, len(text)))
        whole = tokenizer.encode(before + text[start:end] + after)
        assert np.array_equal(tokens.ids(start, end, before, after), whole)
    total = len(tokenizer.encode(text))
    most = data.draw(st.integers(0, 40))
    assert tokens.count_up_to(most) == min(total, most + 1)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_long_text_is_encoded_as_far_as_is_asked_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_tokens, "_CHUNK_CHARS", 200)
    tokenizer = TOKENIZERS[name]
    text = "\n".join(f"- item {i} for {i % 7}.50 EUR" for i in range(400))
    encoded: list[str] = []

    class Watched:
        lines_apart = tokenizer.lines_apart

        def encode(self, part: str) -> Any:
            return tokenizer.encode(part)

        def encode_with_starts(self, part: str) -> Any:
            encoded.append(part)
            return tokenizer.encode_with_starts(part)

    tokens = TextTokens(Watched(), text)
    assert tokens.count_up_to(100) == 101
    assert (len(text) > 10 * sum(map(len, encoded))) == tokenizer.lines_apart
    assert np.array_equal(tokens.ids(0, len(text)), tokenizer.encode(text))
    assert "".join(encoded) == text


@pytest.mark.parametrize("name", TOKENIZERS)
def test_places_by_tokens(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    text = "\n".join(SAMPLES)
    tokens = TextTokens(tokenizer, text)
    total = len(tokenizer.encode(text))
    assert tokens.reach(0, total) == tokens.reach(0, total + 5) == len(text)
    assert tokens.back(len(text), total) == 0
    places = [tokens.reach(0, count) for count in range(total)]
    assert places == sorted(places)
    assert all(abs(tokens.count(0, place) - count) <= 3 for count, place in enumerate(places))
    assert all(tokens.reach(place, 0) >= place for place in places)
