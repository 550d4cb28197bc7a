"""Services that tests share: a real server on a private unix socket, and the default model.

The server lives as long as the test session; each test that asks for `redis_client` finds it
empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import redis

if TYPE_CHECKING:
    from pagemill.engine.store import ModelFiles

# A change is judged by the same examples each time; new ones are looked for outside CI.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


@dataclass(frozen=True)
class RedisServer:
    """Where the session's server listens; it has no TCP port."""

    socket_path: Path

    @property
    def url(self) -> str:
        """The URL that redis-py and pagemill's settings take."""
        return f"unix://{self.socket_path}"

    @property
    def broker_url(self) -> str:
        """The URL that Celery takes."""
        return f"redis+socket://{self.socket_path}"


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A server with an append-only file and noeviction, as in production.

    Valkey, or the server binary that the variable PAGEMILL_REDIS_SERVER names.
    """
    from pagemill.extraction.stack import EmbeddedRedis

    with EmbeddedRedis() as server:
        yield RedisServer(server.socket_path)


@pytest.fixture
def redis_client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client of the session's server, which is empty before the test (replies are bytes)."""
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
        yield client


@pytest.fixture(scope="session")
def model_files() -> ModelFiles:
    """The default model's files; for tests marked `model`."""
    from pagemill.engine import store

    return store.resolve(None)
