"""What each API key has used today, and whether it may use more.

Days are UTC. A call is admitted while the key is below its quota and then counts in whole, so the
last batch of a day may go over it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from redis import Redis

from .api_keys import ApiKey
from .ledger import redis_errors
from .reason import Reason, Refused

_DAY_S = 86_400
_KEPT_S = 40 * _DAY_S


class QuotaExceeded(Refused):
    """RATE_LIMITED, and after how many seconds it is worth another try."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(Reason.RATE_LIMITED, message, advice=f"come again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class KeyUsage:
    """Counters of a namespace in Redis. Safe to share between threads."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._redis = redis
        self._namespace = namespace

    def admit(self, key: ApiKey, *, now: float | None = None) -> None:
        """Count a call of `key` that submits work; raises QuotaExceeded."""
        now = time.time() if now is None else now
        if key.calls_per_s:
            self._check_rate(key, int(now))
        if key.pages_per_day and self.pages([key.id], now=now)[0] >= key.pages_per_day:
            raise QuotaExceeded(
                f"this key has used the {key.pages_per_day} pages that it has for a day",
                _DAY_S - int(now) % _DAY_S,
            )

    def _check_rate(self, key: ApiKey, second: int) -> None:
        name = f"{self._namespace}:key-calls:{key.id}:{second}"
        with redis_errors():
            pipeline = self._redis.pipeline()
            pipeline.incr(name)
            pipeline.expire(name, 2)
            calls = int(pipeline.execute()[0])
        if calls > key.calls_per_s:
            raise QuotaExceeded(f"this key has {key.calls_per_s} calls for a second", 1)

    def count(self, key: ApiKey, pages: int, *, now: float | None = None) -> None:
        """Add pages to what a key has used today."""
        name = self._day(time.time() if now is None else now)
        with redis_errors():
            pipeline = self._redis.pipeline()
            pipeline.hincrby(name, key.id, pages)
            pipeline.expire(name, _KEPT_S)
            pipeline.execute()

    def pages(self, key_ids: Sequence[str], *, now: float | None = None) -> list[int]:
        """The pages that keys have used today."""
        if not key_ids:
            return []
        with redis_errors():
            found = self._redis.hmget(self._day(time.time() if now is None else now), list(key_ids))
        return [int(pages or 0) for pages in found]

    def _day(self, now: float) -> str:
        return f"{self._namespace}:key-pages:{int(now) // _DAY_S}"
