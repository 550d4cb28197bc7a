"""Long texts in windows: nothing is lost between them, and each fits."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pagemill.engine.protocol import Output
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction.bound_schema import BoundSchema, bind
from pagemill.extraction.extractor import Extractor
from pagemill.extraction.reason import Reason
from pagemill.extraction.record import ExtractOptions, PageInput, Result
from pagemill.extraction.text_tokens import TextTokens
from pagemill.extraction.windows import Window, split

from .scripted import SCHEMA, ScriptedEngine

_Ids = NDArray[np.int32]


class Pieces:
    """A token for each match of an expression; ids count from 0."""

    def __init__(self, pattern: str, *, lines_apart: bool) -> None:
        self._pattern = re.compile(pattern)
        self.lines_apart = lines_apart

    def encode(self, text: str) -> _Ids:
        return self.encode_with_starts(text)[0]

    def encode_with_starts(self, text: str) -> tuple[_Ids, _Ids]:
        starts = [match.start() for match in self._pattern.finditer(text)]
        return np.arange(len(starts), dtype=np.int32), np.array(starts, np.int32)


WORDS = [Pieces(r"\S+", lines_apart=apart) for apart in (False, True)]
CHARACTERS = Pieces(r"(?s).", lines_apart=False)


def words(text: str) -> int:
    return len(text.split())


def windows_of(
    encoder: Pieces, text: str, room: int, most: int, first: int = 0
) -> tuple[list[Window], bool]:
    return split(TextTokens(encoder, text), room, most, first=first)


TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "bb", "corner", "d" * 40]), min_size=1, max_size=30).map(
        " ".join
    ),
    max_size=60,
).map("\n".join)


@given(
    encoder=st.sampled_from(WORDS),
    text=TEXTS,
    room=st.integers(4, 60),
    most=st.integers(1, 40),
    first=st.integers(0, 300),
)
def test_windows_cover_the_text_in_order(
    encoder: Pieces, text: str, room: int, most: int, first: int
) -> None:
    first = min(first, len(text))
    windows, left_over = windows_of(encoder, text, room, most, first)
    assert 1 <= len(windows) <= most
    covered = first
    for window in windows:
        assert words(window.text) <= room
        assert window.text.startswith(window.repeated)
        assert text[window.start : window.end] == window.text
        assert not text[covered : window.start].strip()
        assert text[window.start : covered] == window.repeated
        covered = window.end
    assert left_over == bool(text[covered:].strip())
    if len(windows) < most:
        assert not left_over


def test_borders_are_those_of_lines() -> None:
    text = "\n".join(f"line {i} of some words" for i in range(100))
    windows, left_over = windows_of(WORDS[1], text, 60, 20)
    assert not left_over
    assert len(windows) == 9
    for window in windows:
        assert all(line.startswith("line ") for line in window.text.split("\n"))
        assert window.text.endswith("words")
        assert words(window.text) == 60 or window is windows[-1]
    assert windows[1].repeated == "line 11 of some words"


@pytest.mark.parametrize("text", ["", "\n\n", "x" * 5000, "x " * 5000, "é" * 3000 + "\n" + "y"])
def test_texts_without_borders(text: str) -> None:
    windows, _ = windows_of(CHARACTERS, text, 64, 1000)
    assert all(len(window.text) <= 64 for window in windows)
    assert max((windows[i].text for i in range(len(windows))), key=len, default="") in text
    rebuilt = "".join(window.text[len(window.repeated) :] for window in windows)
    assert rebuilt.replace("\n", "").replace(" ", "") == text.replace("\n", "").replace(" ", "")


LONG = b"<h1>Shelf</h1>" + b"<p>Some words of it.</p>" * 60 + b"<p>Only oak, 80.5 EUR</p>"


@pytest.fixture(scope="module")
def schema() -> BoundSchema:
    return bind(SCHEMA)


def long_page(
    tokenizer: Tokenizer, schema: BoundSchema, answers: dict[str, str | Output]
) -> Result:
    extractor = Extractor(tokenizer, model="scripted")
    engine = ScriptedEngine(tokenizer, answers)
    options = ExtractOptions(max_page_tokens=900, max_windows=2)
    page = PageInput(id="1", body=LONG)
    [result] = extractor.run(engine, [(page, schema)], options)
    assert len(engine.requests) == 2
    return result


def test_a_long_page_has_one_record_of_all_its_windows(
    byte_tokenizer: Tokenizer, schema: BoundSchema
) -> None:
    answers: dict[str, str | Output] = {
        "# Shelf": '{"name":"Shelf","price":null,"note":null}',
        "Only oak": '{"name":"Oak of another","price":80.5,"note":null}',
    }
    result = long_page(byte_tokenizer, schema, answers)
    assert result.record == {"name": "Shelf", "price": 80.5, "note": None}
    assert {evidence.pointer for evidence in result.evidence} == {"/name", "/price"}
    assert (result.windows, result.page_cut) == (2, False)
    assert result.usage.prompt_tokens == 14


def test_a_window_without_a_record_is_passed_by(
    byte_tokenizer: Tokenizer, schema: BoundSchema
) -> None:
    answers: dict[str, str | Output] = {
        "# Shelf": '{"name":',
        "Only oak": '{"name":"Only oak","price":80.5,"note":null}',
    }
    result = long_page(byte_tokenizer, schema, answers)
    assert result.record == {"name": "Only oak", "price": 80.5, "note": None}
    answers["Only oak"] = "[]"
    result = long_page(byte_tokenizer, schema, answers)
    assert result.error is not None
    assert result.error.reason == Reason.RECORD_INVALID


def test_a_window_that_the_engine_gave_up_fails_the_page(
    byte_tokenizer: Tokenizer, schema: BoundSchema
) -> None:
    lost = Output("", finish="error", reason="engine_error", message="lost")
    answers = {"# Shelf": '{"name":"Shelf","price":null,"note":null}', "Only oak": lost}
    result = long_page(byte_tokenizer, schema, answers)
    assert result.error is not None
    assert result.error.transient
