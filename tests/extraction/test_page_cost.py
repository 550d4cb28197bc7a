"""The cost of a page beside a plain reference in regular expressions, on random and odd pages."""

from __future__ import annotations

import re
import time

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings
from pagemill import _core
from pagemill.extraction.page.limits import Deadline, PageLimits
from pagemill.extraction.page.parse import parse
from pagemill.extraction.reason import Refused

VOID = set("area base br col embed hr img input link meta param source track wbr".split())
NEVER_DEEP = VOID | set(
    "body html head title script style textarea p li dt dd tr td th option optgroup thead tbody "
    "tfoot colgroup caption rt rp image frame keygen nobr a button".split()
)
FORMATTING = set("a b big code em font i nobr s small strike strong tt u".split())
TAG = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9:-]*)")
# An attribute as the HTML standard tokenises it: only after `=` do quotes hold anything.
ATTRIBUTE = (
    rb"(?:=[^ \t\n\f\r/>=]*+|[^ \t\n\f\r/>=]++)"
    rb"(?:[ \t\n\f\r]*+=[ \t\n\f\r]*+"
    rb"(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^ \t\n\f\r>\"'][^ \t\n\f\r>]*+)?+)?+"
)
REST = re.compile(rb"<[a-zA-Z](?=([^ \t\n\f\r/>]*+(?:[ \t\n\f\r/]++|" + ATTRIBUTE + rb")*+))")


def nesting(html: bytes) -> tuple[int, int, int]:
    """Sums of open elements, of those in foreign content, of formatting elements at blocks."""
    deep = foreign = formatting = 0
    sums = [0, 0, 0]
    for slash, name in TAG.findall(html):
        tag, step = name.decode().lower(), -1 if slash else 1
        deep = deep if tag in NEVER_DEEP else max(0, deep + step)
        foreign = foreign if tag in VOID else max(0, foreign + step)
        formatting = max(0, formatting + step) if tag in FORMATTING else formatting
        sums[0] += deep
        sums[1] += foreign
        sums[2] += 0 if tag in FORMATTING else formatting
    return sums[0], sums[1], sums[2]


def attributes(html: bytes) -> tuple[int, int, bool]:
    """Most attributes of one element, squares of many, and whether reads overlap too much."""
    reads, most, pairs = 8 * len(html), 0, 0
    for found in REST.finditer(html):
        start, end = found.span(1)
        reads -= end - start
        if reads < 0:
            return most, pairs, True
        if end - start > 128:
            # The rest of the name comes before what may be split into attributes.
            name = re.match(rb"[^ \t\n\f\r/>]*", html[start:end])
            assert name is not None
            count = len(re.findall(ATTRIBUTE, html[start + name.end() : end]))
            most, pairs = max(most, count), pairs + count * count
    return most, pairs, False


def check(html: bytes) -> None:
    cost = _core.page_cost(html)
    assert (cost.open_elements, cost.open_elements_foreign, cost.reopened) == nesting(html)
    assert (cost.max_attributes, cost.attribute_pairs, cost.is_overlapping) == attributes(html)


PIECES = st.sampled_from(
    [
        *"< </ <div <DIV </div> <p> <b> </b> <a <br> <svg> <nobr> <Table> <h1 <x-y:z".split(),
        *"> / = = ' \" a b1 é <!-- -->".split(),
        *("\x0b", "\xa0", " ", "\n", "\t", "\f", "\r"),
        *("a" * 70, ' k="v"' * 20, " a" * 40),
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=60).map("".join))
@example("")
@example("<")
@example("</")
@example("<a")
@example("<a =")
@example("<a b=")
@example("<a b='")
@example("<a " + "=" * 200)
@example("<a" + "x" * 200 + " b c>")
@example('<a b="' * 100)
def test_it_agrees_with_the_reference(html: str) -> None:
    check(html.encode())


@given(st.binary(max_size=300))
def test_it_takes_any_bytes(html: bytes) -> None:
    check(html)


@pytest.mark.parametrize(
    ("html", "word"),
    [
        ("<div>" * 20_000 + "x" + "<p>" * 3000, "nested"),
        ("<svg>" + "<li>" * 30_000, "nested"),
        ("<b><div>" * 3000, "nested"),
        ("<p " + " ".join(f"a{n}" for n in range(5000)) + ">x", "attributes"),
        (("<p " + "a=1 " * 2500 + ">x") * 10, "attributes"),
        ('<a b="' * 100_000, "attributes"),
        ("<a" * 1_000_000, "attributes"),
        ("<a x='<a y=\"<a z=" * 100_000, "attributes"),
    ],
    ids=range(8),
)
def test_pages_that_are_made_to_be_slow_are_refused(html: str, word: str) -> None:
    with pytest.raises(Refused, match=word):
        parse(html, PageLimits())


def test_what_was_cut_within_a_pair_of_surrogates_is_read() -> None:
    assert parse("<p>x\ud83d</p>" * 10, PageLimits()).tree.body is not None


def test_a_page_is_timed_by_its_own_work() -> None:
    """What else the machine does is no reason to refuse a page."""
    deadline = Deadline(0.05)
    time.sleep(0.1)
    deadline.check()
    started = time.thread_time()
    while time.thread_time() < started + 0.06:
        pass
    with pytest.raises(Refused, match="took over"):
        deadline.check()


def test_markup_in_scripts_is_read_more_than_once_and_not_given_up() -> None:
    script = "<script>" + "s += '<a href=\"' + u + '\">';" * 3000 + "</script>"
    assert not _core.page_cost(script.encode()).is_overlapping
    assert _core.page_cost(b'<p a="' * 1000).is_overlapping
