"""Commits a burst's results as they come, in groups: one round trip for what has piled up."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import structlog

from .heartbeat import Heartbeat
from .ledger import Commit, Lease, Ledger
from .reason import Reason, Refused
from .record import Result

_log = structlog.get_logger(__name__)

_AT_ONCE = 64


class GroupCommit:
    """A thread that commits what `put` has handed over since its last round trip began.

        with GroupCommit(ledger, beat, patience_s) as commits:
            ...
            commits.put(lease, result)

    A slow burst commits each result at once, a fast one many together. Leaving the block waits for
    the rest, and raises the Refused that made a commit fail for good: after `patience_s` without
    Redis. `committed` counts results that the ledger took; one that comes after its lease has
    ended is refused and logged.
    """

    def __init__(self, ledger: Ledger, beat: Heartbeat, patience_s: float) -> None:
        self._ledger = ledger
        self._beat = beat
        self._patience_s = patience_s
        self._waiting: list[Commit] = []
        self._changed = threading.Condition()
        self._closed = False
        self._failed: Exception | None = None
        self._thread: threading.Thread | None = None
        self.committed = 0

    def put(self, lease: Lease, result: Result) -> None:
        """Hand a result over; raises what made an earlier commit fail."""
        commit = Commit(lease, result.to_json_line(), result.status)
        limit = self._ledger.limits.max_result_bytes
        if len(commit.result) > limit:
            # Alone: in a group it would take the others along.
            raise ValueError(f"a result of {len(commit.result)} bytes, the limit is {limit}")
        with self._changed:
            if self._failed is not None:
                raise self._failed
            self._waiting.append(commit)
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="commit", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while group := self._next_group():
            try:
                self._commit(group)
            except Exception as error:
                # The caller's thread raises it; what isn't committed runs out with its lease.
                with self._changed:
                    self._failed = error
                return

    def _next_group(self) -> list[Commit]:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            group = self._waiting[:_AT_ONCE]
            del self._waiting[:_AT_ONCE]
            return group

    def _commit(self, group: list[Commit]) -> None:
        deadline = time.monotonic() + self._patience_s
        pause = 0.05
        while True:
            try:
                accepted = self._ledger.commit_all(group)
                break
            except Refused as refused:
                # The records are made; they are worth waiting while Redis restarts.
                if refused.reason != Reason.LEDGER_UNAVAILABLE or time.monotonic() > deadline:
                    raise
                time.sleep(pause)
                pause = min(1.0, pause * 2)
        for commit, valid in zip(group, accepted, strict=True):
            self._beat.drop(commit.lease)
            if not valid:
                lease = commit.lease
                _log.warning("commit_refused", page_id=lease.page_id, token=lease.token)
        self.committed += sum(accepted)

    def flush(self) -> None:
        """Wait until all that was put is committed; raises what made a commit fail."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        if self._failed is not None:
            raise self._failed

    def __enter__(self) -> GroupCommit:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.flush()
        except Exception:
            # What went wrong first is what the caller must hear.
            if error is None:
                raise
