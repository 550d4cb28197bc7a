"""The prompt's metadata block: what the schema asks for, and what the text doesn't say."""

from __future__ import annotations

import pytest
from pagemill.extraction.metadata_block import metadata_lines
from pagemill.extraction.page import read
from pagemill.extraction.schema_prompt import SchemaPrompt

PAGE = b"""<title>K2 - Brewers</title><meta name=keywords content="kettle, tea">
<meta property=og:title content="K2"><meta name=description content="Boils a litre in a minute.">
<meta property=og:image content="/k2.jpg"><meta property=og:description content="All of steel.">
<meta property=article:published_time content="2026-03-01"><link rel=canonical href="/k2">
<h1>K2</h1><p>All of steel. 39 EUR</p>"""


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ("- name (text)", []),
        ("- tags (list of text)", ["keywords: kettle, tea"]),
        ("- photo (text)", ["image: /k2.jpg"]),
        ("- website (text)", ["url: https://shop.example/k2"]),
        ("- summary (text)", ["description: Boils a litre in a minute."]),
        ("- date_published (date)", ["published: 2026-03-01"]),
    ],
)
def test_tags_that_are_asked_for(asked: str, lines: list[str]) -> None:
    page = read(PAGE, url="https://shop.example/k2")
    found = metadata_lines(page, SchemaPrompt(asked))
    assert {*found} == {"title: K2 - Brewers", *lines}
