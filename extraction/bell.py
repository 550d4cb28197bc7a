"""A submitter's end of the doorbell: a Celery application that only sends."""

from __future__ import annotations

import redis
from celery import Celery

from .config import Settings
from .doorbell import ring

# A worker that is rung drains until no page waits, and rings the next one itself.
_WAITING_AT_MOST = 2


class Bell:
    """A message producer for our queue; thread-safe."""

    def __init__(self, settings: Settings, client: redis.Redis) -> None:
        self._queue = settings.queue
        self._redis = client
        self._app = Celery("pagemill-bell", broker=settings.broker_url, set_as_current=False)
        transport = {"socket_timeout": 5, "socket_connect_timeout": 3}
        if settings.broker_url.startswith("redis+socket"):
            # Connecting to a unix socket has no timeout that could be set.
            del transport["socket_connect_timeout"]
        self._app.conf.update(
            task_serializer="json",
            accept_content=["json"],
            task_ignore_result=True,
            task_publish_retry=False,
            task_default_queue=settings.queue,
            broker_connection_retry=False,
            broker_transport_options=transport,
        )

    def ring(self) -> bool:
        """Ask a worker to look for waiting pages; see `doorbell.ring`."""
        return ring(self._app, self._redis, self._queue, at_most=_WAITING_AT_MOST)

    def close(self) -> None:
        self._app.close()
