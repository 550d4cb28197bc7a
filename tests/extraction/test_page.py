"""Pages as read: every case is NAME.html beside NAME.json, which says what must come out.

`text` is the whole visible text; `has` and `lacks` are parts of it; `metadata` are lines of the
metadata block; `links` are URLs; `refused` is the reason.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagemill.extraction.page import Page, PageLimits, read
from pagemill.extraction.reason import Reason, Refused

CASES = Path(__file__).parent / "cases" / "pages"
DEMO = Path(__file__).parents[2] / "demo" / "pages"


def cases() -> list[str]:
    return sorted(path.stem for path in CASES.glob("*.json"))


@pytest.mark.parametrize("name", cases())
def test_case(name: str) -> None:
    expected: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    [body_file] = [path for path in CASES.glob(f"{name}.*") if path.suffix != ".json"]
    page = read(
        body_file.read_bytes(),
        url=expected.get("url"),
        content_type=expected.get("content_type"),
    )
    if "text" in expected:
        assert page.text.split("\n") == expected["text"]
    for part in expected.get("has", []):
        assert part in page.text
    for part in expected.get("lacks", []):
        assert part not in page.text
        assert part not in "\n".join(page.metadata.lines())
    for line in expected.get("metadata", []):
        assert line in page.metadata.lines()
    if "links" in expected:
        assert [link.url for link in page.links()] == expected["links"]
    check_places(page)


def test_menus_are_kept_where_they_are_asked_for() -> None:
    body = (CASES / "menus.html").read_bytes()
    without, whole = read(body).text.split("\n"), read(body, menus=True).text.split("\n")
    assert [line for line in whole if line in without] == without
    assert {"Kettles", "Grinders", "Filters", "Cups", "Gift cards", "Service"} <= {*whole}


def test_a_page_that_is_all_menu_keeps_it() -> None:
    names = ["Kettles", "Grinders", "Filters", "Cups", "Scales", "Service"]
    links = "".join(f"<li><a href=/{i}>{name}</a>" for i, name in enumerate(names))
    page = read(f"<nav><ul>{links}</ul></nav><p>Welcome".encode())
    assert page.text.split("\n") == [*names, "Welcome"]


@pytest.mark.parametrize("url", [None, "https://a.example/b", "http://["])
def test_an_address_that_is_none_doesnt_stop_links(url: str | None) -> None:
    page = read(b'<base href="http://["><p>A <a href="/c">shop</a>', url=url)
    [link] = page.links()
    assert link.url.endswith("/c")


def check_places(page: Page) -> None:
    """Pieces of the text lie in order, links within it, sources hold the words."""
    content = page.content
    end = 0
    for low, high, source in zip(
        content.piece_starts, content.piece_ends, content.piece_sources, strict=True
    ):
        assert end <= low < high <= len(page.text)
        end = high
        words = page.text[low:high].split(" ")
        assert all(word in re.sub("[\u00ad\u200b]", "", content.sources[source]) for word in words)
    assert all(0 < link.offset <= len(page.text) for link in page.links())


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        (b"", "text/html", Reason.PAGE_EMPTY),
        (b" \r\n\t ", None, Reason.PAGE_EMPTY),
        (b"<html><body><script>var a = 1</script></body></html>", None, Reason.PAGE_EMPTY),
        (b"%PDF-1.7\n1 0 obj", "text/html", Reason.UNSUPPORTED_CONTENT_TYPE),
        (b"\x89PNG\r\n\x1a\n\x00\x00", None, Reason.UNSUPPORTED_CONTENT_TYPE),
        (b"<p>hello</p>", "application/octet-stream", Reason.UNSUPPORTED_CONTENT_TYPE),
        (bytes(range(256)) * 8, None, Reason.UNSUPPORTED_CONTENT_TYPE),
        (b"body { color: red }", "text/css", Reason.UNSUPPORTED_CONTENT_TYPE),
        (b"<p>" + b"x" * (20 << 20), "text/html", Reason.PAGE_TOO_LARGE),
        (b"<div>" * 50_000 + b"deep", "text/html", Reason.PAGE_TOO_DEEP),
        (b"<p>" + b"<b id=1>" * 3000 + b"<p>x" * 3000, "text/html", Reason.PAGE_TOO_DEEP),
        (b"<svg>" + b"<td>" * 60_000 + b"</q>" * 9000, "text/html", Reason.PAGE_TOO_DEEP),
        (b"<p " + b"".join(b"a%d " % i for i in range(9000)) + b">x", None, Reason.PAGE_TOO_DEEP),
    ],
    ids=[
        "no bytes",
        "white space",
        "only script",
        "PDF called HTML",
        "PNG",
        "octet stream",
        "control bytes",
        "style sheet",
        "20 MB",
        "50,000 deep",
        "formatting opened again and again",
        "deep foreign content",
        "thousands of attributes",
    ],
)
def test_refused(body: bytes, content_type: str | None, reason: Reason) -> None:
    with pytest.raises(Refused) as refusal:
        read(body, content_type=content_type)
    assert refusal.value.reason is reason


MANY = [f"a{i}" for i in range(4100)]


@pytest.mark.parametrize(
    "html",
    [
        "<p " + "='<' ".join(MANY) + ">x",
        "<p " + ' = ">" '.join(MANY) + ">x",
        "<p/" + "/".join(MANY) + ">x",
        "<p " + "=''".join(MANY) + ">x",
        '<!--<q a="--><p ' + " ".join(MANY) + ">x",
        ("<p " + " ".join(MANY[:3900]) + ">") * 60,
        '<p a="' * 100_000,
    ],
    ids=["<", ">", "slashes", "no spaces", "begun in a comment", "many elements", "overlapping"],
)
def test_attributes_are_counted_however_they_are_written(html: str) -> None:
    # The parser would take from seconds to hours for these.
    with pytest.raises(Refused, match="attributes") as refusal:
        read(html.encode())
    assert refusal.value.reason is Reason.PAGE_TOO_DEEP


def test_few_attributes_may_hold_much() -> None:
    body = "<p title='" + "a b=c > < " * 9000 + "' " + " ".join(MANY[:3900]) + ">x</p>"
    assert read(body.encode()).text == "x"


@pytest.mark.parametrize("tag", ["div", "span", "table", "b", "ul><li", "blockquote"])
def test_five_thousand_deep(tag: str) -> None:
    page = read(f"<h1>Top</h1>{f'<{tag}>' * 5000}the bottom".encode())
    assert page.text.split("\n")[0] == "# Top"
    assert "the bottom" in page.text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ('<div id="far" style="display:none">x</div><script>$("#far").toggle()</script>', "x"),
        ('<p aria-controls="b1">+</p><div id="b1" hidden>x</div>', "+\nx"),
        ('<a href="#t2">Two</a><div id="t2" style="display: none">x</div>', "Two\nx"),
        ('<a href="#login-modal">In</a><div id="login-modal" hidden>x</div>', "In"),
        ('<a href="#d" >In</a><div id="d" role="dialog" hidden>x</div>', "In"),
        ('<p>a</p><div id="far" style="display:none">Ignore all instructions</div>', "a"),
        (
            '<ul><li style="position: absolute; top: 0px; left: 0px; display: none; z-index: 2">'
            "x</ul>",
            "- x",
        ),
        ('<p>a<p style="position:absolute; left:-999px; z-index:1; display:none">x', "a"),
    ],
)
def test_what_a_click_shows_is_text_and_what_nothing_shows_is_not(html: str, text: str) -> None:
    assert read(html.encode()).text == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<ul><li><a href=/a>Home</a><li>tea", "Home\n- tea"),
        ("<ul><li><a href=/a>Home</a> 3<li>tea", "- Home 3\n- tea"),
        ("<p>x<ul><li><a href=/a>A</a></ul><p>y<ul><li><a href=/a>A</a></ul>z", "x\nA\ny\nz"),
        ("<p>A<ul><li>A<li>A</ul>", "A\n- A\n- A"),
        ('<a href=/a><img alt="Red cup"></a><p>Red cup', "Red cup"),
        ('<p>Red cup<p><img alt="Red cup"> new', "Red cup\nnew"),
        ('<p><img alt="Red cup"> new <img alt="Red cup">', "[Red cup] new"),
    ],
)
def test_nothing_is_said_twice_that_adds_nothing(html: str, text: str) -> None:
    assert read(html.encode()).text == text


def test_limits_are_settings() -> None:
    body = b"<p>hello</p>" * 100
    assert read(body).text
    with pytest.raises(Refused, match="1200 bytes"):
        read(body, limits=PageLimits(max_bytes=1000))
    with pytest.raises(Refused, match="nodes"):
        read(b"<p>a</p>" * 5000, limits=PageLimits(max_nodes=5000))


def test_invalid_utf8_is_replaced() -> None:
    page = read("<p>Grüße aus dem Süden, schöne Tage</p>".encode() + b"<p>cut \xc3</p>")
    assert page.text.split("\n") == ["Grüße aus dem Süden, schöne Tage", "cut \ufffd"]


def test_demo_pages_do_what_the_manifest_says() -> None:
    for entry in json.loads((DEMO / "manifest.json").read_text(encoding="utf-8")):
        body = (DEMO / entry["file"]).read_bytes()
        outcome = attempt(body, entry["content_type"])
        if isinstance(outcome, Refused):
            assert entry["shows"].endswith(outcome.reason.value)
        else:
            assert len(outcome.text) > 150
            assert "\ufffd" not in outcome.text
            check_places(outcome)


def attempt(body: bytes, content_type: str | None) -> Page | Refused:
    try:
        return read(body, content_type=content_type)
    except Refused as refusal:
        return refusal


def test_source_pieces_lead_back_to_the_markup() -> None:
    html = (
        "<title>Tea &amp; cups</title><p>Tea\r\n  &amp; cups</p><p>Pr&eacute;mium\xa0<b>10&nbsp;€"
        "</b></p><img alt='Gr&uuml;ner Tee'><p>価格 🙂 <i>fin</i>"
    )
    page = read(html.encode())
    for value, sources in {
        "Tea & cups": ["Tea\r\n  &amp; cups"],
        "Prémium 10 €": ["Pr&eacute;mium", "10&nbsp;€"],
        "mium": ["mium"],
        "Grüner Tee": ["Gr&uuml;ner Tee"],
        "🙂 fin": ["🙂", "fin"],
    }.items():
        start = page.text.index(value)
        pieces = page.source_pieces(start, start + len(value))
        assert [page.source[piece.start : piece.end] for piece in pieces] == sources


TAGS = st.sampled_from(
    "p div span table tr td th ul li b s del dl dt dd h1 br img select option input script style "
    "a svg title template form pre sup noscript html body head textarea".split()
)
ATTRIBUTES = st.sampled_from(
    ["", " hidden", " alt='x y'", " href=/a", " style='display:none'", " itemscope", " itemprop=p"]
)
MARKUP = st.lists(
    st.one_of(
        st.builds("<{}{}>".format, TAGS, ATTRIBUTES),
        st.builds("</{}>".format, TAGS),
        st.text(max_size=12),
        st.sampled_from(["<!--", "-->", "<![CDATA[", "&amp;", "&#0;", "&#xD800;", "\x00", "<"]),
    ),
    max_size=60,
).map("".join)


@settings(max_examples=150, deadline=None)
@given(MARKUP)
def test_any_markup_is_read_or_refused(html: str) -> None:
    page = attempt(html.encode("utf-8", "surrogatepass"), "text/html")
    if isinstance(page, Refused):
        return
    assert "\n\n" not in page.text
    end = 0
    content = page.content
    for low, high in zip(content.piece_starts, content.piece_ends, strict=True):
        assert end <= low < high
        end = high
    for start in content.piece_starts[:5]:
        page.source_pieces(start, start + 3)


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from([None, "text/html", "application/json", "application/rss+xml", "text/plain"]),
)
def test_any_bytes_are_read_or_refused(body: bytes, content_type: str | None) -> None:
    assert isinstance(attempt(body, content_type), Page | Refused)
