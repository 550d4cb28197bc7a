"""The `openai` package, unchanged, against the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

import pydantic
import pytest

from .conftest import STOCK

openai = pytest.importorskip("openai", reason="openai is not installed (extra `test`)")
pytestmark = pytest.mark.model
ASK = [{"role": "user", "content": "The kettle is in stock."}]


class Stock(pydantic.BaseModel):
    in_stock: bool
    place: Literal["shelf", "store", "nowhere"] | None


@pytest.fixture
def client(api_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{api_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def model(client: openai.OpenAI) -> str:
    (only,) = client.models.list()
    return str(only.id)


def test_a_model_is_found_by_its_name(client: openai.OpenAI, model: str) -> None:
    assert client.models.retrieve(model).id == model
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("gpt-4")
    assert error.value.code == "model_unknown"


def test_a_chat(client: openai.OpenAI, model: str) -> None:
    done = client.chat.completions.create(
        model=model,
        messages=ASK,
        max_completion_tokens=8,
        n=2,
        seed=1,
        logprobs=True,
        top_logprobs=2,
        user="someone",
    )
    assert [choice.index for choice in done.choices] == [0, 1]
    assert done.usage.completion_tokens > 0
    assert done.usage.prompt_tokens_details.cached_tokens is not None
    assert done.choices[0].logprobs.content[0].top_logprobs


def test_a_chat_streams(client: openai.OpenAI, model: str) -> None:
    fields = {"model": model, "messages": ASK, "max_tokens": 8, "temperature": 0}
    whole = client.chat.completions.create(**fields).choices[0].message.content
    chunks = list(
        client.chat.completions.create(
            **fields, stream=True, stream_options={"include_usage": True}
        )
    )
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == whole
    assert chunks[-1].usage.total_tokens > 0


def test_an_answer_is_parsed_into_a_model(client: openai.OpenAI, model: str) -> None:
    parsed = client.chat.completions.parse(model=model, messages=ASK, response_format=Stock)
    assert isinstance(parsed.choices[0].message.parsed, Stock)


def test_a_stream_of_an_answer_is_parsed_as_it_grows(client: openai.OpenAI, model: str) -> None:
    with client.chat.completions.stream(model=model, messages=ASK, response_format=Stock) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"content.delta", "content.done"} <= kinds
    assert isinstance(final.choices[0].message.parsed, Stock)


def test_a_tool_is_called_with_a_parsed_model(client: openai.OpenAI, model: str) -> None:
    tool = openai.pydantic_function_tool(Stock, name="stock")
    choice = {"type": "function", "function": {"name": "stock"}}
    fields = {"model": model, "messages": ASK, "tools": [tool], "tool_choice": choice}
    message = client.chat.completions.parse(**fields).choices[0].message
    assert isinstance(message.tool_calls[0].function.parsed_arguments, Stock)
    with client.chat.completions.stream(**fields) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion().choices[0].message
    assert isinstance(final.tool_calls[0].function.parsed_arguments, Stock)
    # What the model said goes back as it came.
    answered = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "yes"}
    again = client.chat.completions.create(
        model=model, messages=[*ASK, message, answered], max_tokens=4
    )
    assert again.choices


def test_completions(client: openai.OpenAI, model: str) -> None:
    fields = {"model": model, "prompt": ["A kettle", "A cup"], "temperature": 0, "max_tokens": 6}
    done = client.completions.create(**fields, logprobs=1)
    assert [choice.index for choice in done.choices] == [0, 1]
    assert len(done.choices[0].logprobs.tokens) > 0
    texts = ["", ""]
    for chunk in client.completions.create(**fields, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in done.choices]


def test_vllms_fields_come_in_the_extra_body(client: openai.OpenAI, model: str) -> None:
    for body in ({"guided_json": STOCK}, {"structured_outputs": {"json": STOCK}}):
        done = client.chat.completions.create(model=model, messages=ASK, extra_body=body)
        assert isinstance(json.loads(done.choices[0].message.content)["in_stock"], bool)
    chosen = client.chat.completions.create(
        model=model, messages=ASK, extra_body={"guided_choice": ["yes", "no"]}
    )
    assert chosen.choices[0].message.content in ("yes", "no")


@pytest.mark.parametrize(
    ("fields", "error", "word"),
    [
        ({"model": "gpt-4"}, openai.NotFoundError, "use smollm2"),
        ({"messages": []}, openai.UnprocessableEntityError, "messages"),
        ({"response_format": {"type": "json_schema"}}, openai.BadRequestError, "schema"),
        ({"logit_bias": {"1": 1}}, openai.UnprocessableEntityError, "logit_bias"),
        ({"extra_body": {"guided_regex": "a"}}, openai.BadRequestError, "pattern"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_of_the_clients_kinds(
    client: openai.OpenAI,
    model: str,
    fields: dict[str, object],
    error: type[openai.APIStatusError],
    word: str,
    stream: bool,
) -> None:
    with pytest.raises(error, match=word) as raised:
        client.chat.completions.create(
            **{"model": model, "messages": ASK, "stream": stream, **fields}
        )
    assert raised.value.code
    assert raised.value.type
