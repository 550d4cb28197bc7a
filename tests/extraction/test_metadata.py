"""JSON-LD, microdata and meta tags, whole and broken."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagemill.extraction.page import MetadataEntry, read
from pagemill.extraction.page.jsonld import read_pushes, read_script


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ('{"name": "A"}', ["A"]),
        ('{"name": "A"};', ["A"]),
        ('{"name": "A"} ; ', ["A"]),
        ('[{"name": "A"}, {"name": "B"}]', ["A", "B"]),
        ('{"name": "A"}\n{"name": "B"}', ["A", "B"]),
        ('{"@context": "x", "@graph": [{"name": "A"}, [{"name": "B"}]]}', ["A", "B"]),
        ('{"name": "A\tB\nC"}', ["A\tB\nC"]),
        ('{"name": "A &amp; &quot;B&quot;"}', ['A & "B"']),
        ('<!-- {"name": "A"} -->', ["A"]),
        ('//<![CDATA[\n{"name": "A"}\n//]]>', ["A"]),
        ('/*<![CDATA[*/{"name": "A"}/*]]>*/', ["A"]),
        ('{"name": "A", /* why */ "b": 1,}', ["A"]),
        ('// a comment\n{"name": "A"}', ["A"]),
        ('\ufeff{"name": "https://a.example//b"}', ["https://a.example//b"]),
        ('{"name": "5" wide"}', []),
        ("", []),
        ("null", []),
        ("[1, 2]", []),
        ('{"name": "A"', []),
        ("[" * 100_000, []),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, []),
    ],
)
def test_json_ld(script: str, names: list[str]) -> None:
    assert [thing.get("name") for thing in read_script(script)] == names


def test_deep_things_are_cut() -> None:
    [thing] = read_script('{"a":' * 200 + '"x"' + "}" * 200)
    assert json.dumps(thing).count("{") < 100


def test_pushed_json_ld() -> None:
    pushed = [0, {"type": "application/ld+json", "children": '{"name": "A"}'}]
    script = f"(self.__next_s = self.__next_s || []).push({json.dumps(pushed)})"
    assert read_pushes(script) == [{"name": "A"}]
    assert read_pushes("self.__next_s.push([0,{broken") == []


@given(st.text(alphabet='{}[]":,;ab0 \n/*<!->&\\', max_size=80))
def test_any_script_is_survived(script: str) -> None:
    assert all(isinstance(thing, dict) for thing in read_script(script))


def entries(head: str) -> list[tuple[str, str, str]]:
    page = read(f"<html><head>{head}</head><body><p>text</p></body></html>".encode())
    return [(entry.key, entry.value, entry.path) for entry in page.metadata.entries]


def test_each_value_says_where_it_stands() -> None:
    found = entries(
        "<title>T</title><meta property='og:title' content='T'>"
        "<meta name=author content='A &amp;amp; B'>"
        "<link rel='canonical' href='https://s.example/'><script type='application/ld+json'>"
        '{"@type":"Product","offers":[{"price":"1.50"},{"price":2}],"x":{"@value":"v"},"y":true}</script>'
    )
    assert found == [
        ("title", "T", "title"),
        ("author", "A & B", "meta/author"),
        ("url", "https://s.example/", "link/canonical"),
        ("type", "Product", "jsonld/0/@type"),
        ("offers.price", "1.50", "jsonld/0/offers/0/price"),
        ("offers.price", "2", "jsonld/0/offers/1/price"),
        ("x", "v", "jsonld/0/x/@value"),
        ("y", "true", "jsonld/0/y"),
    ]


def test_the_pages_subject_goes_before_its_publisher() -> None:
    script = '[{"@type":"Organization","name":"Shop"},{"@type":"Product","name":"Cup"}]'
    found = entries(f"<script type='application/ld+json'>{script}</script>")
    assert [value for key, value, _ in found if key == "name"] == ["Cup", "Shop"]


def test_bounds() -> None:
    thing = {"@type": "Product", "description": "long word " * 500}
    thing |= {f"p{i}": "x" for i in range(1000)}
    many = {"@type": "Recipe", "recipeIngredient": [f"egg {i}" for i in range(500)]}
    page = read(
        f"<script type='application/ld+json'>{json.dumps([thing, many])}</script>text".encode()
    )
    assert len(page.metadata.entries) <= 160
    assert max(len(entry.value) for entry in page.metadata.entries) <= 610
    assert all(isinstance(entry, MetadataEntry) for entry in page.metadata.entries)


def test_microdata_item_in_item() -> None:
    html = (
        "<div itemscope itemtype='http://schema.org/Event'><b itemprop='name'>Fair</b>"
        "<div itemprop='location' itemscope itemtype='http://schema.org/Place'>"
        "<span itemprop='name'>Hall</span><span itemprop='telephone'>12 34</span></div>"
        "<p itemprop='performer attendee'>Ann</p></div>"
    )
    found = {entry.key: entry.value for entry in read(html.encode()).metadata.entries}
    assert found == {
        "type": "Event",
        "name": "Fair",
        "location": "Hall",
        "location.telephone": "12 34",
        "performer": "Ann",
        "attendee": "Ann",
    }
