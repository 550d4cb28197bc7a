"""Connections to Redis, and its errors as reasons."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..reason import Reason, Refused


def connect(url: str, *, timeout_s: float = 10.0) -> redis.Redis:
    """Return a client for `redis://`, `rediss://`, `unix://` or Celery's `redis+socket://`.

    Nothing is sent yet. Commands aren't retried behind the caller's back: a repeated claim would
    lease pages that nobody works on.
    """
    if url.startswith("redis+socket://"):
        url = "unix://" + url.removeprefix("redis+socket://").replace("virtual_host=", "db=")
    try:
        return redis.Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            health_check_interval=30,
            retry=Retry(NoBackoff(), 0),
            decode_responses=False,
        )
    except ValueError as error:
        raise Refused(
            Reason.REQUEST_INVALID,
            f"not a Redis address: {error}",
            advice="use redis://host:port/db or unix:///path/to/socket",
        ) from None


@contextlib.contextmanager
def redis_errors() -> Iterator[None]:
    """Turn what Redis answers when it can't serve into Refused with a reason of the ledger."""
    try:
        yield
    except redis.exceptions.RedisError as error:
        raise refusal_of(error) from error


def refusal_of(error: redis.exceptions.RedisError) -> Refused:
    """Return what an error of Redis means: LEDGER_FULL at its maxmemory, else LEDGER_UNAVAILABLE.

    A script that meets maxmemory fails with a plain ResponseError that quotes the OOM.
    """
    if isinstance(error, redis.exceptions.OutOfMemoryError) or (
        isinstance(error, redis.exceptions.ResponseError) and "OOM" in str(error)[:200]
    ):
        return Refused(
            Reason.LEDGER_FULL,
            "Redis has reached maxmemory",
            advice="wait until pages are done, or raise maxmemory",
        )
    return Refused(
        Reason.LEDGER_UNAVAILABLE,
        f"Redis can't serve the ledger ({type(error).__name__}: {str(error)[:200]})",
        advice="check that the server runs and PAGEMILL_REDIS_URL names it",
    )
