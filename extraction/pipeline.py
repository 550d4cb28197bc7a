"""One burst through the line: claim from the ledger, read the pages, ask the engine, commit.

Celery tasks and `pagemill extract` run the same `BurstRunner`.
"""

from __future__ import annotations

from typing import Protocol

from pagemill.engine.client import Engine

from .ledger import BatchRecord, Ledger


class EngineSource(Protocol):
    """Where a runner gets its engine from: one engine, or many that are announced."""

    def credit(self) -> int:
        """Return how many requests the engines would take now; EngineError when none answers."""

    def choose(self, schema: str) -> Engine:
        """Return the engine for pages of a schema; EngineError when none answers."""

    def failed(self, engine: Engine) -> None:
        """Take note that an engine broke down; its client is not used again."""


class BurstRunner:
    """Runs bursts for one worker; not thread-safe (a thread has its own, with its own engine).

    BurstRunner(ledger, extractor, engine, registry, worker, *, burst_size=32, lease_s=60.0):
    `engine` is an Engine or an EngineSource.
    """

    def run_once(self, want: str | None = None) -> int:
        """Run one burst and return the number of pages it committed (0: nothing to do, no credit).

        Raises EngineError(ENGINE_UNAVAILABLE) when the engine is down (leases are given back
        first) and Refused(LEDGER_UNAVAILABLE) when Redis is.
        """
        raise NotImplementedError


def record_line(record: BatchRecord) -> bytes:
    """Return the JSON line of a finished page with the submitter's id; dead pages too."""
    raise NotImplementedError


__all__ = ["BurstRunner", "EngineSource", "Ledger", "record_line"]
