"""Rings Celery workers by task name; nothing of the workers is imported.

The ledger owns the pages already, so a message that can't be sent costs time, not pages: the
reconciler rings again.
"""

from __future__ import annotations

import redis
import structlog
from celery import Celery

from ..config import Settings

DRAIN = "pagemill.drain"
# A worker that is rung drains until no page waits, and rings the next one itself.
_WAITING_AT_MOST = 2


class Bell:
    """A message producer for our queue; thread-safe."""

    def __init__(self, settings: Settings, client: redis.Redis) -> None:
        self._queue = settings.queue
        self._redis = client
        self._app = Celery("pagemill-api", broker=settings.broker_url, set_as_current=False)
        transport = {"socket_timeout": 5, "socket_connect_timeout": 3}
        if settings.broker_url.startswith("redis+socket"):
            # Connecting to a unix socket has no timeout that could be set.
            del transport["socket_connect_timeout"]
        self._app.conf.update(
            task_serializer="json",
            accept_content=["json"],
            task_ignore_result=True,
            task_default_queue=settings.queue,
            broker_connection_retry=False,
            broker_transport_options=transport,
        )
        self._log = structlog.get_logger("pagemill.api")

    def ring(self) -> bool:
        """Ask a worker to look for waiting pages, unless messages enough are on their way.

        False when no message was sent.
        """
        try:
            if self._redis.llen(self._queue) >= _WAITING_AT_MOST:
                return False
            self._app.send_task(DRAIN, queue=self._queue, retry=False)
        except Exception as error:
            # Celery passes through whatever its transport raises.
            self._log.warning("bell_failed", error=type(error).__name__)
            return False
        return True

    def close(self) -> None:
        self._app.close()
