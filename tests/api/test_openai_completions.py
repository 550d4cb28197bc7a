"""`/v1/completions` as OpenAI's clients call it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest
from pagemill.engine.store import ModelFiles
from pagemill.engine.tokenizer import Tokenizer

from .conftest import STOCK, expect_problem
from .test_openai import events, model

__all__ = ["model"]
pytestmark = pytest.mark.model


def complete(
    api: httpx.Client, model: str, prompt: Any = "A kettle", **more: Any
) -> httpx.Response:
    body = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": 12, **more}
    return api.post("/v1/completions", json=body)


def test_a_text_goes_on(api: httpx.Client, model: str) -> None:
    reply = complete(api, model)
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert (body["object"], body["model"]) == ("text_completion", model)
    (choice,) = body["choices"]
    assert isinstance(choice["text"], str)
    assert (choice["index"], choice["logprobs"]) == (0, None)
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_ids_are_as_good_as_text(api: httpx.Client, model: str, model_files: ModelFiles) -> None:
    ids = Tokenizer.load(model_files.directory).encode("A kettle").tolist()
    alone = complete(api, model).json()["choices"]
    assert complete(api, model, ids).json()["choices"] == alone
    assert complete(api, model, [ids]).json()["choices"] == alone
    assert complete(api, model, ["A kettle"]).json()["choices"] == alone
    expect_problem(complete(api, model, [2**31 - 1]), 400, "request_invalid", "tokenizer")


def test_choices_of_several_prompts_stand_in_their_order(api: httpx.Client, model: str) -> None:
    fields = {"n": 2, "temperature": 1.3, "seed": 5}
    prompts = ["A kettle", "Two cups of tea"]
    body = complete(api, model, prompts, **fields).json()
    alone = [complete(api, model, prompt, **fields).json() for prompt in prompts]
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    texts = [choice["text"] for one in alone for choice in one["choices"]]
    assert [choice["text"] for choice in body["choices"]] == texts
    for name in ("prompt_tokens", "completion_tokens"):
        assert body["usage"][name] == sum(one["usage"][name] for one in alone)
    options = {"include_usage": True}
    *chunks, last = events(
        complete(api, model, prompts, stream=True, stream_options=options, **fields)
    )
    for index, text in enumerate(texts):
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert "".join(choice["text"] for choice in own) == text
        assert own[-1]["finish_reason"] is not None
    assert last["usage"]["total_tokens"] == body["usage"]["total_tokens"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_prompt_comes_back_where_it_is_asked_for(
    api: httpx.Client, model: str, stream: bool
) -> None:
    alone = complete(api, model).json()["choices"][0]["text"]
    reply = complete(api, model, echo=True, stream=stream)
    choices = [c["choices"][0] for c in events(reply)] if stream else reply.json()["choices"]
    assert "".join(choice["text"] for choice in choices) == "A kettle" + alone


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_come_in_columns(api: httpx.Client, model: str, stream: bool) -> None:
    reply = complete(api, model, logprobs=2, max_tokens=6, stream=stream)
    choices = [c["choices"][0] for c in events(reply)] if stream else reply.json()["choices"]
    columns: dict[str, list[Any]] = {}
    for choice in choices:
        for name, column in (choice["logprobs"] or {}).items():
            columns.setdefault(name, []).extend(column)
    assert "".join(columns["tokens"]) == "".join(choice["text"] for choice in choices)
    offset = 0
    for token, logprob, best, place in zip(
        columns["tokens"],
        columns["token_logprobs"],
        columns["top_logprobs"],
        columns["text_offset"],
        strict=True,
    ):
        assert place == offset
        offset += len(token)
        assert 1 <= len(best) <= 2
        assert 0 >= max(best.values()) >= logprob


def test_a_stop_string_ends_a_text(api: httpx.Client, model: str) -> None:
    text = complete(api, model).json()["choices"][0]["text"]
    stop = text[3:6]
    (choice,) = complete(api, model, stop=stop).json()["choices"]
    assert (choice["text"], choice["finish_reason"]) == (text[: text.index(stop)], "stop")


def test_a_text_is_bound_to_a_schema(api: httpx.Client, model: str) -> None:
    for fields in ({"guided_json": STOCK}, {"structured_outputs": {"json": STOCK}}):
        body = complete(api, model, max_tokens=40, **fields).json()
        jsonschema.validate(json.loads(body["choices"][0]["text"]), STOCK)


@pytest.mark.parametrize(
    ("fields", "status", "reason", "word"),
    [
        ({"model": "gpt-3.5"}, 404, "model_unknown", "use smollm2"),
        ({"prompt": []}, 422, "request_invalid", "/prompt"),
        ({"prompt": ""}, 422, "prompt_empty", ""),
        ({"prompt": [-1]}, 422, "request_invalid", "/prompt"),
        ({"prompt": ["a"] * 65}, 422, "request_invalid", "/prompt"),
        ({"prompt": ["a"] * 20, "n": 10}, 422, "request_invalid", "at most 128"),
        ({"prompt": "a " * 30_000}, 422, "prompt_too_long", ""),
        ({"prompt": None}, 422, "request_invalid", "/prompt"),
        ({"echo": True, "logprobs": 1}, 422, "request_invalid", "aren't scored"),
        ({"max_tokens": 0}, 422, "request_invalid", "/max_tokens"),
        ({"suffix": "x"}, 422, "request_invalid", "suffix"),
        ({"messages": []}, 422, "request_invalid", "unknown field"),
        ({"logprobs": 50}, 422, "request_invalid", "/logprobs"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_request_is_a_problem(
    api: httpx.Client,
    model: str,
    fields: dict[str, Any],
    status: int,
    reason: str,
    word: str,
    stream: bool,
) -> None:
    asked = {"model": model, "prompt": "A kettle", **fields}
    reply = complete(api, asked.pop("model"), asked.pop("prompt"), stream=stream, **asked)
    expect_problem(reply, status, reason, word)
