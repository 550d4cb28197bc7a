"""Where a burst runner gets its engine from: a given one, or one that is connected on demand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Protocol

from pagemill.engine.client import Engine
from pagemill.engine.errors import EngineError


class EngineSource(Protocol):
    """Gives engines to one runner."""

    def credit(self) -> int:
        """Return how many requests one engine would take now; EngineError when none answers."""

    def choose(self, schema: str, count: int = 1) -> Engine:
        """Return the engine for `count` pages of a schema; EngineError when none answers."""

    def failed(self, engine: Engine) -> None:
        """Take note that an engine broke down; its client is not used again."""

    def close(self) -> None:
        """Close the clients that this source has made."""


class FixedEngine:
    """One engine that somebody else owns."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def credit(self) -> int:
        return self._engine.stats().credit

    def choose(self, schema: str, count: int = 1) -> Engine:
        return self._engine

    def failed(self, engine: Engine) -> None:
        """Nothing to do: the owner decides."""

    def close(self) -> None:
        """Nothing to do: the owner closes it."""


class ConnectedEngine:
    """One engine behind a function that connects to it, again after each failure."""

    def __init__(self, connect: Callable[[], Engine]) -> None:
        self._connect = connect
        self._engine: Engine | None = None

    def credit(self) -> int:
        engine = self._client()
        try:
            return engine.stats().credit
        except EngineError:
            self.failed(engine)
            raise

    def choose(self, schema: str, count: int = 1) -> Engine:
        return self._client()

    def failed(self, engine: Engine) -> None:
        if engine is self._engine:
            self.close()

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            with contextlib.suppress(EngineError):
                engine.close()

    def _client(self) -> Engine:
        if self._engine is None:
            self._engine = self._connect()
        return self._engine
