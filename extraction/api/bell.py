"""Rings Celery workers by task name; nothing of the workers is imported.

The ledger owns the pages already, so a message that can't be sent costs time, not pages: the
reconciler rings again.
"""

from __future__ import annotations

import math

import structlog
from celery import Celery

from ..config import Settings

DRAIN = "pagemill.drain"
# More messages than workers help nothing: a worker that is rung drains until it finds no page.
MAX_RINGS = 16


class Bell:
    """A message producer for our queue; thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._app = Celery("pagemill-api", broker=settings.broker_url, set_as_current=False)
        self._app.conf.update(
            task_serializer="json",
            accept_content=["json"],
            task_ignore_result=True,
            task_default_queue=settings.queue,
            broker_connection_retry=False,
            broker_transport_options={"socket_timeout": 5, "socket_connect_timeout": 3},
        )
        self._log = structlog.get_logger("pagemill.api")

    def ring(self, pages: int) -> bool:
        """Ask for `pages` waiting pages to be worked on; False when the broker didn't take it."""
        rings = min(MAX_RINGS, max(1, math.ceil(pages / self._settings.burst_size)))
        try:
            for _ in range(rings):
                self._app.send_task(DRAIN, queue=self._settings.queue, retry=False)
        except Exception as error:
            # Celery passes through whatever its transport raises.
            self._log.warning("bell_failed", error=type(error).__name__)
            return False
        return True

    def close(self) -> None:
        self._app.close()
