"""Answers bound by `json_object`, by vLLM's fields, and by tools."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest
from pagemill._core import ByteDfa
from pagemill.extraction.api.constraints import any_object

from .conftest import STOCK, expect_problem
from .test_openai import FORMAT, chat, events, model

__all__ = ["model"]
pytestmark = pytest.mark.model
TOOL = {"type": "function", "function": {"name": "stock", "parameters": STOCK}}
OTHER = {"type": "function", "function": {"name": "other"}}
NAMED = {"type": "function", "function": {"name": "stock"}}


def content(reply: httpx.Response) -> str:
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize("temperature", [0, 1.5])
@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json_object": True}},
    ],
)
def test_any_object(
    api: httpx.Client, model: str, fields: dict[str, Any], temperature: float
) -> None:
    reply = chat(api, model, temperature=temperature, seed=3, max_tokens=60, **fields)
    assert isinstance(json.loads(content(reply)), dict)


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("{}", True),
        ('{"a":1.5e3,"b":[true,null,"x"],"c":{"d":{"e":{"f":{"g":[]}}}}}', False),
        ('{"a":1.5e3,"b":[true,null,"x"],"c":{"d":{"e":{"f":[]}}}}', True),
        ('{"a":{"b":{"c":{"d":{"e":1}}}}}', True),
        ("[]", False),
        ('{"a":}', False),
        ('{"":"é"}', True),
    ],
)
def test_the_bounds_of_any_object(text: str, accepted: bool) -> None:
    assert ByteDfa.from_bytes(any_object().table).accepts(text.encode()) == accepted


@pytest.mark.parametrize(
    "fields",
    [
        {"guided_json": STOCK},
        {"guided_json": json.dumps(STOCK)},
        {"structured_outputs": {"json": STOCK}},
        {"structured_outputs": {"json": json.dumps(STOCK), "disable_fallback": True}},
    ],
)
def test_a_schema_in_vllms_words(api: httpx.Client, model: str, fields: dict[str, Any]) -> None:
    bound = content(chat(api, model, response_format=FORMAT))
    assert content(chat(api, model, **fields)) == bound
    jsonschema.validate(json.loads(bound), STOCK)


@pytest.mark.parametrize("field", ["guided_choice", "structured_outputs"])
def test_one_of_some_texts(api: httpx.Client, model: str, field: str) -> None:
    choices = ["in stock", "sold out", "in stock soon"]
    value = choices if field == "guided_choice" else {"choice": choices}
    for seed in range(4):
        reply = chat(api, model, temperature=2, seed=seed, **{field: value})
        assert content(reply) in choices
        assert reply.json()["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("choice", "finish"), [(NAMED, "stop"), ("required", "tool_calls")], ids=["named", "required"]
)
def test_a_tool_is_called(api: httpx.Client, model: str, choice: Any, finish: str) -> None:
    tools = [TOOL] if choice == "required" else [OTHER, TOOL]
    body = chat(api, model, tools=tools, tool_choice=choice).json()
    (answer,) = body["choices"]
    assert (answer["message"]["content"], answer["finish_reason"]) == (None, finish)
    (call,) = answer["message"]["tool_calls"]
    assert (call["type"], call["function"]["name"]) == ("function", "stock")
    jsonschema.validate(json.loads(call["function"]["arguments"]), STOCK)


def test_a_tool_is_called_in_pieces(api: httpx.Client, model: str) -> None:
    fields = {"tools": [TOOL], "tool_choice": NAMED, "n": 2}
    whole = chat(api, model, **fields).json()["choices"]
    chunks = [c["choices"][0] for c in events(chat(api, model, stream=True, **fields))]
    for index in range(2):
        deltas = [c["delta"] for c in chunks if c["index"] == index]
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        assert calls[0]["function"] == {"name": "stock", "arguments": ""}
        assert calls[0]["id"]
        assert {call["index"] for call in calls} == {0}
        arguments = "".join(call["function"]["arguments"] for call in calls)
        assert arguments == whole[index]["message"]["tool_calls"][0]["function"]["arguments"]


def test_a_function_without_parameters_is_called_with_none(api: httpx.Client, model: str) -> None:
    body = chat(api, model, tools=[OTHER], tool_choice="required").json()
    assert body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_conversation_with_calls_goes_on(api: httpx.Client, model: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "stock", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "Answer in JSON."},
        {"role": "user", "content": [{"type": "text", "text": "In stock?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "c1", "content": "in_stock is missing"},
    ]
    reply = chat(api, model, messages=messages, tools=[TOOL], tool_choice=NAMED)
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": False},
        {"logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0.0, "store": False},
        {"top_k": -1, "min_p": 0, "repetition_penalty": 1.0, "min_tokens": 0, "ignore_eos": False},
        {"max_completion_tokens": 32, "max_tokens": None, "stop": [], "modalities": ["text"]},
        {"skip_special_tokens": True, "echo": False, "stop_token_ids": []},
    ],
)
def test_what_asks_for_nothing_changes_nothing(
    api: httpx.Client, model: str, fields: dict[str, Any]
) -> None:
    assert content(chat(api, model, **fields)) == content(chat(api, model))


@pytest.mark.parametrize(
    ("fields", "status", "word"),
    [
        ({"guided_regex": "a+"}, 400, "pattern"),
        ({"guided_grammar": "root ::= x"}, 400, "pattern"),
        ({"structured_outputs": {"regex": "a+"}}, 400, "pattern"),
        ({"structured_outputs": {"whitespace_pattern": " "}}, 422, "compact"),
        ({"structured_outputs": {"jsn": {}}}, 422, "unknown field"),
        ({"guided_json": "{"}, 400, "isn't JSON"),
        ({"guided_json": "[]"}, 400, "object"),
        ({"guided_choice": []}, 400, "from 1 to"),
        ({"guided_choice": ["yes", ""]}, 422, "empty"),
        ({"guided_json": STOCK, "guided_choice": ["yes"]}, 400, "give one"),
        ({"guided_json": STOCK, "response_format": FORMAT}, 400, "give one"),
        ({"tools": [TOOL], "tool_choice": NAMED, "response_format": FORMAT}, 400, "give one"),
        ({"tools": [TOOL]}, 400, "name the function"),
        ({"tools": [TOOL], "tool_choice": "auto"}, 400, "name the function"),
        ({"tools": [TOOL, OTHER], "tool_choice": "required"}, 400, "name the function"),
        ({"tools": [OTHER], "tool_choice": NAMED}, 400, "known are other"),
        ({"tool_choice": NAMED}, 400, "give tools"),
        ({"functions": [{"name": "f"}]}, 422, "use tools"),
        ({"logit_bias": {"50256": -100}}, 422, "/logit_bias: it isn't served"),
        ({"presence_penalty": 0.5}, 422, "leave it out"),
        ({"frequency_penalty": 0.5}, 422, "leave it out"),
        ({"top_k": 40}, 422, "top_p is served"),
        ({"ignore_eos": True}, 422, "leave it out"),
        ({"min_tokens": 5}, 422, "leave it out"),
        ({"store": True}, 422, "leave it out"),
        ({"messages": [{"role": "user"}]}, 422, "needs content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 422, "/messages/0/role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            422,
            "/messages/0/content",
        ),
    ],
)
def test_what_is_not_served_is_said(
    api: httpx.Client, model: str, fields: dict[str, Any], status: int, word: str
) -> None:
    reply = chat(api, model, **fields)
    reason = "schema_invalid" if word == "empty" else "request_invalid"
    expect_problem(reply, status, reason, word)
