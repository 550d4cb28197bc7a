"""Chooses among the engines that announce themselves, else takes the configured one.

Rendezvous hashing on the schema: pages of a schema meet the engine that has its prefix cached,
and when an engine comes or goes only its own share moves. An engine that is full is passed over.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Sequence

from pagemill.engine.client import Engine
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.extraction.reason import Refused
from redis import Redis

from .announcer import Announcement, announced

_REFRESH_S = 1.0
_AVOID_S = 5.0


def rendezvous(schema: str, endpoints: Sequence[str]) -> list[str]:
    """Return the endpoints in the order in which a schema prefers them (highest weight first)."""
    return sorted(
        endpoints,
        key=lambda endpoint: hashlib.sha256(f"{schema}\0{endpoint}".encode()).digest(),
        reverse=True,
    )


class AnnouncedEngines:
    """An EngineSource for one thread: clients are made at first use and after failures."""

    def __init__(
        self,
        redis: Redis,
        *,
        namespace: str,
        default_endpoint: str,
        connect: Callable[[str], Engine],
    ) -> None:
        self._redis = redis
        self._namespace = namespace
        self._default_endpoint = default_endpoint
        self._connect = connect
        self._clients: dict[str, Engine] = {}
        self._avoid: dict[str, float] = {}
        self._known: list[Announcement] = []
        self._credits: dict[str, int] = {}
        self._known_at = -_REFRESH_S

    def credit(self) -> int:
        """What the engine with most room would take; EngineError when none answers."""
        self._credits = {}
        last: EngineError | None = None
        for endpoint in self._endpoints():
            try:
                self._credits[endpoint] = self._client(endpoint).stats().credit
            except EngineError as error:
                self._drop(endpoint)
                last = error
        if last is not None and not self._credits:
            raise last
        return max(self._credits.values(), default=0)

    def choose(self, schema: str, count: int = 1) -> Engine:
        last: EngineError | None = None
        for endpoint in self._preferred(schema, count):
            try:
                client = self._client(endpoint)
            except EngineError as error:
                self._drop(endpoint)
                last = error
                continue
            self._credits[endpoint] = self._credits.get(endpoint, 0) - count
            return client
        raise last or EngineError(EngineReason.ENGINE_UNAVAILABLE, "no engine is known")

    def _preferred(self, schema: str, count: int) -> list[str]:
        """Endpoints that said they have room for `count`, then those that have less."""
        order = rendezvous(schema, self._endpoints())
        return sorted(
            order, key=lambda end: min(0, self._credits.get(end, 0) - count), reverse=True
        )

    def failed(self, engine: Engine) -> None:
        for endpoint, client in list(self._clients.items()):
            if client is engine:
                self._drop(endpoint)

    def close(self) -> None:
        for endpoint in list(self._clients):
            self._drop(endpoint)

    def _endpoints(self) -> list[str]:
        now = time.monotonic()
        if now - self._known_at >= _REFRESH_S:
            # Without Redis the engines known so far serve on.
            with contextlib.suppress(Refused):
                self._known = announced(self._redis, self._namespace)
            self._known_at = now
        known = [engine.endpoint for engine in self._known if not engine.draining]
        endpoints = known if self._known else [self._default_endpoint]
        willing = [end for end in endpoints if self._avoid.get(end, 0.0) <= now]
        for gone in set(self._clients) - set(endpoints):
            self._close(gone)
        return willing or endpoints

    def _client(self, endpoint: str) -> Engine:
        client = self._clients.get(endpoint)
        if client is None:
            client = self._clients[endpoint] = self._connect(endpoint)
        return client

    def _drop(self, endpoint: str) -> None:
        self._avoid[endpoint] = time.monotonic() + _AVOID_S
        self._close(endpoint)

    def _close(self, endpoint: str) -> None:
        client = self._clients.pop(endpoint, None)
        if client is not None:
            with contextlib.suppress(EngineError):
                client.close()
