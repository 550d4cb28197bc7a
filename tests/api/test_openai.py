"""`/v1/chat/completions` as OpenAI's clients call it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest

from .conftest import STOCK, expect_problem

pytestmark = pytest.mark.model
FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "stock", "strict": True, "schema": STOCK},
}


@pytest.fixture
def model(api: httpx.Client) -> str:
    return str(api.get("/v1/models").json()["data"][0]["id"])


def chat(api: httpx.Client, model: str, **more: Any) -> httpx.Response:
    messages = [
        {"role": "system", "content": "Answer in JSON."},
        {"role": "user", "content": "The kettle is in stock."},
    ]
    body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 32, **more}
    return api.post("/v1/chat/completions", json=body)


def events(reply: httpx.Response) -> list[dict[str, Any]]:
    assert reply.headers["content-type"].startswith("text/event-stream")
    data = [line[6:] for line in reply.text.split("\n\n") if line]
    assert data.pop() == "[DONE]"
    return [json.loads(item) for item in data]


def test_an_answer_follows_its_schema(api: httpx.Client, model: str) -> None:
    reply = chat(api, model, response_format=FORMAT)
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert body["object"] == "chat.completion"
    (choice,) = body["choices"]
    jsonschema.validate(json.loads(choice["message"]["content"]), STOCK)
    assert choice["finish_reason"] == "stop"
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0


def test_a_stream_is_the_same_text_in_pieces(api: httpx.Client, model: str) -> None:
    whole = chat(api, model, response_format=FORMAT).json()["choices"][0]["message"]["content"]
    options = {"include_usage": True}
    chunks = events(chat(api, model, response_format=FORMAT, stream=True, stream_options=options))
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    deltas = [c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]]
    assert "".join(deltas) == whole
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_several_choices_share_a_prompt(api: httpx.Client, model: str) -> None:
    fields = {"n": 3, "seed": 4, "temperature": 1.2, "max_tokens": 12}
    body = chat(api, model, **fields).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    texts = [choice["message"]["content"] for choice in body["choices"]]
    alone = chat(api, model, **{**fields, "n": 1, "seed": 6}).json()
    assert texts[2] == alone["choices"][0]["message"]["content"]
    assert body["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"]
    assert body["usage"]["completion_tokens"] > alone["usage"]["completion_tokens"]
    chunks = events(chat(api, model, stream=True, **fields))
    for index, text in enumerate(texts):
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(choice["delta"].get("content", "") for choice in own) == text
        assert own[-1]["finish_reason"] is not None


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_of_each_token(api: httpx.Client, model: str, stream: bool) -> None:
    fields = {"max_tokens": 6, "logprobs": True, "top_logprobs": 2}
    if stream:
        pieces = [c["choices"][0] for c in events(chat(api, model, stream=True, **fields))]
        told = [one for p in pieces if p["logprobs"] for one in p["logprobs"]["content"]]
        text = "".join(piece["delta"].get("content", "") for piece in pieces)
    else:
        (choice,) = chat(api, model, **fields).json()["choices"]
        told, text = choice["logprobs"]["content"], choice["message"]["content"]
    assert bytes(b for one in told for b in one["bytes"]).decode() == text
    for one in told:
        best, second = one["top_logprobs"]
        assert 0 >= best["logprob"] >= second["logprob"]
        assert one["logprob"] <= best["logprob"]
    plain = chat(api, model, max_tokens=6).json()["choices"][0]
    assert (plain["message"]["content"], plain["logprobs"]) == (text, None)


@pytest.mark.parametrize("stream", [False, True])
def test_a_beam_search_gives_its_best_texts(api: httpx.Client, model: str, stream: bool) -> None:
    fields = {"use_beam_search": True, "n": 2, "best_of": 3, "response_format": FORMAT}
    if stream:
        pieces = [c["choices"][0] for c in events(chat(api, model, stream=True, **fields))]
        texts = [
            "".join(p["delta"].get("content", "") for p in pieces if p["index"] == index)
            for index in range(2)
        ]
    else:
        choices = chat(api, model, **fields).json()["choices"]
        assert [choice["finish_reason"] for choice in choices] == ["stop"] * 2
        texts = [choice["message"]["content"] for choice in choices]
    for text in texts:
        jsonschema.validate(json.loads(text), STOCK)
    assert texts[0] != texts[1]


def test_a_budget_cuts(api: httpx.Client, model: str) -> None:
    choice = chat(api, model, max_tokens=3).json()["choices"][0]
    assert choice["finish_reason"] in ("length", "stop")


def test_a_stop_string_ends_the_answer(api: httpx.Client, model: str) -> None:
    reply = chat(api, model, response_format=FORMAT, stop=['":'])
    choice = reply.json()["choices"][0]
    assert choice["message"]["content"] == '{"in_stock'
    assert choice["finish_reason"] == "stop"


def test_a_seed_fixes_a_sampled_answer(api: httpx.Client, model: str) -> None:
    first, second = (
        chat(api, model, temperature=1.5, seed=7, max_tokens=16).json()["choices"][0]
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    ("fields", "status", "reason", "word"),
    [
        ({"model": "gpt-4"}, 404, "model_unknown", "use smollm2"),
        ({"messages": []}, 422, "request_invalid", "messages"),
        ({"temprature": 1}, 422, "request_invalid", "did you mean temperature"),
        ({"n": 17}, 422, "request_invalid", "/n"),
        ({"top_logprobs": 2}, 422, "request_invalid", "logprobs: true"),
        ({"logprobs": True, "top_logprobs": 21}, 422, "request_invalid", "/top_logprobs"),
        ({"best_of": 2}, 422, "request_invalid", "use_beam_search"),
        (
            {"use_beam_search": True, "n": 2, "best_of": 1},
            422,
            "request_invalid",
            "best_of must be at least n",
        ),
        (
            {"use_beam_search": True, "temperature": 1.0},
            422,
            "request_invalid",
            "without temperature",
        ),
        ({"tools": [{}]}, 422, "request_invalid", "/tools"),
        ({"response_format": {"type": "json_schema"}}, 400, "request_invalid", "json_schema"),
        ({"messages": [{"role": "user", "content": "a " * 30_000}]}, 422, "prompt_too_long", ""),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {"type": "nonsense"}},
                }
            },
            422,
            "schema_invalid",
            "",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_request_is_a_problem_that_clients_can_read(
    api: httpx.Client,
    model: str,
    fields: dict[str, Any],
    status: int,
    reason: str,
    word: str,
    stream: bool,
) -> None:
    asked = {"model": model, **fields}
    reply = chat(api, asked.pop("model"), stream=stream, **asked)
    expect_problem(reply, status, reason, word)
    assert reply.json()["error"]["message"]


def test_verbatim_values_come_from_the_last_user_message(api: httpx.Client, model: str) -> None:
    string = {"type": ["string", "null"], "maxLength": 30, "x-pagemill-verbatim": True}
    schema = {
        "type": "object",
        "properties": {"name": string, "parts": {"type": "array", "items": string, "maxItems": 3}},
        "required": ["name", "parts"],
        "additionalProperties": False,
    }
    page = 'Kettle "Nova"\u00a0steel,\n\\ 東京 👩\u200d👩\u200d👧 e\u0301cru'
    messages = [
        {"role": "user", "content": "Unrelated"},
        {"role": "assistant", "content": "Nothing."},
        {"role": "user", "content": [{"type": "text", "text": page}]},
        {"role": "assistant", "content": "I look."},
    ]
    fields = {
        "messages": messages,
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
        "evidence": True,
        "max_tokens": 120,
    }
    copied = 0
    for seed in range(6):
        reply = chat(api, model, **fields, temperature=1.0, seed=seed, n=2)
        assert reply.status_code == 200, reply.text
        for choice in reply.json()["choices"]:
            record = json.loads(choice["message"]["content"])
            values = [v for v in [record["name"], *record["parts"]] if v is not None]
            places = choice["evidence"]
            assert [page[place["start"] : place["end"]] for place in places] == values
            assert all(place["exact"] and place["source"] == "text" for place in places)
            copied += len(values)
    assert copied
    nothing = chat(api, model, **{**fields, "messages": messages[1:2]}).json()["choices"][0]
    assert json.loads(nothing["message"]["content"])["name"] is None
    assert nothing["evidence"] == []


def test_evidence_needs_a_schema_and_no_stream(api: httpx.Client, model: str) -> None:
    expect_problem(chat(api, model, evidence=True), 422, "request_invalid", "response_format")
    streamed = chat(api, model, evidence=True, response_format=FORMAT, stream=True)
    expect_problem(streamed, 422, "request_invalid", "stream")
    plain = chat(api, model, response_format=FORMAT).json()["choices"][0]
    assert "evidence" not in plain
