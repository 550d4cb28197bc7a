"""The C++ encoder against the `tokenizers` package, and the page's index."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from pagemill import _core
from pagemill.engine.byte_pairs import BytePairs
from pagemill.engine.tokenizer import Tokenizer, _byte_alphabet

TEXTS = [
    '{"name":"Makita DHP485 Drill","price":129.99,"currency":"EUR","tags":["18 V","2 Ah"]}',
    "It's the shop's; we'll, they've, I'm, you'd, 'tis 'S 'RE 'x '",
    "  two  spaces   three\n\n\nlines\t\ttabs \u00a0nbsp\u2003em\u3000wide  ",
    "größe 12,5 cm² – ½ Tasse · naïve café № 7 Ⅻ ①",
    "日本語のテキスト、価格は1,280円です。한국어 텍스트 عربي ١٢٣ हिन्दी",
    "emoji 👩‍👩‍👧 🇩🇪 e\u0301 zero\u200bwidth \ufeff bom \u0085 nel",
    "a\rb\r\nc\x0bd\x0ce\x1cf\x1fg\x7f\x00h",
    "https://shop.example/p/42?ref=%20a&b=c#top <b>bold</b> ----- ===== !!!??",
    " ", "\n", "  \n  ", "x  ", " 1 2  3 ", "12345678901234567890",
]  # fmt: skip


def train(folder: Path, pre_tokenizer: Any) -> Any:
    """A byte-level BPE trained on the texts themselves, so that no model is needed."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = pre_tokenizer
    trained.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=700,
        show_progress=False,
        special_tokens=["<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    trained.train_from_iterator(TEXTS * 3, trainer)
    return trained


def both(trained: Any) -> tuple[_core.BpeEncoder, Any]:
    pairs = BytePairs.of(json.loads(trained.to_str()), _byte_alphabet())
    assert pairs is not None
    return pairs.encoder(), trained


pre = tokenizers.pre_tokenizers


@pytest.fixture(scope="module", params=["digits", "gpt2"])
def encoders(request: Any, tmp_path_factory: Any) -> tuple[_core.BpeEncoder, Any]:
    split: list[Any] = [pre.Digits(individual_digits=True)] if request.param == "digits" else []
    split.append(pre.ByteLevel(add_prefix_space=False))
    return both(train(tmp_path_factory.mktemp("bpe"), pre.Sequence(split)))


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_encoded_alike(encoders: Any, text: str) -> None:
    ours, theirs = encoders
    assert ours.encode(text.encode()).tolist() == theirs.encode(text).ids


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet=st.one_of(st.characters(codec="utf-8"), st.sampled_from(" '\n.s1aé"))))
def test_any_text_is_encoded_alike(encoders: Any, text: str) -> None:
    ours, theirs = encoders
    assert ours.encode(text.encode()).tolist() == theirs.encode(text).ids


@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from([*TEXTS, "name", "é", "日本語", "xyz" * 40, "0", " "]), max_size=20
    )
)
def test_long_pieces_and_places(encoders: Any, parts: list[str]) -> None:
    """Without spaces whole lines are one piece, which takes the heap."""
    ours, theirs = encoders
    text = "".join("".join(parts).split(" "))
    ids, starts = ours.encode_with_starts(text.encode())
    encoding = theirs.encode(text)
    assert ids.tolist() == encoding.ids
    # The package names the character that a token begins in, we the next one where it is cut.
    later = [
        ours - theirs for ours, (theirs, _) in zip(starts.tolist(), encoding.offsets, strict=True)
    ]
    assert set(later) <= {0, 1}
    assert all(
        not late or len(text[start].encode()) > 1
        for late, (start, _) in zip(later, encoding.offsets, strict=True)
    )


def test_a_page_of_one_piece_takes_no_time_of_its_square(encoders: Any) -> None:
    ours, theirs = encoders
    text = "namecurrency" * 40_000
    assert ours.encode(text.encode()).tolist() == theirs.encode(text).ids


def test_bytes_that_are_no_text_keep_their_bytes(encoders: Any) -> None:
    ours, theirs = encoders
    rng = random.Random(3)
    for _ in range(50):
        data = rng.randbytes(rng.randrange(1, 30))
        tokens = [theirs.id_to_token(i) for i in ours.encode(data).tolist()]
        assert "".join(tokens).translate(_byte_alphabet()).encode("latin-1") == data


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "NFC"}},
        {"pre_tokenizer": {"type": "Metaspace"}},
        {"pre_tokenizer": None},
        {"model": {"type": "Unigram"}},
    ],
    ids=str,
)
def test_other_tokenizers_get_no_encoder(tmp_path: Path, change: dict[str, Any]) -> None:
    spec = json.loads(train(tmp_path, pre.ByteLevel(add_prefix_space=False)).to_str())
    assert BytePairs.of(spec, _byte_alphabet()) is not None
    assert BytePairs.of(spec | change, _byte_alphabet()) is None


@pytest.mark.model
def test_the_default_tokenizer(model_files: Any) -> None:
    """With PAGEMILL_TEST_PAGES set to a folder, its text files are compared too."""
    tokenizer = Tokenizer.load(model_files.directory)
    assert tokenizer.byte_pairs is not None
    encoder = tokenizer.byte_pairs.encoder()
    texts = list(TEXTS)
    folder = os.environ.get("PAGEMILL_TEST_PAGES")
    if folder:
        files = sorted(p for p in Path(folder).rglob("*") if p.suffix in (".html", ".json", ".txt"))
        texts += [p.read_text("utf-8", "replace")[:20_000] for p in files[:300]]
    for text in texts:
        assert np.array_equal(encoder.encode(text.encode()), tokenizer.encode(text))


def longest_suffix(text: bytes, context: bytes) -> int:
    lengths = range(min(len(context), 64), 2, -1)
    return next((n for n in lengths if context[-n:] in text), 0)


@settings(max_examples=200, deadline=None)
@given(text=st.binary(max_size=200).map(lambda b: bytes(x % 4 for x in b)), data=st.data())
def test_the_longest_suffix_is_found(text: bytes, data: Any) -> None:
    cut = data.draw(st.integers(0, len(text)))
    index = _core.TextIndex(text[:cut])
    index.append(text[cut:])
    context = data.draw(st.binary(max_size=80).map(lambda b: bytes(x % 4 for x in b)))
    start = data.draw(st.integers(0, max(0, len(text) - 1)))
    context += text[start : start + data.draw(st.integers(0, 70))]
    end, length = index.find_suffix(context)
    assert length == longest_suffix(text, context)
    if length:
        assert text[end - length : end] == context[-length:]
    stop = data.draw(st.integers(0, len(text) + 1))
    end, length = index.find_suffix(context, stop=stop)
    assert length == longest_suffix(text[: max(0, stop - 1)], context)
    assert end < stop


def test_the_nearest_of_equal_places_is_found() -> None:
    index = _core.TextIndex(b"abc1 abc2 abc3")
    assert [index.find_suffix(b"abc", near)[0] for near in (0, 7, 99)] == [3, 8, 13]
    with pytest.raises(ValueError, match="text of"):
        _core.TextIndex(b"x" * (1024 * 1024 + 1))
