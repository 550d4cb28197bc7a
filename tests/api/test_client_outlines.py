"""Outlines' models of OpenAI's API and of a vLLM server, unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pydantic
import pytest

openai = pytest.importorskip("openai", reason="openai is not installed (extra `test`)")
outlines = pytest.importorskip("outlines")
pytestmark = pytest.mark.model


class Stock(pydantic.BaseModel):
    in_stock: bool


@pytest.fixture
def client(api_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{api_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("kind", ["openai", "vllm"])
def test_a_pydantic_type(client: openai.OpenAI, kind: str) -> None:
    make = outlines.from_openai if kind == "openai" else outlines.from_vllm
    model = make(client, client.models.list().data[0].id)
    assert Stock.model_validate_json(model("The kettle is in stock.", Stock))
    pieces = list(model.stream("The kettle is in stock.", Stock))
    assert Stock.model_validate_json("".join(pieces))


def test_any_object(client: openai.OpenAI) -> None:
    model = outlines.from_openai(client, client.models.list().data[0].id)
    assert isinstance(json.loads(model("Answer in JSON.", dict, max_tokens=60)), dict)
