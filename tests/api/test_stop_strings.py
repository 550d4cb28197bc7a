"""A text that grows in any pieces is cut at its first stop string."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pagemill.extraction.api.stop_strings import StopStrings

pieces = st.lists(st.text(alphabet="ab\n", max_size=4), max_size=12)
stops = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=3)


@given(pieces=pieces, stops=stops)
def test_equals_cutting_the_whole(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    growing = StopStrings(stops)
    passed = ""
    for piece in pieces:
        passed += growing.push(piece)
        if growing.stopped:
            break
    passed += "" if growing.stopped else growing.flush()
    if not any(stop in whole for stop in stops):
        assert not growing.stopped
        assert passed == whole
    else:
        assert growing.stopped
        assert whole.startswith(passed)
        assert not any(stop in passed for stop in stops)
        assert any(whole[len(passed) :].startswith(stop) for stop in stops)


def test_nothing_is_held_back_without_need() -> None:
    growing = StopStrings(["END"])
    assert growing.push("abc") == "abc"
    assert growing.push("E") == ""
    assert growing.push("x") == "Ex"
    assert growing.push("EN") == ""
    assert growing.flush() == "EN"
