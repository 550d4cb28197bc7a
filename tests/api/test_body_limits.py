"""A body is bounded while it streams in, after its content encoding is undone."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import zstandard
from fastapi import FastAPI, Request
from pagemill.extraction.api import problems
from pagemill.extraction.api.body_limits import BodyLimits

LIMIT = 100_000


def echo() -> FastAPI:
    app = FastAPI()

    @app.post("/{path}")
    async def size(request: Request) -> dict[str, int | str]:
        total = 0
        async for piece in request.stream():
            total += len(piece)
        encoding = request.headers.get("content-encoding", "")
        return {"size": total, "encoding": encoding}

    problems.install(app)
    app.add_middleware(BodyLimits, limit_of=lambda path, kind: LIMIT if path == "/a" else 10)
    return app


def post(
    body: bytes | Iterator[bytes], encoding: str | None = None, path: str = "/a"
) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=echo())
        headers = {"content-encoding": encoding} if encoding else {}
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            content = body if isinstance(body, bytes) else aiter_of(body)
            return await client.post(path, content=content, headers=headers)

    async def aiter_of(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return asyncio.run(send())


def zstd_bomb(size: int) -> bytes:
    return zstandard.ZstdCompressor().compress(b"\0" * size)


ENCODERS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("encoding", ENCODERS)
def test_the_application_reads_the_plain_body(encoding: str) -> None:
    body = bytes(range(256)) * 390
    reply = post(ENCODERS[encoding](body), encoding)
    assert reply.json() == {"size": len(body), "encoding": ""}


@pytest.mark.parametrize("encoding", ENCODERS)
def test_a_small_body_that_inflates_too_far_is_refused(encoding: str) -> None:
    bomb = ENCODERS[encoding](b"\0" * (64 << 20))
    assert len(bomb) < LIMIT
    reply = post(bomb, encoding)
    assert reply.status_code == 413
    assert reply.json()["reason"] == "request_too_large"
    assert reply.headers["content-type"] == "application/problem+json"


def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    reply = post(b"x" * (LIMIT + 1))
    assert (reply.status_code, reply.json()["reason"]) == (413, "request_too_large")


def test_an_undeclared_length_is_counted() -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 1 << 30:
            sent += 10_000
            yield b"x" * 10_000

    reply = post(endless())
    assert (reply.status_code, reply.json()["reason"]) == (413, "request_too_large")


def test_limits_differ_by_path() -> None:
    assert post(b"x" * 10, path="/b").json()["size"] == 10
    assert post(b"x" * 11, path="/b").status_code == 413


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "exe"])
def test_an_unknown_encoding_is_refused_with_the_known_ones(encoding: str) -> None:
    reply = post(b"x", encoding)
    assert (reply.status_code, reply.json()["reason"]) == (415, "unsupported_content_type")
    assert "zstd" in reply.json()["advice"]


@pytest.mark.parametrize("encoding", ENCODERS)
@pytest.mark.parametrize("damage", ["wrong", "cut", "trailing"])
def test_a_damaged_body_is_refused(encoding: str, damage: str) -> None:
    good = ENCODERS[encoding](b"page" * 1000)
    body = {"wrong": b"<html>", "cut": good[:-3], "trailing": good + b"more"}[damage]
    reply = post(body, encoding)
    assert (reply.status_code, reply.json()["reason"]) == (400, "body_encoding_invalid")
