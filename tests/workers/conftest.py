"""A Celery worker beside a real server and an engine with the fake executor, for each pool."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from celery import Celery
from pagemill.engine.store import ModelFiles
from pagemill.extraction.config import Settings
from pagemill.extraction.stack import EmbeddedRedis, EngineProcess, WorkerProcess

SCHEMA = {
    "type": "object",
    "properties": {"in_stock": {"type": "boolean"}},
    "required": ["in_stock"],
}


@dataclass(frozen=True)
class Crawler:
    """What a crawler has: a Celery application of its own, and nothing of ours."""

    app: Celery
    settings: Settings


@pytest.fixture(scope="session")
def services(model_files: ModelFiles) -> Iterator[Settings]:
    """Server and engine of the session."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis())
        engine = stack.enter_context(EngineProcess(options=["--executor", "fake"]))
        yield Settings(
            redis_url=server.url, engine_endpoint=engine.endpoint, burst_size=8, lease_s=5.0
        )


@pytest.fixture(scope="session", params=["prefork", "threads", "solo"])
def crawler(services: Settings, request: pytest.FixtureRequest) -> Iterator[Crawler]:
    """A pool of one of each kind, with a namespace and a queue of its own."""
    settings = services.model_copy(update={"namespace": request.param, "queue": request.param})
    app = Celery("crawler", broker=settings.broker_url, backend=settings.broker_url)
    with WorkerProcess(settings, options=["--pool", request.param]):
        yield Crawler(app, settings)
    app.close()
