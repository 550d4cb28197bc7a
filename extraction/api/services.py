"""What the routes work with: Redis, schemas, ledger, engine, extractor. One per process.

Nothing is asked of Redis or the engine before a request needs it, so the API starts, and stays
up, without either.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from pagemill import schemas
from pagemill.engine.client_async import AsyncEngineClient
from pagemill.engine.store import resolve
from pagemill.engine.tokenizer import Tokenizer
from starlette.requests import Request

from ..assembly import make_extractor, open_ledger
from ..bell import Bell
from ..bound_schema import BoundSchema, bind
from ..config import Settings
from ..extractor import Extractor
from ..key_usage import KeyUsage
from .metrics import Metrics

_CONNECT_TIMEOUT_S = 3.0
_REDIS_TIMEOUT_S = 5.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def in_thread(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run blocking or computing work off the event loop."""
    return await asyncio.to_thread(functools.partial(call, *args, **kwargs))


class Services:
    """Shared by all requests of a process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.ledger = open_ledger(settings, timeout_s=_REDIS_TIMEOUT_S)
        self.registry = schemas.SchemaRegistry(self.ledger.redis, settings.namespace)
        schemas.share_cache(self.ledger.redis, settings.namespace)
        self.usage = KeyUsage(self.ledger.redis, settings.namespace)
        self.bell = Bell(settings, self.ledger.redis)
        self._engine: AsyncEngineClient | None = None
        self._extractor: Extractor | None = None
        self._tokenizer: Tokenizer | None = None
        self._connecting = asyncio.Lock()

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()
        await in_thread(self.bell.close)
        self.ledger.redis.close()

    async def engine(self) -> AsyncEngineClient:
        """The client, connected at first use; EngineError(ENGINE_UNAVAILABLE)."""
        if self._engine is None:
            async with self._connecting:
                if self._engine is None:
                    self._engine = await AsyncEngineClient.connect(
                        self.settings.engine_endpoint,
                        connect_timeout_s=_CONNECT_TIMEOUT_S,
                        silence_timeout_s=self.settings.engine_timeout_s,
                    )
        return self._engine

    async def tokenizer(self) -> Tokenizer:
        """The tokenizer of `settings.model`; EngineError(MODEL_INVALID)."""
        if self._tokenizer is None:
            self._tokenizer = await in_thread(_load_tokenizer, self.settings.model)
        return self._tokenizer

    async def extractor(self) -> Extractor:
        """The extractor for the engine's model; EngineError when the engine is down."""
        if self._extractor is None:
            info = (await self.engine()).info
            self._extractor = make_extractor(self.settings, await self.tokenizer(), info)
        return self._extractor

    async def bind(self, source: str | dict[str, Any]) -> BoundSchema:
        """The compiled form of a registered or an inline schema; SchemaRefused."""
        return await in_thread(self._bind, source)

    def _bind(self, source: str | dict[str, Any]) -> BoundSchema:
        return bind(self.registry.get(source) if isinstance(source, str) else source)


def _load_tokenizer(model: str) -> Tokenizer:
    return Tokenizer.load(resolve(model).directory)


def services_of(request: Request) -> Services:
    """The services of the application that serves `request` (a dependency of the routes)."""
    services: Services = request.app.state.services
    return services
