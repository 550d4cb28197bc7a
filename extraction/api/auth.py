"""Who may call what: keys are checked before anything of a request's body is read."""

from __future__ import annotations

import hashlib
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from .. import api_keys
from ..api_keys import ApiKey
from ..key_usage import KeyUsage
from ..reason import Reason
from ..record import ExtractOptions
from .problems import problem, problem_of
from .services import Services, in_thread

# Everything else needs "read"; what isn't served needs a key all the same.
_OPEN = frozenset({"/", "/healthz", "/readyz", "/openapi.json"})
_CONSOLE = "/console/"
_SUBMIT = frozenset({"/v1/extract", "/v1/batches", "/v1/chat/completions", "/v1/completions"})
_BATCHES = "/v1/batches/"
_SCHEMAS = "/v1/schemas/"


class _Keys(Protocol):
    def find(self, token: str) -> ApiKey | None: ...


class Auth:
    """ASGI middleware: 401 without a key, 403 where its scopes don't reach, 429 over its quota."""

    def __init__(self, app: ASGIApp, keys: _Keys, usage: KeyUsage) -> None:
        self._app = app
        self._keys = keys
        self._usage = usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        token = _token(scope)
        try:
            key = await in_thread(self._keys.find, token) if token else None
        except Exception as error:
            await problem_of(error)(scope, receive, send)
            return
        if key is None:
            answer = problem(
                Reason.API_KEY_INVALID,
                "this key isn't valid, or no longer" if token else "no API key given",
                advice='send "Authorization: Bearer KEY"; `pagemill key create` makes keys',
                headers={"WWW-Authenticate": "Bearer"},
            )
            await answer(scope, receive, send)
            return
        needed = _needed(scope["method"], scope["path"])
        if not key.allows(needed):
            answer = problem(
                Reason.SCOPE_MISSING,
                f"this key has the scopes {', '.join(key.scopes)}; the call needs {needed!r}",
            )
            await answer(scope, receive, send)
            return
        if needed == "submit":
            try:
                await in_thread(self._usage.admit, key)
            except Exception as error:
                await problem_of(error)(scope, receive, send)
                return
        scope.setdefault("state", {})["api_key"] = key
        await self._app(scope, receive, send)


def _is_open(path: str) -> bool:
    return path in _OPEN or path.startswith(_CONSOLE)


def _token(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, token = value.decode("latin-1").partition(" ")
            if kind.lower() == "bearer":
                return str(token.strip())
    return ""


def _needed(method: str, path: str) -> api_keys.Scope:
    if method == "POST" and (path in _SUBMIT or path.startswith(_BATCHES)):
        return "submit"
    if method not in ("GET", "HEAD") and path.startswith(_SCHEMAS):
        return "admin"
    return "read"


def owned(request: Request, options: ExtractOptions) -> ExtractOptions:
    """The options as the caller's tenant has them: its own pages, quota and prompt cache."""
    tenant = tenant_of(request)
    return msgspec.structs.replace(options, tenant=tenant, salt=tenant) if tenant else options


def tenant_of(request: Request) -> str:
    """The tenant whose key the request carries; "" where no keys are asked for."""
    key: ApiKey | None = request.scope.get("state", {}).get("api_key")
    return key.tenant if key is not None else ""


async def count_pages(request: Request, services: Services, pages: int) -> None:
    """Add pages to what the request's key has used today."""
    key: ApiKey | None = request.scope.get("state", {}).get("api_key")
    if key is not None:
        await in_thread(services.usage.count, key, pages)


def batch_mark(request: Request) -> str:
    """How the ids of the caller's batches end, so that nobody else's key reads them."""
    tenant = tenant_of(request)
    return "." + hashlib.sha256(f"batch:{tenant}".encode()).hexdigest()[:16] if tenant else ""


def may_read_batch(request: Request, batch_id: str) -> bool:
    """Whether a batch is the caller's, or the caller an administrator."""
    key: ApiKey | None = request.scope.get("state", {}).get("api_key")
    return key is None or key.allows("admin") or batch_id.endswith(batch_mark(request))
