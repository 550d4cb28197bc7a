"""The API as a process, beside a real server and an engine with the fake executor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
import pytest
from pagemill.engine.store import ModelFiles
from pagemill.extraction.config import Settings
from pagemill.extraction.stack import ApiProcess, EmbeddedRedis, EngineProcess, WorkerProcess

STOCK = {
    "type": "object",
    "description": "Whether it can be bought.",
    "properties": {"in_stock": {"type": "boolean", "description": "Can be bought now"}},
    "required": ["in_stock"],
    "additionalProperties": False,
}
HTML = "<html><head><title>Kettle</title></head><body><h1>Kettle</h1><p>In stock.</p></body></html>"


@pytest.fixture(scope="package")
def settings(model_files: ModelFiles) -> Iterator[Settings]:
    """Server, engine and worker of these tests."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis())
        engine = stack.enter_context(EngineProcess(options=["--executor", "fake"]))
        settings = Settings(
            redis_url=server.url,
            engine_endpoint=engine.endpoint,
            max_body_bytes=1 << 20,
            max_page_bytes=400_000,
            max_batch_pages=200,
            max_tokens=64,
        )
        stack.enter_context(WorkerProcess(settings, options=["--pool", "solo"]))
        yield settings


@pytest.fixture(scope="package")
def api_url(settings: Settings) -> Iterator[str]:
    with ApiProcess(settings) as api:
        yield api.url


@pytest.fixture
def api(api_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=api_url, timeout=60, trust_env=False) as client:
        yield client


def expect_problem(reply: httpx.Response, status: int, reason: str, *words: str) -> None:
    """The reply is a problem with this reason, whose sentence holds these words."""
    assert reply.headers["content-type"] == "application/problem+json", reply.text
    body = reply.json()
    assert (reply.status_code, body["reason"]) == (status, reason), body
    assert body["status"] == status
    assert body["error"]["code"] == reason
    told = " ".join([body["detail"], body.get("advice", "")])
    for word in words:
        assert word in told, (word, told)
