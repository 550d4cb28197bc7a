"""Known values: what metadata says plainly becomes part of the record, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagemill import schemas
from pagemill.extraction.known import Known, KnownValue, cues, find, known_sources, normalise, put
from pagemill.extraction.page import Page, read

SHOP = "https://shop.example/kettle"


def page_of(thing: Any, body: str, head: str = "", url: str | None = None) -> Page:
    block = f'<script type="application/ld+json">{json.dumps(thing)}</script>' if thing else ""
    html = f"<html><head>{head}{block}</head><body>{body}</body></html>"
    return read(html.encode(), url=url)


def known(page: Page, schema: str | dict[str, Any]) -> Known:
    loaded = schemas.library.get(schema) if isinstance(schema, str) else schemas.load(schema)
    return find(page, known_sources(loaded))


def values(page: Page, schema: str | dict[str, Any]) -> dict[str, Any]:
    return {pointer: value.value for pointer, value in known(page, schema).values.items()}


KETTLE = {
    "@type": "Product",
    "name": "Copper kettle",
    "sku": "K-17",
    "brand": {"@type": "Brand", "name": "Kupfer &amp; Sohn"},
    "offers": {
        "price": "49.90",
        "priceCurrency": "eur",
        "availability": "https://schema.org/InStock",
    },
}
KETTLE_BODY = "<h1>Copper kettle</h1><p>49,90 €</p><button>In den Warenkorb</button>"


def test_a_shop_page() -> None:
    found = values(page_of(KETTLE, KETTLE_BODY), "product")
    assert found == {
        "/name": "Copper kettle",
        "/brand": "Kupfer & Sohn",
        "/price": 49.9,
        "/currency": "EUR",
        "/availability": "InStock",
        "/sku": "K-17",
    }


def test_evidence_names_the_path_and_the_place_in_its_value() -> None:
    page = page_of(KETTLE, KETTLE_BODY)
    evidence = {each.pointer: each for each in known(page, "product").evidence()}
    assert evidence["/price"].path == "jsonld/0/offers/price"
    noisy = {**KETTLE, "brand": "<b>Kupfer</b>  &amp;amp; Sohn", "sku": "a  b"}
    noisy_page = page_of(noisy, KETTLE_BODY)
    for each in known(noisy_page, "product").evidence():
        raw = noisy_page.metadata.value_at(each.path)
        if each.exact:
            assert raw is not None
            assert raw[each.start : each.end] == values(noisy_page, "product")[each.pointer]
    for pointer in ("/name", "/brand", "/sku"):
        each = evidence[pointer]
        raw = page.metadata.value_at(each.path)
        assert raw is not None
        assert each.exact
        assert raw[each.start : each.end] == values(page, "product")[pointer]
    assert not evidence["/currency"].exact
    assert not evidence["/price"].exact


@pytest.mark.parametrize(
    ("change", "body", "pointer", "reason"),
    [
        ({"offers": {"price": "39.00"}}, KETTLE_BODY, "/price", "the page shows other amounts"),
        ({"offers": {"price": "1,299"}}, "<h1>Copper kettle</h1>", "/price", "one number"),
        ({"offers": {"price": "0"}}, "<h1>Copper kettle</h1>", "/price", "price of 0"),
        ({"offers": [{"price": 5}, {"price": 6}]}, "<h1>Copper kettle</h1>", "/price", "several"),
        ({"sku": "x" * 90}, KETTLE_BODY, "/sku", "longer"),
        (
            {"offers": {"availability": "perhaps"}},
            "<h1>Copper kettle</h1>",
            "/availability",
            "none",
        ),
        ({"gtin13": "123"}, KETTLE_BODY, "/gtin", "doesn't allow"),
    ],
)
def test_what_is_dropped_and_why(change: Any, body: str, pointer: str, reason: str) -> None:
    found = known(page_of({**KETTLE, **change}, body), "product")
    assert pointer not in found.values
    assert reason in found.dropped[pointer]


def test_of_several_prices_the_visible_one() -> None:
    thing = {**KETTLE, "offers": [{"price": 59}, {"price": 49.9}]}
    assert values(page_of(thing, KETTLE_BODY), "product")["/price"] == 49.9


def test_sold_out_on_the_page_wins_over_metadata_in_stock() -> None:
    page = page_of(KETTLE, "<h1>Copper kettle</h1><p>Sold out</p>")
    each = known(page, "product").values["/availability"]
    assert each.value == "OutOfStock"
    place = each.places[0]
    assert (place.path, page.text[place.start : place.end]) == ("", "Sold out")


@pytest.mark.parametrize(
    "things",
    [
        [{"@type": "Product", "name": "A"}, {"@type": "Product", "name": "B"}],
        [{"@type": "Recipe", "name": "Copper kettle"}],
        [{"@type": "Organization", "name": "Copper kettle"}],
    ],
)
def test_a_page_about_nothing_plain_has_no_name(things: Any) -> None:
    assert "/name" not in values(page_of({"@graph": things}, KETTLE_BODY), "product")


def test_of_several_things_the_one_that_the_heading_names() -> None:
    things = [{"@type": "Product", "name": "Other", "sku": "1"}, KETTLE]
    assert values(page_of(things, KETTLE_BODY), "product")["/sku"] == "K-17"


def test_references_sections_and_durations() -> None:
    graph = [
        {
            "@type": "Recipe",
            "name": "Soup",
            "author": {"@id": "#ann"},
            "prepTime": "PT1H15M",
            "recipeIngredient": ["1 leek", " 2&nbsp;carrots "],
            "recipeInstructions": [
                {"@type": "HowToSection", "itemListElement": [{"text": "Wash."}, {"text": "Cut."}]},
                {"@type": "HowToStep", "text": "<p>Cook.</p>"},
            ],
        },
        {"@type": "Person", "@id": "#ann", "name": "Ann Example"},
    ]
    found = values(page_of({"@graph": graph}, "<h1>Soup</h1>"), "recipe")
    assert found["/author"] == "Ann Example"
    assert found["/prep_minutes"] == 75
    assert found["/ingredients"] == ["1 leek", "2 carrots"]
    assert found["/instructions"] == ["Wash.", "Cut.", "Cook."]


@pytest.mark.parametrize(
    ("head", "url", "day"),
    [
        ('<meta property="article:published_time" content="2021-03-04T23:30:00-08:00">', None, 4),
        ("", "https://news.example/2021/03/04/bridge/", 4),
        ("", "https://news.example/archive/2021/bridge", None),
        ('<meta name="date" content="3/4/2021">', None, None),
    ],
)
def test_days_of_articles(head: str, url: str | None, day: int | None) -> None:
    found = values(page_of(None, "<h1>Bridge</h1>", head, url), "article")
    assert found.get("/date_published") == (f"2021-03-0{day}" if day else None)


@pytest.mark.parametrize(
    ("body", "day"),
    [
        (
            "<p>1 May 2020<h1>Bridge</h1><p>By Ann, 4 March 2021<p>Open since 2 May 2019.",
            "2021-03-04",
        ),
        ("<h1>Bridge</h1><p>Text.<p>4 March 2021", "2021-03-04"),
        ("<p>1 May 2020<h1>Bridge</h1>" + "<p>A word." * 90 + "<p>4 March 2021", None),
        ("<h1>Bridge</h1><p>It was on 4 March 2021 that " + "the bridge opened. " * 5, None),
    ],
)
def test_a_day_below_the_heading(body: str, day: str | None) -> None:
    assert values(page_of(None, body), "article").get("/date_published") == day


@pytest.mark.parametrize(
    ("body", "title"),
    [
        ("<h1>The Paper</h1><h1>Bridge opens</h1>", "Bridge opens"),
        ("<h1>Another heading</h1>", None),
        ("<h2>Bridge opens</h2>", None),
    ],
)
def test_the_heading_that_the_title_repeats(body: str, title: str | None) -> None:
    page = page_of(None, body, "<title>Bridge opens! | Daily</title>")
    assert values(page, "article").get("/title") == title


def test_tags_of_the_site_are_no_title() -> None:
    head = '<meta property="og:title" content="Bridge | The Paper">'
    assert "/title" not in values(page_of(None, "<h1>Bridge</h1>", head), "article")
    head = '<meta property="og:title" content="Bridge">'
    assert values(page_of(None, "<h1>Bridge</h1>", head), "article")["/title"] == "Bridge"


@pytest.mark.parametrize(
    ("body", "sku"),
    [
        ("<h1>K</h1><p>SKU: AB-12</p>", "AB-12"),
        ("<h1>K</h1><table><tr><td>Artikelnummer<td>4711</table>", "4711"),
        ("<h1>K</h1><p>SKU: AB-12</p><p>SKU: AB-13</p>", None),
        ("<h1>K</h1><p>SKU: ask us</p>", None),
    ],
)
def test_codes_under_their_label(body: str, sku: str | None) -> None:
    page = page_of(None, body)
    assert values(page, "product").get("/sku") == sku


def test_inner_fields_and_fields_that_name_no_source() -> None:
    schema = {
        "type": "object",
        "properties": {
            "seller": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "x-pagemill-source": "Product.brand.name"}
                },
            },
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"n": {"type": "string", "x-pagemill-source": "Product.name"}},
                },
            },
            "name": {"type": "string"},
        },
    }
    found = known(page_of(KETTLE, KETTLE_BODY), schema)
    assert {p: v.value for p, v in found.values.items()} == {"/seller/name": "Kupfer & Sohn"}
    assert found.fields() == {"seller.name"}
    assert put({"seller": {"name": "x", "b": 1}, "name": "y"}, found) == {
        "seller": {"name": "Kupfer & Sohn", "b": 1},
        "name": "y",
    }
    assert put({"name": "y"}, found) == {"name": "y"}


def test_a_whole_record_needs_every_field() -> None:
    schema = {"properties": {"a": {}, "b/c": {}}}
    one = Known({"/a": KnownValue(1)})
    assert one.whole_record(schema) is None
    both = Known({"/b~1c": KnownValue(2), "/a": KnownValue(1)})
    assert both.whole_record(schema) == {"a": 1, "b/c": 2}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.299,50 €", 1299.5),
        ("1,299.50", 1299.5),
        ("1 299,50", 1299.5),
        ("12.345.678", 12345678),
        ("3.350", None),
        ("0.125", 0.125),
        ("49,90", 49.9),
        ("1.2.3", None),
        ("from 5 to 7", None),
        ("", None),
    ],
)
def test_numbers(text: str, number: float | None) -> None:
    assert normalise.number(text) == number


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("PT45M", 45), ("P0DT1H", 60), ("1 h 15 min", 75), ("2 hours", 120), ("30", 30), ("PT", None)],
)
def test_minutes(text: str, minutes: int | None) -> None:
    assert normalise.minutes(text) == minutes


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2021-3-4", "2021-03-04"),
        ("20210304", "2021-03-04"),
        ("March 4th, 2021", "2021-03-04"),
        ("4 Mar 2021 10:00", "2021-03-04"),
        ("Thu, 04 Mar 2021 10:00:00 GMT", "2021-03-04"),
        ("04/03/2021", None),
        ("04.03.2021", "2021-03-04"),
        ("4. März 2021, 10 Uhr", "2021-03-04"),
        ("le 4 mars 2021", "2021-03-04"),
        ("4 de marzo de 2021", "2021-03-04"),
        ("4 March 2021 to 5 March 2021", None),
        ("2021-02-30", None),
        ("soon", None),
    ],
)
def test_days(text: str, day: str | None) -> None:
    assert normalise.day(text) == day


@settings(deadline=None)
@given(st.text(max_size=40))
def test_normalisers_never_fail(text: str) -> None:
    normalise.number(text), normalise.day(text), normalise.minutes(text)
    normalise.currency(text), normalise.choice(text, ["InStock", None])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["@type", "@id", "name", "offers", "price", "text", "itemListElement"]),
            inner | st.just("Product"),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(JSON)
def test_any_metadata_gives_values_that_the_schema_allows(thing: Any) -> None:
    schema = schemas.library.get("product")
    for pointer, value in find(page_of(thing, KETTLE_BODY), known_sources(schema)).values.items():
        field = schema["properties"][pointer[1:]]
        assert schemas.Validator(field).errors(value.value) == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("Only 3 left in stock - order soon.", "InStock"),
        ("Auf Lager.", "InStock"),
        ("Nicht auf Lager", "OutOfStock"),
        ("Niet op voorraad", "OutOfStock"),
        ("36,99 € - En stock", "InStock"),
        ("Subito disponibile", "InStock"),
        ("Non disponibile", "OutOfStock"),
        ("нет в наличии", "OutOfStock"),
        ("В наличии", "InStock"),
        ("Not in stock", "OutOfStock"),
        ("Add to your basket", "InStock"),
        ("Shops have had lamps of this kind in stock for as long as anybody can remember", None),
    ],
)
def test_words_of_shops(line: str, says: str | None) -> None:
    found = cues.availability(f"Menu\n# Lamp\n{line}\nShipping")
    assert (found and found[0]) == says
