"""The step loop: takes messages from a bounded inbox, steps, hands messages out."""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable

from .core import TICK_S, EngineCore
from .errors import EngineError, EngineReason
from .protocol import (
    ClientMessage,
    CoreMessage,
    GrammarTable,
    Rejected,
    Submit,
)

_log = logging.getLogger(__name__)

_MAX_MESSAGES = 1024
_MAX_BYTES = 512 * 1024 * 1024
_STALLED_S = 0.005

Send = Callable[[list[tuple[bytes, CoreMessage]]], None]


class StepLoop:
    """Runs a core on the thread that calls `run`; the other methods may be called from any.

    `send` is called on the loop's thread.
    """

    def __init__(self, core: EngineCore, send: Send, shutdown_timeout_s: float = 0.0) -> None:
        self._core = core
        self._send = send
        self.shutdown_timeout_s = shutdown_timeout_s
        self._changed = threading.Condition()  # guards what follows
        self._inbox: collections.deque[tuple[bytes, ClientMessage]] = collections.deque()
        self._inbox_bytes = 0
        self._gone: set[bytes] = set()
        self._stopping: EngineError | None = None

    def post(self, client: bytes, message: ClientMessage, size: int) -> bool:
        """Queue a message of `size` bytes; False when the inbox has no room for it.

        Messages that end or ask for something small have room of their own.
        """
        roomy = not isinstance(message, Submit | GrammarTable)
        with self._changed:
            count = len(self._inbox)
            if count >= (4 * _MAX_MESSAGES if roomy else _MAX_MESSAGES):
                return False
            if not roomy and count and self._inbox_bytes + size > _MAX_BYTES:
                return False
            self._inbox.append((client, message))
            self._inbox_bytes += size
            self._changed.notify()
        return True

    def client_gone(self, client: bytes) -> None:
        with self._changed:
            self._gone.add(client)
            self._changed.notify()

    def stop(self, error: EngineError) -> None:
        """Take no more requests, let running ones finish for a while, then end `run`."""
        with self._changed:
            self._stopping = self._stopping or error
            self._changed.notify()

    def run(self) -> None:
        """Go round until stopped. Blocks without spinning while nothing is to do."""
        core = self._core
        last_moment: float | None = None
        moved = True
        while True:
            self._take_messages(moved)
            core.tick()
            self._flush()
            if self._stopping is not None:
                if last_moment is None:
                    core.close(self._stopping)
                    last_moment = time.monotonic() + self.shutdown_timeout_s
                if not core.has_requests or time.monotonic() > last_moment:
                    core.end_all(self._stopping)
                    self._flush()
                    return
            if core.busy:
                moved = core.step()
                self._flush()

    def _take_messages(self, moved: bool) -> None:
        with self._changed:
            if not (self._inbox or self._gone or self._stopping):
                if not self._core.busy:
                    # Without requests nothing needs looking after.
                    self._changed.wait(TICK_S if self._core.has_requests else None)
                elif not moved:
                    self._changed.wait(_STALLED_S)
            messages = list(self._inbox)
            gone, self._gone = self._gone, set()
            self._inbox.clear()
            self._inbox_bytes = 0
        for client, message in messages:
            try:
                self._core.handle(client, message)
            except Exception as error:
                _log.exception("a message could not be served")
                self._refuse(client, message, error)
        for client in gone:
            self._core.gone(client)

    def _refuse(self, client: bytes, message: ClientMessage, error: Exception) -> None:
        ids = [r.request_id for r in message.requests] if isinstance(message, Submit) else []
        reason = EngineReason.ENGINE_ERROR
        why = f"the message could not be served ({type(error).__name__})"
        self._send([(client, Rejected(reason, why, ids))])

    def _flush(self) -> None:
        messages = self._core.take()
        if messages:
            self._send(messages)
