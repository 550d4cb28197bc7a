"""Beam searches and samples through `/v1/chat/completions`, at their limits and left alone."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

import httpx
import jsonschema
import pytest
from pagemill.extraction.child import wait_until

from .conftest import expect_problem
from .test_openai import FORMAT, STOCK, chat, events, model

__all__ = ["model"]  # a fixture
pytestmark = pytest.mark.model
BEAMS = {"use_beam_search": True}
ENUM = {"type": "json_schema", "json_schema": {"name": "e", "schema": {"enum": ["x"]}}}


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"n": 2, "best_of": 8, "response_format": FORMAT}, 2),
        ({"n": 16, "max_tokens": 12}, 16),
        ({"n": 3, "max_tokens": 1}, 3),
        ({"n": 4, "response_format": ENUM}, 4),  # there is one text
        ({"n": 2, "stop": ["e"], "max_tokens": 20}, 2),
        ({"n": 2, "seed": 3, "max_tokens": 10}, 2),
        ({"n": 2, "length_penalty": -10, "max_tokens": 10}, 2),
        ({"n": 2, "length_penalty": 10, "max_tokens": 10}, 2),
        ({"n": 1, "best_of": 16, "max_tokens": 9}, 1),
    ],
)
def test_searches_at_the_edges_answer(
    api: httpx.Client, model: str, fields: dict[str, Any], most: int
) -> None:
    reply = chat(api, model, **BEAMS, **fields)
    assert reply.status_code == 200, reply.text
    choices = reply.json()["choices"]
    assert 1 <= len(choices) <= most
    assert [choice["index"] for choice in choices] == list(range(len(choices)))
    for choice in choices:
        text = choice["message"]["content"]
        if fields.get("response_format") is FORMAT:
            jsonschema.validate(json.loads(text), STOCK)
        if "stop" in fields:
            assert "e" not in text


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"n": 4, "best_of": 2}, "best_of must be at least n"),
        ({"best_of": 17}, "less than or equal to 16"),
        ({"length_penalty": 11}, "less than or equal to 10"),
        ({"logprobs": True}, "without temperature and logprobs"),
        ({"max_tokens": 1, "response_format": FORMAT}, "max_tokens 1: the shortest record"),
    ],
)
def test_searches_that_can_not_be_are_refused(
    api: httpx.Client, model: str, fields: dict[str, Any], part: str
) -> None:
    reply = chat(api, model, **BEAMS, **fields)
    reason = "budget_too_small" if "max_tokens" in fields else "request_invalid"
    expect_problem(reply, 422, reason)
    assert part in reply.json()["detail"]


def test_a_streamed_search_ends_each_text_once(api: httpx.Client, model: str) -> None:
    fields = {**BEAMS, "n": 3, "response_format": FORMAT, "stream": True}
    chunks = events(chat(api, model, **fields))
    ends = [c["index"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert sorted(ends) == sorted(set(ends))
    assert ends


def test_callers_that_hang_up_leave_nothing_behind(api: httpx.Client, model: str) -> None:
    for fields in (BEAMS, {"temperature": 1.0}):
        body = {"model": model, "n": 8, "max_tokens": 400, **fields}
        body["messages"] = [{"role": "user", "content": "The kettle is in stock."}]
        with contextlib.suppress(httpx.TimeoutException):
            api.post("/v1/chat/completions", json=body, timeout=0.05)

    def idle() -> bool:
        engine = api.get("/v1/status").json()["engine"]
        return bool(engine["running"] == engine["waiting"] == 0 == engine["kv_cache_usage"])

    assert wait_until(idle, 30)
    assert chat(api, model, **BEAMS, n=2, response_format=FORMAT).status_code == 200


def test_many_searches_at_once_all_answer(api: httpx.Client, model: str) -> None:
    found: dict[int, int] = {}

    def ask(number: int) -> None:
        found[number] = chat(api, model, **BEAMS, n=4, response_format=FORMAT).status_code

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found.values()) == {200}
    assert len(found) == 24
