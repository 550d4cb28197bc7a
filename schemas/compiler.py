"""Schemas to byte automata: compiled in a bounded process, each once, and remembered.

Results, refusals included, are kept in memory, on disk and, where a process names one, in Redis
(`compiled_store`), under the hash of the schema's text and the compiler's version. Threads may
compile at the same time; equal schemas compile once.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import redis

from .compile_process import Builder, CompileProcess
from .compiled_store import Folder, Shared, Store
from .errors import SchemaReason, SchemaRefused
from .lowering.build import check_size
from .table import TABLE_VERSION

# Raised when the lowering changes the language of some schema.
LOWERING_VERSION = 8
MAX_REMEMBERED = 512
MAX_REMEMBERED_BYTES = 256 * 1024 * 1024
# A timeout may have been the machine's fault: it is believed for this long, and not on disk.
TIMEOUT_REMEMBERED_S = 60.0
BUILDER_VARIABLE = "PAGEMILL_SCHEMA_BUILDER"


@dataclass(frozen=True)
class CompiledSchema:
    """A schema's automaton.

    `hash` names the table (SHA-256 of its bytes), `builder` who made it ("outlines" or "core");
    `compile_ms` is 0 for one found in a cache.
    """

    hash: str
    table: bytes
    num_states: int
    builder: str
    compile_ms: float


@dataclass(frozen=True)
class _Known:
    """An outcome as the caches hold it."""

    result: CompiledSchema | SchemaRefused
    until: float = float("inf")

    def size(self) -> int:
        return len(self.result.table) if isinstance(self.result, CompiledSchema) else 256


def compile(schema: Any, *, timeout_s: float = 2.0, max_memory: int = 1 << 30) -> CompiledSchema:
    """Return the automaton of a schema.

    SchemaRefused: KEYWORD_UNSUPPORTED, SCHEMA_INVALID, SCHEMA_UNSATISFIABLE with the place in the
    schema, SCHEMA_TOO_LARGE, SCHEMA_COMPILE_TIMEOUT. `timeout_s` bounds the compilation itself,
    `max_memory` (bytes) the compiling process.
    """
    return _default().compile(schema, timeout_s, max_memory)


def share_cache(client: redis.Redis, namespace: str) -> None:
    """Let `compile` keep outcomes in Redis as well, for all processes of the namespace."""
    _default().share(client, namespace)


class Compiler:
    """The caches around one compiling process."""

    def __init__(self, directory: Path | None = None, builder: Builder | None = None) -> None:
        self._stores: list[Store] = [Folder(directory)]
        # A switch for comparisons: the tables are equal.
        self._builder = builder or Builder(os.environ.get(BUILDER_VARIABLE, Builder.AUTO))
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._bytes = 0
        self._running: dict[str, Future[_Known]] = {}
        self._process = CompileProcess(self._builder)
        os.register_at_fork(after_in_child=self._after_fork)

    def compile(self, schema: Any, timeout_s: float, max_memory: int) -> CompiledSchema:
        check_size(schema)
        # Key order is part of the language, so the text is hashed as it stands.
        text = json.dumps(schema, separators=(",", ":")).encode()
        key = hashlib.sha256(f"{_version()}.{self._builder}\0".encode() + text).hexdigest()
        with self._lock:
            known = self._recall(key)
            if known is not None:
                return _outcome(known)
            future = self._running.get(key)
            mine = future is None
            if future is None:
                future = self._running[key] = Future()
        if mine:
            try:
                known = self._load(key) or self._make(key, text, timeout_s, max_memory)
            except BaseException as error:
                with self._lock:
                    del self._running[key]
                future.set_exception(error)
                raise
            with self._lock:
                self._remember(key, known)
                del self._running[key]
            future.set_result(known)
        return _outcome(future.result())

    def _make(self, key: str, text: bytes, timeout_s: float, max_memory: int) -> _Known:
        try:
            made = self._process.compile(text, timeout_s, max_memory)
        except SchemaRefused as refusal:
            if refusal.reason is SchemaReason.SCHEMA_COMPILE_TIMEOUT:
                return _Known(refusal, time.monotonic() + TIMEOUT_REMEMBERED_S)
            known = _Known(refusal)
        else:
            digest = hashlib.sha256(made.table).hexdigest()
            known = _Known(
                CompiledSchema(digest, made.table, made.states, made.builder, made.compile_ms)
            )
        self._store(key, known)
        return known

    def _recall(self, key: str) -> _Known | None:
        known = self._known.get(key)
        if known is None:
            return None
        if known.until < time.monotonic():
            self._bytes -= self._known.pop(key).size()
            return None
        self._known.move_to_end(key)
        return known

    def _remember(self, key: str, known: _Known) -> None:
        if isinstance(known.result, CompiledSchema):
            result = known.result
            known = _Known(
                CompiledSchema(result.hash, result.table, result.num_states, result.builder, 0.0)
            )
        self._known[key] = known
        self._bytes += known.size()
        while len(self._known) > MAX_REMEMBERED or self._bytes > MAX_REMEMBERED_BYTES:
            self._bytes -= self._known.popitem(last=False)[1].size()

    def share(self, client: redis.Redis, namespace: str) -> None:
        """Keep outcomes in Redis as well, for the other processes of the namespace."""
        self._stores = [self._stores[0], Shared(client, namespace)]

    def _load(self, key: str) -> _Known | None:
        """What an earlier process stored; None when nothing sound is there."""
        for index, store in enumerate(self._stores):
            entry = store.get(key)
            known = None if entry is None else _decode(entry)
            if entry is not None and known is not None:
                for nearer in self._stores[:index]:
                    nearer.put(key, entry)
                return known
        return None

    def _store(self, key: str, known: _Known) -> None:
        entry = _encode(known)
        for store in self._stores:
            store.put(key, entry)

    def _after_fork(self) -> None:
        # The process and the waiting threads are the parent's; locks may be held by them.
        self._lock = threading.Lock()
        self._running = {}
        self._process.forget()
        self._process = CompileProcess(self._builder)

    def close(self) -> None:
        """End the compiling process; the next compilation starts another."""
        self._process.close()


def _outcome(known: _Known) -> CompiledSchema:
    if isinstance(known.result, CompiledSchema):
        return known.result
    refused = known.result
    # A new exception each time: a raised one collects tracebacks.
    raise SchemaRefused(refused.reason, refused.message, at=refused.at, advice=refused.advice)


def _refusal(entry: dict[str, Any]) -> SchemaRefused:
    reason = SchemaReason(entry["reason"])
    return SchemaRefused(reason, entry["message"], at=entry["at"], advice=entry["advice"])


def _decode(entry: bytes) -> _Known | None:
    head, _, table = entry.partition(b"\n")
    try:
        told = json.loads(head)
        if "reason" in told:
            return _Known(_refusal(told))
        if hashlib.sha256(table).hexdigest() != told["hash"]:
            return None
        return _Known(CompiledSchema(told["hash"], table, told["states"], told["builder"], 0.0))
    except (ValueError, KeyError, TypeError):
        return None


def _encode(known: _Known) -> bytes:
    result = known.result
    if isinstance(result, CompiledSchema):
        told: dict[str, Any] = {
            "hash": result.hash,
            "states": result.num_states,
            "builder": result.builder,
        }
        return json.dumps(told).encode() + b"\n" + result.table
    told = {"reason": result.reason, "message": result.message}
    told |= {"at": result.at, "advice": result.advice}
    return json.dumps(told).encode() + b"\n"


def _version() -> str:
    return f"{LOWERING_VERSION}.{TABLE_VERSION}.{version('outlines-core')}"


@functools.cache
def _default() -> Compiler:
    """The process's own; made at first use, when the settings have reached the environment."""
    return Compiler()
