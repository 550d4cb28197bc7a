"""The command, beside a real server and an engine with the fake executor."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pagemill.engine.store import ModelFiles
from pagemill.extraction.cli.main import run
from pagemill.extraction.stack import EmbeddedRedis, EngineProcess

STOCK = {
    "type": "object",
    "description": "Whether it can be bought.",
    "properties": {"in_stock": {"type": "boolean", "description": "Can be bought now"}},
    "required": ["in_stock"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Done:
    """What a command left: its exit status, and what it wrote."""

    status: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Command:
    """Runs `pagemill ARGUMENTS` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, *arguments: object, stdin: bytes = b"") -> Done:
        source = io.TextIOWrapper(io.BytesIO(stdin))
        self._monkeypatch.setattr(sys, "stdin", source)
        self._capfd.readouterr()
        status = run([str(argument) for argument in arguments])
        sys.stdout.flush()
        sys.stderr.flush()
        written = self._capfd.readouterr()
        return Done(int(status), written.out.encode(), written.err)


@pytest.fixture
def pagemill(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """The command, run in an empty folder without settings of its own."""
    for name in list(os.environ):
        if name.startswith("PAGEMILL_") and name != "PAGEMILL_CACHE":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return Command(monkeypatch, capfd)


@dataclass(frozen=True)
class Services:
    """Where server and engine of the session listen."""

    redis_url: str
    endpoint: str


@pytest.fixture(scope="package")
def services(model_files: ModelFiles) -> Iterator[Services]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis())
        engine = stack.enter_context(EngineProcess(options=["--executor", "fake"]))
        yield Services(server.url, engine.endpoint)


@pytest.fixture
def with_services(
    pagemill: Command, services: Services, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """The command with Redis and engine in its environment."""
    monkeypatch.setenv("PAGEMILL_REDIS_URL", services.redis_url)
    monkeypatch.setenv("PAGEMILL_ENGINE_ENDPOINT", services.endpoint)
    return pagemill
