"""Tells workers of an engine: a heartbeat in Redis beside an engine that knows no Redis.

`pagemill announce` runs one for the engine of the settings. An engine that is to be drained is
marked in Redis: it stays announced, gets no new bursts, and finishes those that it has.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable
from typing import cast

import msgspec
import structlog
from pagemill.engine.client import Engine
from pagemill.engine.errors import EngineError
from pagemill.engine.protocol import EngineStats
from pagemill.extraction.ledger import redis_errors
from pagemill.extraction.reason import Refused
from redis import Redis

_log = structlog.get_logger(__name__)


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """An engine as it announces itself; `at_s` is Unix time of the announcer's machine."""

    endpoint: str
    model: str
    tokenizer_hash: str
    max_model_len: int
    stats: EngineStats
    at_s: float
    draining: bool = False


_decoder = msgspec.json.Decoder(Announcement)


def _key(namespace: str) -> str:
    return f"{namespace}:engines"


def _draining_key(namespace: str) -> str:
    return f"{namespace}:engines:draining"


def set_draining(redis: Redis, endpoint: str, draining: bool, namespace: str = "pagemill") -> None:
    """Ask for an engine to get no new bursts, or to get them again; Refused when Redis can't."""
    with redis_errors():
        if draining:
            redis.sadd(_draining_key(namespace), endpoint)
        else:
            redis.srem(_draining_key(namespace), endpoint)


def _engine_key(namespace: str, endpoint: str) -> str:
    return f"{namespace}:engine:{hashlib.sha256(endpoint.encode()).hexdigest()[:16]}"


class Announcer:
    """A thread that asks an engine how it is and writes that into Redis, with an expiry.

    An engine that doesn't answer is not announced, so it is forgotten after `ttl_s`.
    """

    def __init__(
        self,
        redis: Redis,
        connect: Callable[[], Engine],
        endpoint: str,
        *,
        namespace: str = "pagemill",
        interval_s: float = 1.0,
        ttl_s: float = 5.0,
    ) -> None:
        self._redis = redis
        self._connect = connect
        self._endpoint = endpoint
        self._namespace = namespace
        self._interval_s = interval_s
        self._ttl_s = ttl_s
        self._engine: Engine | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.run, name="announcer", daemon=True)

    def announce(self) -> Announcement:
        """Announce once; EngineError or Refused when the engine or Redis can't."""
        if self._engine is None:
            self._engine = self._connect()
        try:
            stats = self._engine.stats(timeout_s=self._ttl_s)
        except EngineError:
            self._close()
            raise
        info = self._engine.info
        announcement = Announcement(
            endpoint=self._endpoint,
            model=info.model,
            tokenizer_hash=info.tokenizer_hash,
            max_model_len=info.max_model_len,
            stats=stats,
            at_s=time.time(),
        )
        key = _engine_key(self._namespace, self._endpoint)
        with redis_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.set(key, msgspec.json.encode(announcement), px=round(self._ttl_s * 1000))
            pipe.sadd(_key(self._namespace), key)
            pipe.execute()
        return announcement

    def withdraw(self) -> None:
        """Take the announcement back: the engine is about to end."""
        key = _engine_key(self._namespace, self._endpoint)
        with redis_errors():
            self._redis.delete(key)
            self._redis.srem(_key(self._namespace), key)

    def run(self) -> None:
        """Announce until stopped."""
        while not self._stop.wait(self._interval_s):
            try:
                self.announce()
            except (EngineError, Refused) as error:
                _log.warning("announce_failed", endpoint=self._endpoint, reason=str(error.reason))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and take the announcement back."""
        self._stop.set()
        self._thread.join()
        try:
            self.withdraw()
        except Refused:
            _log.warning("withdraw_failed", endpoint=self._endpoint)
        self._close()

    def _close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()


def announced(redis: Redis, namespace: str = "pagemill") -> list[Announcement]:
    """Return the engines whose announcement is fresh, by endpoint; Refused when Redis can't."""
    with redis_errors():
        marked = cast("set[bytes]", redis.smembers(_draining_key(namespace)))
        keys = sorted(cast("set[bytes]", redis.smembers(_key(namespace))))
        if not keys:
            return []
        values = cast("list[bytes | None]", redis.mget(keys))
        expired = [key for key, value in zip(keys, values, strict=True) if value is None]
        if expired:
            redis.srem(_key(namespace), *expired)
    fresh = []
    for value in values:
        if value is not None:
            try:
                engine = _decoder.decode(value)
                draining = engine.endpoint.encode() in marked
                fresh.append(msgspec.structs.replace(engine, draining=draining))
            except msgspec.MsgspecError:
                _log.warning("announcement_invalid")
    return sorted(fresh, key=lambda engine: engine.endpoint)


def main() -> None:
    """Announce the engine of the settings until interrupted; or mark it, with --drain|--resume."""
    import argparse
    import signal

    from pagemill.engine.client import EngineClient
    from pagemill.extraction import logs
    from pagemill.extraction.config import load_settings
    from pagemill.extraction.ledger import connect

    parser = argparse.ArgumentParser(prog="pagemill announce")
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    settings = load_settings()
    logs.configure(settings.log_level, settings.log_format)
    redis, endpoint = connect(settings.redis_url), settings.engine_endpoint
    if given.drain or given.resume:
        try:
            set_draining(redis, endpoint, given.drain, settings.namespace)
        except Refused as refused:
            sys.exit(f"pagemill: {refused.reason}: {refused}")
        return
    announcer = Announcer(
        redis,
        lambda: EngineClient.connect(endpoint),
        endpoint,
        namespace=settings.namespace,
    )
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    announcer.start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    announcer.stop()


if __name__ == "__main__":
    main()
