"""One burst through the line: claim from the ledger, read the pages, ask the engine, commit.

Celery tasks and `pagemill extract` run the same `BurstRunner`.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence

import msgspec
import structlog
from pagemill.engine.client import Engine
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.schemas import SchemaCatalog, SchemaRefused

from .bound_schema import BoundSchema, bind
from .engine_source import EngineSource
from .extractor import Extractor
from .group_commit import GroupCommit
from .heartbeat import Heartbeat
from .ledger import Lease, Ledger, Release, redis_errors
from .reason import Reason, Refused
from .record import ExtractOptions, PageInput, Result

_log = structlog.get_logger(__name__)

# The engine never had these pages, or says that the fault is elsewhere.
_BLAMELESS = frozenset(
    {
        EngineReason.OVERLOADED,
        EngineReason.TOKENIZER_MISMATCH,
        EngineReason.VERSION_MISMATCH,
        EngineReason.MODEL_INVALID,
    }
)


class BurstRunner:
    """Runs bursts for one worker; not thread-safe (a thread has its own, with its own engine).

    `tries` is how often a page is tried whose failure says something about the moment rather than
    about the page.
    """

    def __init__(
        self,
        ledger: Ledger,
        extractor: Extractor,
        engines: EngineSource,
        registry: SchemaCatalog,
        worker: str | None = None,
        *,
        burst_size: int = 32,
        lease_s: float = 60.0,
        tries: int = 3,
    ) -> None:
        self._ledger = ledger
        self._extractor = extractor
        self._engines = engines
        self._registry = registry
        self._worker = worker or _worker_name()
        self._burst_size = burst_size
        self._lease_s = lease_s
        self._tries = tries

    def run_once(self, want: str | None = None) -> int:
        """Run one burst and return the number of pages it committed (0: nothing to do, no credit).

        With `want` the burst holds that page, or nothing is done (it isn't waiting). Raises
        EngineError when the engine can't serve (leases are given back first) and
        Refused(LEDGER_UNAVAILABLE) when Redis can't.
        """
        count = min(self._burst_size, self._engines.credit())
        if want is not None:
            count = max(1, count)
        leases = self._ledger.claim(self._worker, count, lease_s=self._lease_s, want=want)
        if not leases:
            return 0
        started = time.monotonic()
        with (
            Heartbeat(self._ledger, leases, self._lease_s) as beat,
            GroupCommit(self._ledger, beat, self._lease_s) as commits,
        ):
            self._run(leases, beat, commits)
        committed = commits.committed
        _log.info(
            "burst_done",
            pages=len(leases),
            committed=committed,
            schema=leases[0].schema,
            seconds=round(time.monotonic() - started, 3),
        )
        return committed

    def close(self) -> None:
        """Close what the runner's engine source has opened."""
        self._engines.close()

    def _run(self, leases: Sequence[Lease], beat: Heartbeat, commits: GroupCommit) -> None:
        by_id = {lease.page_id: lease for lease in leases}
        engine: Engine | None = None

        def finish(result: Result) -> None:
            self._finish(by_id.pop(result.id), result, beat, commits)

        try:
            for result in self._refused(leases):
                finish(result)
            if not by_id:
                return
            try:
                schema = self._bind(leases[0].schema)
                options = _options(leases[0].options)
            except (SchemaRefused, Refused) as refused:
                if isinstance(refused, Refused) and refused.reason == Reason.LEDGER_UNAVAILABLE:
                    raise
                for lease in list(by_id.values()):
                    finish(_failed(lease, Reason(refused.reason.value), str(refused)))
                return
            engine = self._engines.choose(leases[0].schema, len(by_id))
            inputs = [(_input(lease), schema) for lease in by_id.values()]
            for result in self._extractor.run(engine, inputs, options):
                finish(result)
            if by_id:
                self._release(list(by_id.values()), "crashed", "the extractor gave no result")
        except EngineError as error:
            kind: Release = "engine_lost"
            if engine is None or error.reason in _BLAMELESS:
                kind = "engine_down"
            if engine is not None:
                self._engines.failed(engine)
            self._release(list(by_id.values()), kind, str(error))
            raise
        except Refused as error:
            self._release(list(by_id.values()), "unused", str(error))
            raise
        except Exception as error:
            self._release(list(by_id.values()), "crashed", f"{type(error).__name__}: {error}")
            raise

    def _refused(self, leases: Sequence[Lease]) -> Iterator[Result]:
        for lease in leases:
            if lease.body is None:
                yield _failed(lease, Reason.BODY_MISSING, "the page's body is gone from Redis")

    def _bind(self, schema: str) -> BoundSchema:
        with redis_errors():
            version = self._registry.get(schema)
        return bind(version)

    def _finish(self, lease: Lease, result: Result, beat: Heartbeat, commits: GroupCommit) -> None:
        """Commit one result, or give the page back when it is worth another try."""
        error = result.error
        if error is None or not error.transient or lease.attempt >= self._tries:
            commits.put(lease, result)
            return
        beat.drop(lease)
        kind: Release = "crashed"
        if error.reason in (Reason.OVERLOADED, Reason.CANCELLED):
            kind = "unused"
        self._release([lease], kind, f"{error.reason}: {error.message}")

    def _release(self, leases: Sequence[Lease], kind: Release, message: str) -> None:
        if not leases:
            return
        try:
            self._ledger.release(leases, kind, message=message)
        except Refused as refused:
            # They expire by themselves; what went wrong first is what the caller must hear.
            _log.warning("release_failed", pages=len(leases), reason=refused.reason)


def _worker_name() -> str:
    """Return a name for this worker: host, process, thread."""
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_native_id()}"


def _input(lease: Lease) -> PageInput:
    return PageInput(
        id=lease.page_id,
        body=lease.body or b"",
        url=lease.url,
        content_type=lease.content_type,
        encoding=lease.encoding,
    )


def _options(encoded: bytes) -> ExtractOptions:
    try:
        return msgspec.json.decode(encoded, type=ExtractOptions)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Refused(Reason.REQUEST_INVALID, f"extraction options: {error}") from None


def _failed(lease: Lease, reason: Reason, message: str) -> Result:
    return Result.failed(_input(lease), reason, message, schema=lease.schema, model=lease.model)
