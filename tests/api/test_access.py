"""Whatever a route raises, the caller gets a problem."""

from __future__ import annotations

import asyncio

import httpx
from fastapi import FastAPI
from pagemill.extraction.api import problems
from pagemill.extraction.api.access import AccessLog

from .conftest import expect_problem


class _NoMetrics:
    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        assert status == 500


def test_an_unforeseen_error_is_a_problem_too() -> None:
    app = FastAPI()

    @app.get("/")
    async def fail() -> None:
        raise RecursionError("text of a page")

    problems.install(app)
    app.add_middleware(AccessLog, metrics=_NoMetrics())

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get("/")

    reply = asyncio.run(get())
    expect_problem(reply, 500, "internal_error", "request id")
    assert reply.headers["x-request-id"]
    assert "text of a page" not in reply.text
