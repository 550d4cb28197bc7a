"""Rings workers: a message without a page, at most a few of them waiting at any time.

Workers are known by the name of their task; nothing of them is imported. The ledger owns the pages
already, so a message that can't be sent costs time, not pages: the reconciler rings again.
"""

from __future__ import annotations

import structlog
from celery import Celery
from redis import Redis

from .ledger import redis_errors
from .reason import Refused

_log = structlog.get_logger(__name__)

DRAIN = "pagemill.drain"


def messages_waiting(redis: Redis, queue: str) -> int:
    """Return how many messages no worker has taken yet (kombu keeps them in a list)."""
    with redis_errors():
        return redis.llen(queue)


def ring(app: Celery, redis: Redis, queue: str, *, at_most: int = 1) -> bool:
    """Send a drain message unless `at_most` messages wait already; True when one was sent."""
    try:
        if messages_waiting(redis, queue) >= at_most:
            return False
        app.send_task(DRAIN, queue=queue, ignore_result=True)
    except Refused:
        return False
    except Exception as error:
        # Celery passes through whatever its transport raises.
        _log.warning("ring_failed", error=type(error).__name__, message=str(error)[:200])
        return False
    return True
