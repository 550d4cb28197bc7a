"""The visible text as the C++ core makes it, against the walk over the tree in Python."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagemill import _core
from pagemill.extraction.page import PageLimits
from pagemill.extraction.page.decode import decode
from pagemill.extraction.page.limits import Deadline
from pagemill.extraction.page.lines import PageText
from pagemill.extraction.page.parse import parse
from pagemill.extraction.page.text import visible_text, walked_text
from pagemill.extraction.reason import Reason, Refused

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("demo/pages/*.html"),
    *ROOT.glob("tests/extraction/cases/pages/*.html"),
    *ROOT.glob("tests/quality/pages/*.html"),
]
SETS = os.environ.get("QUALITY_DATA")
LIMITS = PageLimits()


def native(html: str, *, menus: bool = False, limits: PageLimits = LIMITS) -> PageText | None:
    """What the core makes of a page; None where it isn't sure."""
    page = parse(html, limits)
    root = page.tree.body or page.tree.root
    assert root is not None
    found = _core.page_text(
        root.html or "", page.utf8, max_nodes=limits.max_nodes, max_seconds=10.0, menus=menus
    )
    return PageText(*found) if isinstance(found, tuple) else None


def walked(html: str, *, menus: bool = False) -> PageText:
    page = parse(html, LIMITS)
    root = page.tree.body or page.tree.root
    assert root is not None
    return walked_text(root, html, LIMITS, Deadline(60.0), menus=menus)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
@pytest.mark.parametrize("menus", [False, True])
def test_pages(path: Path, menus: bool) -> None:
    html = decode(path.read_bytes()).text
    assert native(html, menus=menus) == walked(html, menus=menus)


@pytest.mark.slow
@pytest.mark.skipif(not SETS, reason="QUALITY_DATA names no folder with sets of pages")
@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in Path(SETS or "/").glob("*/gold.jsonl")), ids=str
)
def test_all_pages_of_a_set(folder: Path) -> None:
    unsure = total = 0
    for line in (folder / "gold.jsonl").read_text(encoding="utf-8").splitlines():
        name = json.loads(line).get("html")
        if name is None:
            continue
        html = decode((folder / name).read_bytes()).text
        try:
            found = native(html)
        except Refused:
            continue
        total += 1
        unsure += found is None
        assert found is None or found == walked(html), name
    assert unsure <= 0.01 * total


@pytest.mark.parametrize(
    "html",
    [
        "<script><!--<script></script>--></script>a",
        "<p>a<script><!-->x</script>b<script>'<!--' + '<script>'</script>c</script>d--></script>e",
        "<style><p></style>a<noscript><p>b</p></noscript><iframe><p>c</iframe>d",
        "<xmp><b>a</b></xmp><noframes>&amp;<i></noframes><noembed></p></noembed>",
        "a<svg><link>x</link><style>&lt;b&gt;</style><title>y</title></svg>b<math><mi>x</mi></math>",
        "<svg><foreignObject><br><p>x</foreignObject><source></svg>a",
        "<p title='\"&gt;<p hidden>' hidden>a<p alt=>b<p =a=1 'c\"d <e>f",
        "<select><option>a<option selected>b &amp; c<option><b>d</b></select>",
        f"<select>{'<option>x' * 15}<option selected>y{'<option>z' * 5}</select>",
        "<select><option>a<template><option>b</template><option><div><option>c</div></select>d",
        "<table>a<tr>b<td>c<td><table><tr><td>d<td>e</table></table>",
        "a<!--x-->b<?pi x>c<!foo>d</ >e<!-->f<!--->g<!-- --!>h",
        "<frameset><frame></frameset><noframes>a</noframes>",
        "<pre>\n\nx</pre>&nbsp;&#13;&#0;&#x85;&#x1c;\ufeffa\u200bb\u00adc",
        "<p>x<sup>2</sup> 3<sup>rd</sup> ²<sup>4</sup> 5<sup>th</sup>",
        "<p>İstanbul ΣΑΣ<img alt='İSTANBUL'><img alt='σας'><img alt='e.JPG'><img alt='12'>",
        "<a href='&amp;&quot;x'>a</a><a href=#x>b</a><a href=javascript:x>c</a><a href>d</a>",
        "<body hidden>a",
        "<dl><dt>a<dd>b<dt>c:<dd>d</dl><ul><li><a href=/x>y</a><li>z</ul>",
        "<b><p>a</b>b</p><a>1<p>2</a>3",
    ],
)
def test_markup_that_is_easily_misread(html: str) -> None:
    found = native(html)
    assert found == walked(html)


@pytest.mark.parametrize(
    "html",
    [
        "<plaintext>a</plaintext>b",
        "<svg><style>&lt;/style&gt;&lt;p&gt;x</style></svg>a",
        "<math><annotation-xml><source>x</source></annotation-xml></math>a",
    ],
)
def test_where_markup_cant_be_told_apart_the_tree_is_walked(html: str) -> None:
    assert native(html) is None
    page = parse(html, LIMITS)
    assert visible_text(page, LIMITS, Deadline(10.0)) == walked(html)


NAMES = st.lists(
    st.sampled_from(
        "nav|Nav|top|main|foot|er|footer|sitemap|menu|Menu|bar|navigation|s|1|12|_|-|a|A|sr|only|"
        "screen|reader|visually|hidden|tab|pane|panel|collapse|collapsible|d|content|toggle|modal|"
        "x| |\n|é".split("|")
    ),
    max_size=6,
).map("".join)
STYLES = st.lists(
    st.sampled_from(
        "display|:|none|visibility|hidden|collapse|font-size|opacity|0|.0|.5|px|em|;|!|left|top|-|"
        "100|99|text-indent|clip|rect(|position|absolute;|z-index|width|text-decoration|-line|"
        "line-through|DISPLAY: NONE| |\t|display:none|position: absolute; top:0; left: 0px;".split(
            "|"
        )
    ),
    max_size=9,
).map("".join)
ATTRIBUTES = st.one_of(
    st.sampled_from(
        " hidden| aria-hidden=true| role=navigation| role=tabpanel| href=/a| open| selected"
        "| alt='Red cup 3'| alt='é.png'| type=submit value='Go &amp; see'".split("|")
    ),
    NAMES.map(' class="{}"'.format),
    NAMES.map(' id="{}"'.format),
    STYLES.map(' style="{}"'.format),
)
TAGS = st.sampled_from(
    "p div span nav ul li ol table tr td th b s del dl dt dd h1 h4 br img select option input "
    "script style a svg math mi title template form pre sup noscript textarea dialog button label "
    "footer section hr iframe optgroup font rt details time".split()
)
PARTS = st.one_of(
    st.builds(
        lambda tag, found: f"<{tag}{''.join(found)}>", TAGS, st.lists(ATTRIBUTES, max_size=3)
    ),
    TAGS.map("</{}>".format),
    st.text(max_size=12),
    st.sampled_from("<!-- --> &amp; &lt;p&gt; &nbsp; &#13; Red cup 3 1 2 & < <![CDATA[".split(" ")),
    NAMES.map("<a href='#{0}'>x</a><p aria-controls='{0}'>".format),
    NAMES.map('<script>$("#{}").toggle()</script>'.format),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(PARTS, max_size=40).map("".join), st.booleans())
def test_any_markup(html: str, menus: bool) -> None:
    html = html.encode("utf-8", "replace").decode()
    try:
        found = native(html, menus=menus)
    except Refused:
        return
    assert found is None or found == walked(html, menus=menus)


@settings(max_examples=300)
@given(st.text(alphabet=st.sampled_from('<>/="&;-! abscriptsvg\n'), max_size=60))
def test_any_text_in_place_of_markup_is_taken(markup: str) -> None:
    for text in (markup, f"<p>{markup}</p>", f"<script>{markup}</script>"):
        found = _core.page_text(text, b"", max_nodes=1000, max_seconds=1.0, menus=True)
        assert isinstance(found, tuple | _core.PageTextOutcome)


def test_limits() -> None:
    with pytest.raises(Refused) as refusal:
        visible_text(parse("<p>a</p>" * 5000, LIMITS), PageLimits(max_nodes=5000), Deadline(10.0))
    assert refusal.value.reason is Reason.PAGE_TOO_LARGE
    late = Deadline(0.0)
    with pytest.raises(Refused, match="seconds"):
        visible_text(parse("<p>a</p>" * 5000, LIMITS), LIMITS, late)


def test_what_hidden_elements_cost_is_bounded_by_time() -> None:
    # Each looks for its id in the whole page.
    html = "".join(f"<p hidden id=x{i}>" for i in range(60_000)) + "y" * 4_000_000
    page = parse(html, PageLimits(max_parse_work=1 << 40))
    with pytest.raises(Refused, match="seconds"):
        visible_text(page, LIMITS, Deadline(0.2))


def test_ten_thousand_open_elements_take_no_stack() -> None:
    markup = f"{'<q>' * 200_000}x{'</q>' * 200_000}"
    found = _core.page_text(markup, b"", max_nodes=1 << 20, max_seconds=10.0, menus=True)
    assert isinstance(found, tuple)
    assert re.fullmatch("x", found[0])
