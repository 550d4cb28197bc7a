"""The lines of the visible text, written without a tree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pagemill.extraction.page.lines import PageText, TextWriter


def test_a_definition_waits_for_its_words() -> None:
    writer = TextWriter()
    writer.start_block()
    writer.words("Colour")
    writer.join_next(": ")
    writer.end_line()
    writer.words("green")
    writer.end_line()
    assert writer.finish().text == "Colour: green"


def test_a_long_row_is_layout() -> None:
    writer = TextWriter()
    writer.start_row()
    for cell in ("menu " * 100, "content " * 100):
        writer.start_cell()
        writer.words(cell)
        writer.end_cell()
    writer.end_row()
    assert len(writer.finish().text.split("\n")) == 2


def test_rows_that_are_never_closed() -> None:
    writer = TextWriter()
    writer.start_row()
    writer.start_cell()
    writer.words("a")
    writer.end_cell()
    writer.start_cell()
    writer.words("b")
    assert writer.finish().text == "a | b"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("words"), st.text(max_size=8)),
        st.sampled_from(
            [
                ("end_line",),
                ("start_block", "- "),
                ("join_next", ": "),
                ("start_struck",),
                ("end_struck",),
                ("separate",),
                ("end_link", "/x"),
                ("start_row",),
                ("made", "["),
            ]
        ),
    ),
    max_size=40,
)


@given(STEPS)
def test_pieces_show_their_sources(steps: list[tuple[str, ...]]) -> None:
    writer = TextWriter()
    for name, *arguments in steps:
        getattr(writer, name)(*arguments)
    content = writer.finish()
    end = 0
    for low, high, source in zip(
        content.piece_starts, content.piece_ends, content.piece_sources, strict=True
    ):
        assert end <= low < high <= len(content.text)
        end = high
        assert content.text[low] in content.sources[source]
        assert "  " not in content.text[low:high]
    assert all(0 <= offset <= len(content.text) for offset, _ in content.links)


@given(st.text(max_size=200))
def test_plain_text_keeps_its_words(source: str) -> None:
    content = PageText.plain(source)
    for line in content.text.split("\n"):
        assert line == " ".join(line.split())
