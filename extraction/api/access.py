"""One log event and one observation a request, and the id that joins them to the caller's logs."""

from __future__ import annotations

import re
import time
import traceback
import uuid
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import Metrics
from .problems import problem_of

REQUEST_ID_HEADER = b"x-request-id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class AccessLog:
    """ASGI middleware, the outermost: gives each request its id, logs and counts its end.

    A caller's X-Request-Id is kept when it is a plain word. Neither query nor body is logged.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._log = structlog.get_logger("pagemill.api")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        started = time.perf_counter()
        status = 500
        begun = False

        async def observe(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                message["headers"] = [
                    *message.get("headers", []),
                    (REQUEST_ID_HEADER, request_id.encode()),
                ]
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, observe)
            except Exception as error:
                # Frames and the kind of the error only: its text may quote a page.
                frames = traceback.extract_tb(error.__traceback__)[-8:]
                where = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames]
                self._log.error("request_failed", error=type(error).__name__, where=where)
                if begun:
                    raise
                await problem_of(error)(scope, receive, observe)
            finally:
                seconds = time.perf_counter() - started
                route = _route(scope)
                self._metrics.observe_request(scope["method"], route, status, seconds)
                self._log.info(
                    "request",
                    method=scope["method"],
                    route=route,
                    status=status,
                    ms=round(seconds * 1000, 1),
                )


def _request_id(scope: Scope) -> str:
    for key, value in scope["headers"]:
        if key == REQUEST_ID_HEADER:
            given = value.decode("latin-1")
            if _REQUEST_ID.fullmatch(given):
                return str(given)
    return uuid.uuid4().hex


def _route(scope: Scope) -> str:
    """The route's template rather than the path, so that labels stay few."""
    route: Any = scope.get("route")
    return str(getattr(route, "path", "unmatched"))
