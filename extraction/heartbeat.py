"""Keeps the leases of a running burst alive."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType

from .ledger import Lease, Ledger
from .reason import Refused


class Heartbeat:
    """A thread that extends leases three times within their length, until the block is left.

        with Heartbeat(ledger, leases, lease_s) as beat:
            ...
            beat.drop(lease)        # committed: no longer ours to extend

    A lease that the ledger has taken away is in `lost`. While Redis is away nothing happens: the
    commit will tell.
    """

    def __init__(self, ledger: Ledger, leases: Sequence[Lease], lease_s: float) -> None:
        self._ledger = ledger
        self._lease_s = lease_s
        self._held = {lease.page_id: lease for lease in leases}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self.lost: set[str] = set()

    def drop(self, lease: Lease) -> None:
        """Stop extending a lease."""
        with self._lock:
            self._held.pop(lease.page_id, None)

    def held(self) -> list[Lease]:
        """Return the leases that are still extended."""
        with self._lock:
            return list(self._held.values())

    def _run(self) -> None:
        while not self._stop.wait(self._lease_s / 3):
            leases = self.held()
            if not leases:
                continue
            try:
                lost = self._ledger.heartbeat(leases, lease_s=self._lease_s)
            except Refused:
                continue
            with self._lock:
                # One that was committed meanwhile is no loss.
                gone = [page for page in lost if page in self._held]
                for page in gone:
                    del self._held[page]
                self.lost.update(gone)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
