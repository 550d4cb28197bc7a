"""The FastAPI application. `create_app` is a factory: nothing is opened at import."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
from collections.abc import AsyncIterator

from fastapi import Depends, FastAPI, Security
from fastapi.security import HTTPBearer
from starlette.responses import Response

from .. import logs
from ..api_keys import ApiKeys
from ..config import Settings, load_settings
from . import (
    openapi,
    problems,
    routes_batches,
    routes_console,
    routes_extract,
    routes_health,
    routes_openai,
    routes_schemas,
)
from .access import AccessLog
from .auth import Auth
from .body_limits import BodyLimits
from .disconnect import ClientGone
from .services import Services

_DESCRIPTION = "Crawled pages in, schema-valid JSON records out."


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the application; settings come from the environment if none are given.

    It starts without Redis and without an engine: requests that need them get 503.
    """
    chosen = settings or load_settings()
    logs.configure(chosen.log_level, chosen.log_format)
    services = Services(chosen)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await services.close()

    app = FastAPI(
        title="pagemill",
        version=importlib.metadata.version("pagemill"),
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    dependencies = [Depends(problems.check_query)]
    if chosen.require_api_key:
        # For the OpenAPI document; the middleware has checked the key by then.
        dependencies.append(Security(HTTPBearer(auto_error=False)))
    for router in (
        routes_schemas.verbs,
        routes_schemas.router,
        routes_extract.router,
        routes_batches.router,
        routes_openai.router,
        routes_health.router,
        routes_console.router,
    ):
        app.include_router(router, dependencies=dependencies)
    app.openapi = functools.partial(openapi.document, app)  # type: ignore[method-assign]
    problems.install(app)
    app.add_exception_handler(ClientGone, _nobody_listens)
    app.add_middleware(BodyLimits, limit_of=_BodyLimit(chosen))
    if chosen.require_api_key:
        keys = ApiKeys(services.ledger.redis, chosen.namespace)
        app.add_middleware(Auth, keys=keys, usage=services.usage)
    app.add_middleware(AccessLog, metrics=services.metrics)
    return app


async def _nobody_listens(request: object, error: Exception) -> Response:
    # 499 as nginx logs it; no one reads this.
    return Response(status_code=499)


class _BodyLimit:
    """The bytes that a body may have: uploads of lines are read as they come, others in whole."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, path: str, content_type: str) -> int:
        if path == "/v1/batches" and content_type in routes_batches.NDJSON_TYPES:
            return self._settings.max_batch_bytes
        return self._settings.max_body_bytes
