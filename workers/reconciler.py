"""Looks after what was left lying: expired leases, pages that nobody was rung for, old records."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import structlog
from celery import Celery
from pagemill.extraction.assembly import open_ledger
from pagemill.extraction.config import Settings
from pagemill.extraction.doorbell import messages_waiting, ring
from pagemill.extraction.intake import drop_unused_schemas
from pagemill.extraction.ledger import ReapReport
from pagemill.extraction.reason import Refused
from pagemill.schemas import SchemaRegistry

from .watchdog import Watchdog

_log = structlog.get_logger(__name__)

_SCHEMAS_EVERY = 60  # rounds


class Reconciler:
    """A thread that makes a round every few seconds; any number of them may run.

    It is what makes the broker's messages dispensable: pages wait in the ledger, and as long as
    one reconciler lives, each of them is worked on. `tasks` says how many tasks this worker has,
    for its watchdog.
    """

    def __init__(
        self,
        app: Celery,
        settings: Settings,
        *,
        interval_s: float = 2.0,
        tasks: Callable[[], int] = lambda: 1,
    ) -> None:
        self._app = app
        self._queue = settings.queue
        self._ledger = open_ledger(settings)
        self._registry = SchemaRegistry(self._ledger.redis, settings.namespace)
        self._rounds = 0
        self._interval_s = interval_s
        self._tasks = tasks
        self._watchdog = Watchdog(settings.stall_s)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    def round(self) -> ReapReport:
        """Return expired leases, drop old records, ring if pages wait; Refused without Redis."""
        report = self._ledger.reap()
        if report != ReapReport():
            _log.info(
                "reaped",
                requeued=report.requeued,
                dead=report.dead,
                dropped=report.dropped,
                batches_dropped=report.batches_dropped,
            )
        if self._ledger.waiting():
            ring(self._app, self._ledger.redis, self._queue)
        if self._rounds % _SCHEMAS_EVERY == 0:
            drop_unused_schemas(self._registry, self._ledger)
        self._rounds += 1
        return report

    def watch(self) -> None:
        """See whether this worker still takes what waits in its queue."""
        messages = None
        try:
            messages = messages_waiting(self._ledger.redis, self._queue)
        except Refused:
            pass
        self._watchdog.look(messages=messages, tasks=self._tasks(), now=time.monotonic())

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        # Not in step with the reconcilers of other workers.
        while not self._stop.wait(self._interval_s * random.uniform(0.75, 1.25)):
            try:
                self.round()
            except Refused as refused:
                _log.warning("round_failed", reason=str(refused.reason))
            except Exception:
                _log.exception("round_failed")
            self.watch()
