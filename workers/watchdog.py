"""Notices a worker that is alive and consumes nothing, which Celery can't say of itself."""

from __future__ import annotations

import os
from collections.abc import Callable

import structlog

_log = structlog.get_logger(__name__)

STALLED = 70  # exit status: internal error (EX_SOFTWARE)


class Watchdog:
    """Ends the process when messages wait for `stall_s` seconds while it has no task.

    After a reconnect to Redis a Celery worker may go on living without ever reading its queue
    again; whoever keeps the process alive then starts a new one. A worker that has a task is never
    ended, nor one that can't ask Redis.
    """

    def __init__(self, stall_s: float, end: Callable[[int], object] = os._exit) -> None:
        self._stall_s = stall_s
        self._end = end
        self._idle_since: float | None = None

    def look(self, *, messages: int | None, tasks: int, now: float) -> None:
        """Take a look: waiting messages (None: Redis doesn't say), own tasks, monotonic seconds."""
        if not messages or tasks:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= self._stall_s:
            seconds = round(now - self._idle_since, 1)
            _log.error("stalled", messages=messages, seconds=seconds)
            self._end(STALLED)
