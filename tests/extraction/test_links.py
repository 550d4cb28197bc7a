"""Fields that hold addresses: decoded as ids of the page's links."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from pagemill import schemas
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction.bound_schema import BoundSchema, bind
from pagemill.extraction.extractor import Extractor
from pagemill.extraction.links import PageLinks, is_link_field, with_link_ids
from pagemill.extraction.page import read
from pagemill.extraction.record import PageInput, Result

from .scripted import SCHEMA, ScriptedEngine

URL = {"type": ["string", "null"], "format": "uri"}
LINKED = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "shop": URL,
        "files": {
            "type": "array",
            "maxItems": 3,
            "items": {"type": "string", "format": "uri"},
            "description": "plans and images",
        },
    },
    "required": ["name", "shop", "files"],
    "additionalProperties": False,
}
PAGE = (
    b"<base href='https://e.example/sub/'><meta property=og:image content='https://i.example/1.png'>"
    b"<h1>Oak shelf</h1><p>See the <a href='/shop?a=1&amp;b=2'>shop</a> or <a href=files/a.pdf>plan"
    b"</a>, <a href='../\xc3\xa9 x'>more</a>, <a href=/shop?a=1&amp;b=2>shop again</a>, "
    b"<a href=mailto:a@e.example>mail</a>"
)


@pytest.fixture(scope="module")
def linked() -> BoundSchema:
    return bind(LINKED)


def answered(tokenizer: Tokenizer, schema: BoundSchema, answer: Any) -> tuple[Result, str]:
    """The result of a page, and its prompt."""
    engine = ScriptedEngine(tokenizer, {"": json.dumps(answer)})
    page = PageInput(id="1", body=PAGE, url="https://e.example/x/y")
    [result] = Extractor(tokenizer).run(engine, [(page, schema)])
    ids = np.frombuffer(engine.requests[0].token_ids, "<i4").tolist()
    return result, tokenizer.decode(ids)


def test_ids_become_addresses_with_evidence(byte_tokenizer: Tokenizer, linked: BoundSchema) -> None:
    answer = {"name": "Oak shelf", "shop": "L1", "files": ["L2", "L3", "L5"]}
    result, prompt = answered(byte_tokenizer, linked, answer)
    assert result.record == {
        "name": "Oak shelf",
        "shop": "https://e.example/shop?a=1&b=2",
        "files": [
            "https://e.example/sub/files/a.pdf",
            "https://e.example/%C3%A9%20x",
            "https://i.example/1.png",
        ],
    }
    assert "the shop [L1] or plan [L2], more [L3], shop again [L1], mail" in prompt
    assert "url: [L4]\nimage: [L5]" in prompt
    assert "http" not in prompt
    places = {each.pointer: each for each in result.evidence}
    page = read(PAGE, url="https://e.example/x/y")
    hrefs = {link.id: link.href for link in page.links()}
    shop, image = places["/shop"], places["/files/2"]
    assert (shop.source, hrefs[shop.path][shop.start : shop.end]) == ("link", "/shop?a=1&b=2")
    assert (image.source, image.exact) == ("metadata", True)
    assert page.metadata.value_at(image.path) == "https://i.example/1.png"
    assert places["/name"].source == "text"


def test_an_id_that_the_page_lacks_is_null(byte_tokenizer: Tokenizer, linked: BoundSchema) -> None:
    result, _ = answered(byte_tokenizer, linked, {"name": "x", "shop": "L77", "files": []})
    assert result.record == {"name": "x", "shop": None, "files": []}
    result, _ = answered(byte_tokenizer, linked, {"name": "x", "shop": None, "files": ["L77"]})
    assert result.error is not None  # null isn't allowed there


def test_the_grammar_takes_ids_alone(linked: BoundSchema) -> None:
    decoded = with_link_ids(schemas.load(LINKED))
    assert linked.grammar.hash == schemas.compile(decoded).hash
    shop = decoded["properties"]["shop"]
    assert (shop["pattern"], "format" in shop) == ("^L[1-9][0-9]{0,3}$", False)


def test_schemas_without_addresses_pay_nothing(byte_tokenizer: Tokenizer) -> None:
    schema = bind(SCHEMA)
    assert not schema.links
    _, prompt = answered(byte_tokenizer, schema, {"name": "x", "price": None, "note": None})
    assert "[L" not in prompt


@pytest.mark.parametrize(
    ("field", "is_link"),
    [
        ({"type": "string", "format": "uri"}, True),
        ({"type": ["null", "string"], "format": "iri-reference"}, True),
        ({"type": "string", "format": "uri", "pattern": "^https:"}, False),
        ({"type": "string", "format": "uri", "enum": ["https://a.example/"]}, False),
        ({"format": "uri"}, False),
        ({"type": "string", "format": "date"}, False),
    ],
)
def test_which_fields_are_links(field: dict[str, Any], is_link: bool) -> None:
    assert is_link_field(field) == is_link


def test_conditions_are_left_alone() -> None:
    schema = {"type": "string", "not": {"type": "string", "format": "uri"}}
    assert with_link_ids(schema) is schema


def test_marks_follow_lines_that_were_kept() -> None:
    page = read(b"<p><a href=http://a.example/>A</a> one<p>B<p><a href=http://b.example/>C</a> two")
    links = PageLinks(page)
    assert links.marked("B\nC two") == "B\nC [L2] two"
    assert links.unmarked(links.marked(page.text)) == page.text
    assert links.marked("") == ""


def test_text_that_looks_like_an_id_leads_to_the_page_only() -> None:
    page = read(b"<p>Answer [L9] <a href=http://a.example/>A</a>")
    links = PageLinks(page)
    schema = {"type": "object", "properties": {"a": URL, "b": URL}}
    assert links.resolved(schema, {"a": "L9", "b": "L1"}) == {"a": None, "b": "http://a.example/"}
