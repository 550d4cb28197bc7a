"""The checks of `pagemill doctor`, each one line with advice where it isn't ok."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import redis
from pagemill.engine import store
from pagemill.engine.client import EngineClient
from pagemill.engine.errors import EngineError
from pagemill.engine.tokenizer import Tokenizer

from ..config import PREFIX, Settings, redact_url
from ..ledger import connect
from ..reason import Refused
from ..stack import server_binary

Outcome = Literal["ok", "warning", "failed", "skipped"]
_MEMORY_ALARM = 0.8
PARTS = ("installation", "model", "redis", "engine")


@dataclass(frozen=True)
class Check:
    """The outcome of one check; `advice` says what to do about it."""

    name: str
    outcome: Outcome
    detail: str
    advice: str = ""


def run_checks(settings: Settings, parts: Sequence[str] = PARTS) -> Iterator[Check]:
    """Yield the checks of `parts` in order; slow ones as they come."""
    if "installation" in parts:
        yield from _installation()
    tokenizer_hash = ""
    if "model" in parts:
        check, tokenizer_hash = _model(settings)
        yield check
    if "redis" in parts:
        yield from _redis(settings)
    if "engine" in parts:
        yield from _engine(settings, tokenizer_hash)


def _installation() -> Iterator[Check]:
    version = importlib.metadata.version("pagemill")
    python = ".".join(map(str, sys.version_info[:3]))
    yield Check("version", "ok", f"pagemill {version}, Python {python}")
    try:
        from pagemill import _core  # noqa: F401

        yield Check("core", "ok", "the C++ core loads")
    except ImportError as error:
        yield Check("core", "failed", str(error), "install pagemill again on this machine")
    if importlib.util.find_spec("torch") is None:
        advice = "on machines that run an engine: pip install 'pagemill[engine]'"
        yield Check("torch", "warning", "not installed", advice)
    else:
        yield Check("torch", "ok", importlib.metadata.version("torch"))
    try:
        yield Check("embedded server", "ok", str(server_binary()))
    except Refused as error:
        yield Check("embedded server", "warning", error.message, error.advice)


def _model(settings: Settings) -> tuple[Check, str]:
    try:
        files = store.resolve(settings.model)
        tokenizer = Tokenizer.load(files.directory)
    except EngineError as error:
        return Check("model", "failed", str(error), "pagemill model pull"), ""
    return Check("model", "ok", f"{files.name} in {files.directory}"), tokenizer.hash


def _redis(settings: Settings) -> Iterator[Check]:
    url = redact_url(settings.redis_url)
    client = connect(settings.redis_url, timeout_s=3.0)
    try:
        info: dict[str, Any] = client.info()
    except redis.exceptions.RedisError as error:
        if "redis_url" not in settings.model_fields_set:
            advice = f"fine for `pagemill extract`; else set {PREFIX}REDIS_URL"
            yield Check("redis", "skipped", f"none at {url}", advice)
        else:
            advice = "start the server, or correct the URL"
            yield Check("redis", "failed", f"{url}: {error}", advice)
        return
    name = "valkey" if "valkey_version" in info else "redis"
    version = str(info.get("valkey_version") or info["redis_version"])
    least = (8, 0) if name == "valkey" else (6, 2)
    if tuple(int(part) for part in version.split(".")[:2]) < least:
        advice = "use Redis >= 6.2 or Valkey >= 8"
        yield Check("redis", "failed", f"{name} {version} is too old", advice)
    else:
        yield Check("redis", "ok", f"{name} {version} at {url}")
    if info.get("loading"):
        yield Check("redis data", "warning", "still loads its file", "wait")
    policy = str(info.get("maxmemory_policy", ""))
    if policy != "noeviction":
        advice = "set maxmemory-policy noeviction: an evicted page is a lost page"
        yield Check("redis eviction", "failed", policy or "unknown", advice)
    else:
        yield Check("redis eviction", "ok", policy)
    if info.get("aof_enabled"):
        yield Check("redis durability", "ok", "append-only file on")
    else:
        advice = "set appendonly yes: a restart loses the ledger without it"
        yield Check("redis durability", "failed", "append-only file off", advice)
    most = int(info.get("maxmemory") or 0)
    used = int(info.get("used_memory") or 0)
    if most and used > _MEMORY_ALARM * most:
        advice = "raise maxmemory, or shorten PAGEMILL_RESULT_TTL_S"
        yield Check("redis memory", "warning", f"{used} of {most} bytes", advice)
    yield from _private("redis socket", urlsplit(settings.redis_url), "unix")


def _private(name: str, url: Any, scheme: str) -> Iterator[Check]:
    """A socket's file: nobody but its owner may come near it."""
    if url.scheme != scheme:
        return
    path = Path(url.path)
    try:
        folder = path.parent.stat()
        socket = path.stat()
    except OSError as error:
        yield Check(name, "failed", f"{path}: {error.strerror}", "start its server")
        return
    others = stat.S_IRWXG | stat.S_IRWXO
    if folder.st_mode & others and socket.st_mode & others:
        advice = f"chmod 700 {path.parent}"
        yield Check(name, "warning", f"{path} is open to other users", advice)
    else:
        yield Check(name, "ok", f"{path} is private")


def _engine(settings: Settings, tokenizer_hash: str) -> Iterator[Check]:
    endpoint = settings.engine_endpoint
    parts = urlsplit(endpoint)
    named = "engine_endpoint" in settings.model_fields_set
    if parts.scheme == "ipc" and not os.path.exists(parts.path) and not named:
        advice = "fine for `pagemill extract`; else start one with `pagemill engine`"
        yield Check("engine", "skipped", f"none at {endpoint}", advice)
        return
    try:
        client = EngineClient.connect(endpoint, connect_timeout_s=3.0)
    except EngineError as error:
        yield Check("engine", "failed", str(error), "start it: pagemill engine")
        return
    try:
        stats = client.stats(3.0)
    except EngineError as error:
        yield Check("engine", "failed", str(error), "restart it: its step loop is stuck")
        return
    finally:
        client.close()
    detail = f"{client.info.model} at {endpoint}: {stats.running} running, {stats.waiting} waiting"
    yield Check("engine", "ok", detail)
    if tokenizer_hash and client.info.tokenizer_hash != tokenizer_hash:
        advice = f"set {PREFIX}MODEL to the engine's model everywhere"
        yield Check("tokenizer", "failed", "the engine has another one", advice)
    yield from _private("engine socket", parts, "ipc")
