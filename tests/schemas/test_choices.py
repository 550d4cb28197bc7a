"""The automaton of given texts holds these texts and no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagemill import schemas
from pagemill._core import ByteDfa

texts = st.text("ab€\n", min_size=1, max_size=5)


@given(st.sets(texts, min_size=1, max_size=12), st.sets(texts))
def test_the_texts_and_no_others(choices: set[str], others: set[str]) -> None:
    automaton = ByteDfa.from_bytes(schemas.compile_choices(sorted(choices)).table)
    for text in choices | others:
        assert automaton.accepts(text.encode()) == (text in choices)
    assert not automaton.accepts(b"")


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ([], "schema_invalid"),
        ([""], "schema_invalid"),
        (["yes", ""], "schema_invalid"),
        (["\ud800"], "schema_invalid"),
        (["x" * 9000, "y" * 9000], "schema_too_large"),
    ],
)
def test_what_is_no_choice_is_refused(choices: list[str], reason: str) -> None:
    with pytest.raises(schemas.SchemaRefused) as refused:
        schemas.compile_choices(choices)
    assert refused.value.reason == reason
