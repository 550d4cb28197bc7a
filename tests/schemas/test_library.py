"""Every ready-made schema loads, lowers, compiles, and is what the package says it is."""

from __future__ import annotations

import json

import pytest
from pagemill.schemas import (
    SchemaReason,
    SchemaRefused,
    Validator,
    canonical_json,
    compile,
    library,
    lint,
    load,
)
from pagemill.schemas.walk import subschemas

NAMES = (
    "article",
    "book",
    "event",
    "job_posting",
    "organization",
    "product",
    "recipe",
    "restaurant",
)


def test_names():
    assert library.names() == NAMES


@pytest.fixture(params=NAMES)
def name(request) -> str:
    return request.param


def test_it_loads_without_advice(name):
    schema = library.get(name)
    assert load(schema) == schema
    assert schema["$id"] == f"pagemill:{name}"
    assert lint(schema) == []


def test_it_compiles(name):
    compiled = compile(library.get(name), timeout_s=30)
    assert 0 < compiled.num_states < 1_000


def test_it_is_small_enough_for_a_small_model(name):
    schema = library.get(name)
    assert 6 <= len(schema["properties"]) <= 11
    for field in schema["properties"].values():
        del field["x-pagemill-source"]  # no model sees it
    assert len(canonical_json(schema)) < 3_000


def test_every_object_is_closed_and_complete(name):
    for at, schema in subschemas(library.get(name)):
        if "properties" in schema:
            assert schema["required"] == list(schema["properties"]), at
            assert schema["additionalProperties"] is False, at


def test_every_field_names_its_source(name):
    kind = library.get(name)
    for field, schema in kind["properties"].items():
        source = schema["x-pagemill-source"]
        paths = [source] if isinstance(source, str) else source
        assert paths, field
        things = [path for path in paths if not path.startswith(("meta:", "label:", "text:"))]
        assert len({path.split(".")[0] for path in things}) == 1, field


def test_a_page_that_is_silent_gives_a_valid_record(name):
    """Only the first field has to be found; the others may be null or empty."""
    schema = library.get(name)
    first, *others = schema["properties"]
    record = {first: "Something"}
    for field in others:
        record[field] = [] if schema["properties"][field].get("type") == "array" else None
    assert Validator(schema).errors(record) == []
    assert Validator(schema).errors({**record, first: None}) != []


def test_a_copy_each_time(name):
    library.get(name)["properties"].clear()
    assert library.get(name)["properties"]


def test_an_unknown_name():
    with pytest.raises(SchemaRefused) as refused:
        library.get("recipes")
    assert refused.value.reason is SchemaReason.SCHEMA_UNKNOWN
    assert "recipe" in refused.value.advice


RECORDS = {
    "product": {
        "name": "Desk lamp",
        "brand": "Lumo",
        "price": 1299.5,
        "currency": "EUR",
        "availability": "InStock",
        "sku": "L-17",
        "mpn": None,
        "gtin": "4006381333931",
        "rating": 4.5,
        "review_count": 12,
        "description": 'A "warm" light.\nFor desks.',
    },
    "event": {
        "name": "Jazz im Hof",
        "start_date": "2026-06-05",
        "start_time": "20:30",
        "end_date": None,
        "venue": "Alter Hof",
        "address": "Gasse 1, 8010 Graz",
        "performers": ["Trio Ébène", "山下"],
        "organizer": None,
        "price": 0,
        "currency": None,
        "description": None,
    },
    "book": {
        "title": "On Rivers",
        "authors": ["A. Writer"],
        "publisher": None,
        "date_published": "2006-03",
        "isbn_13": "9780000000019",
        "language": "en",
        "format": "Paperback",
        "pages": 312,
        "price": 9.99,
        "currency": "GBP",
        "description": None,
    },
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_a_word_of_its_automaton_and_valid(name):
    from pagemill._core import ByteDfa

    automaton = ByteDfa.from_bytes(compile(library.get(name), timeout_s=30).table)
    record = RECORDS[name]
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
    assert Validator(library.get(name)).errors(record) == []
    assert automaton.accepts(text)
    first, *_ = record
    longer = {**record, first: "x" * 1_000}
    assert Validator(library.get(name)).errors(longer) != []
    assert not automaton.accepts(json.dumps(longer, separators=(",", ":")).encode())
