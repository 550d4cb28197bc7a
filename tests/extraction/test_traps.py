"""Traps of real pages: each has a file with its cases, the trap itself and others of its kind.

`kind` says what a case goes through. Numbers are those of a list of known faults in other tools;
the one about queues' visibility (33) is tested with the workers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import redis
from pagemill import schemas
from pagemill._core import ByteDfa
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction import null_words
from pagemill.extraction.bound_schema import bind
from pagemill.extraction.extractor import Extractor
from pagemill.extraction.grounding import locate
from pagemill.extraction.known import normalise
from pagemill.extraction.links import PageLinks
from pagemill.extraction.merge import merge
from pagemill.extraction.page import Page, read
from pagemill.extraction.reason import Refused
from pagemill.extraction.record import Evidence, PageInput
from pagemill.extraction.templates import SiteTemplates
from pagemill.extraction.windows import Window
from pagemill.schemas.compile_worker import Builder, compile_schema

from .scripted import SCHEMA, ScriptedEngine

FOLDER = Path(__file__).parent / "cases" / "traps"
ADDRESS = {"type": ["string", "null"], "format": "uri"}
LINKED = {
    "type": "object",
    "properties": {"a": ADDRESS, "b": {"type": "array", "items": ADDRESS}},
}


def cases(*kinds: str) -> list[Any]:
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        trap = json.loads(path.read_text(encoding="utf-8"))
        if trap["kind"] in kinds:
            found += [
                pytest.param(case, id=f"{path.stem}-{number}")
                for number, case in enumerate(trap["cases"])
            ]
    return found


def test_each_trap_has_five_of_its_kind_besides() -> None:
    traps = [json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")]
    assert len(traps) == 36
    assert all(len(trap["cases"]) >= 6 for trap in traps)


def outcome(body: bytes, case: dict[str, Any], *, native: bool) -> Page | Refused:
    try:
        return read(
            body,
            url=case.get("url"),
            content_type=case.get("content_type"),
            encoding=case.get("encoding"),
            native=native,
        )
    except Refused as refusal:
        return refusal


@pytest.mark.parametrize("case", cases("page"))
@pytest.mark.parametrize("native", [True, False])
def test_page(case: dict[str, Any], native: bool) -> None:
    body = case["html"].encode(case.get("codec", "utf-8"))
    page = outcome(body, case, native=native)
    if isinstance(page, Refused) or "refused" in case:
        assert isinstance(page, Refused)
        assert page.reason.value == case["refused"]
        return
    if "text" in case:
        assert page.text.split("\n") == case["text"]
    for part in case.get("has", []):
        assert part in page.text
    for part in case.get("lacks", []):
        assert part not in page.text
    for line in case.get("metadata", []):
        assert line in page.metadata.lines()
    if "links" in case:
        assert [link.url for link in page.links()] == case["links"]


@pytest.mark.parametrize("case", cases("links"))
def test_links(case: dict[str, Any]) -> None:
    links = PageLinks(read(case["html"].encode(), url=case["url"]))
    assert links.resolved(LINKED, case["answer"]) == case["record"]


@pytest.mark.parametrize("case", cases("number"))
def test_number(case: dict[str, Any]) -> None:
    assert normalise.number(case["text"], plain=case["plain"]) == case["value"]


@pytest.mark.parametrize("case", cases("day"))
def test_day(case: dict[str, Any]) -> None:
    assert normalise.day(case["text"]) == case["value"]


@pytest.mark.parametrize("case", cases("merge"))
def test_merge(case: dict[str, Any]) -> None:
    windows = [Window(text, repeated) for text, repeated in case["windows"]]
    merged = merge(case["records"], windows, schemas.Validator(case["schema"]))
    assert merged == case["merged"]


@pytest.mark.parametrize("case", cases("null"))
def test_null(case: dict[str, Any]) -> None:
    words = null_words.null_words(case["schema"])
    assert null_words.without(case["record"], words) == case["cleaned"]


@pytest.mark.parametrize("case", cases("grammar"))
def test_grammar(case: dict[str, Any]) -> None:
    table, _, _ = compile_schema(case["schema"], Builder.CORE)
    language = ByteDfa.from_bytes(table)
    for text in case["yes"]:
        assert language.accepts(text.encode())
    for text in case["no"]:
        assert not language.accepts(text.encode())


@pytest.mark.parametrize("case", cases("template"))
def test_template(case: dict[str, Any], redis_client: redis.Redis) -> None:
    sites = SiteTemplates(redis_client, kept_s=0)
    for number, text in enumerate(case["pages"]):
        spans = [(text.find(line), len(line)) for line in case["held"]]
        evidence = [Evidence(pointer="/a", start=at, end=at + n, exact=True) for at, n in spans]
        url = f"https://a.example/{number}"
        sites.learn(url, text, evidence, tenant="", schema="s")
    site = sites.template("https://a.example/x", tenant="", schema="s")
    assert site.cut(case["page"]) == case["shown"]


@pytest.mark.parametrize("case", cases("burst"))
def test_burst(case: dict[str, Any], byte_tokenizer: Tokenizer) -> None:
    engine = ScriptedEngine(byte_tokenizer, {"": '{"name":"Oak shelf","price":80.5,"note":null}'})
    schema = bind(SCHEMA)
    pages = [
        (PageInput(id=str(number), body=html.encode()), schema)
        for number, html in enumerate(case["pages"])
    ]
    results = sorted(Extractor(byte_tokenizer).run(engine, pages), key=lambda result: result.id)
    outcomes = [
        result.status if result.error is None else result.error.reason.value for result in results
    ]
    assert outcomes == case["outcomes"]


@pytest.mark.parametrize("case", cases("evidence"))
def test_evidence(case: dict[str, Any]) -> None:
    found = locate({"a": case["value"]}, case["text"])
    quotes = [case["text"][each.start : each.end] for each in found]
    assert quotes == ([] if case["quote"] is None else [case["quote"]])
