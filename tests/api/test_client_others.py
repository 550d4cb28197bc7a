"""Instructor, LangChain and Crawl4AI, unchanged, against the server: `make clients`."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import httpx
import pydantic
import pytest

from .conftest import HTML

pytestmark = [pytest.mark.model, pytest.mark.slow]
WHY = "is not installed: `make clients` runs this"


class Stock(pydantic.BaseModel):
    """Whether a thing can be bought."""

    in_stock: bool = pydantic.Field(description="Can be bought now")
    place: Literal["shelf", "store"] | None


@pytest.fixture
def model(api: httpx.Client) -> str:
    return str(api.get("/v1/models").json()["data"][0]["id"])


@pytest.mark.parametrize("mode", ["TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"])
def test_instructor(api_url: str, model: str, mode: str) -> None:
    instructor = pytest.importorskip("instructor", reason=f"instructor {WHY}")
    openai = pytest.importorskip("openai", reason=f"openai {WHY}")
    plain = openai.OpenAI(base_url=f"{api_url}/v1", api_key="none", max_retries=0)
    client = instructor.from_openai(plain, mode=instructor.Mode[mode])
    ask = [{"role": "user", "content": "The kettle is in stock."}]
    fields: dict[str, Any] = {"model": model, "messages": ask, "max_retries": 0}
    stock = client.chat.completions.create(response_model=Stock, **fields)
    assert isinstance(stock, Stock)


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_instructor_streams(api_url: str, model: str, mode: str) -> None:
    instructor = pytest.importorskip("instructor", reason=f"instructor {WHY}")
    openai = pytest.importorskip("openai", reason=f"openai {WHY}")
    plain = openai.OpenAI(base_url=f"{api_url}/v1", api_key="none", max_retries=0)
    client = instructor.from_openai(plain, mode=instructor.Mode[mode])
    ask = [{"role": "user", "content": "The kettle is in stock."}]
    *_, last = client.chat.completions.create_partial(
        model=model, messages=ask, response_model=Stock, max_retries=0
    )
    assert isinstance(last.in_stock, bool)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain(api_url: str, model: str, method: str) -> None:
    langchain = pytest.importorskip("langchain_openai", reason=f"langchain-openai {WHY}")
    chat = langchain.ChatOpenAI(
        base_url=f"{api_url}/v1", api_key="none", model=model, max_retries=0, temperature=0
    )
    bound = chat.with_structured_output(Stock, method=method)
    assert isinstance(bound.invoke("The kettle is in stock."), Stock)
    *_, last = bound.stream("The kettle is in stock.")
    assert isinstance(last, Stock)


def test_langchain_awaits(api_url: str, model: str) -> None:
    langchain = pytest.importorskip("langchain_openai", reason=f"langchain-openai {WHY}")
    chat = langchain.ChatOpenAI(base_url=f"{api_url}/v1", api_key="none", model=model)
    bound = chat.with_structured_output(Stock)
    assert isinstance(asyncio.run(bound.ainvoke("The kettle is in stock.")), Stock)


def test_langchain_chats(api_url: str, model: str) -> None:
    langchain = pytest.importorskip("langchain_openai", reason=f"langchain-openai {WHY}")
    chat = langchain.ChatOpenAI(
        base_url=f"{api_url}/v1", api_key="none", model=model, max_tokens=8, stream_usage=True
    )
    assert chat.invoke([("system", "Be short."), ("human", "Hello")]).usage_metadata
    assert list(chat.stream("Hello"))


@pytest.mark.parametrize("form", ["json_object", "json_schema"])
def test_crawl4ai(api_url: str, model: str, form: str) -> None:
    crawl4ai = pytest.importorskip("crawl4ai", reason=f"crawl4ai {WHY}")
    extra: dict[str, Any] = {"max_tokens": 80}
    if form == "json_schema":
        schema = {"name": "stock", "schema": Stock.model_json_schema()}
        extra["response_format"] = {"type": "json_schema", "json_schema": schema}
    strategy = crawl4ai.LLMExtractionStrategy(
        llm_config=crawl4ai.LLMConfig(
            provider=f"openai/{model}", api_token="none", base_url=f"{api_url}/v1"
        ),
        schema=Stock.model_json_schema(),
        extraction_type="schema",
        instruction="Whether it can be bought.",
        input_format="html",
        force_json_response=True,
        extra_args=extra,
    )
    blocks = strategy.run("https://shop.example/kettle", [HTML])
    assert blocks, "the strategy found nothing"
    assert not [block for block in blocks if block.get("error")], blocks
    if form == "json_schema":
        (block,) = blocks
        block.pop("error", None)
        assert Stock.model_validate(block)
    assert strategy.total_usage.completion_tokens > 0
