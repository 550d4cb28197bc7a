"""Engines announce themselves; workers choose among those that answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pytest
import redis
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.protocol import EngineStats, Output, Request, Welcome
from pagemill.extraction.ledger import connect
from pagemill.extraction.reason import Refused
from pagemill.workers.announcer import Announcer, announced, set_draining
from pagemill.workers.engines import AnnouncedEngines, rendezvous


class QuietEngine:
    """An engine that is only asked how it is."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.alive = True
        self.closed = False
        self.info = Welcome(
            model="m", tokenizer_hash="t", max_model_len=1, vocab_size=1, max_num_seqs=1
        )

    def stats(self, timeout_s: float = 5.0) -> EngineStats:
        if not self.alive:
            raise EngineError(EngineReason.ENGINE_UNAVAILABLE, "silent")
        return EngineStats(
            running=0,
            waiting=0,
            free_blocks=1,
            total_blocks=1,
            credit=4,
            last_step_age_s=0.0,
            counters={},
        )

    def generate(
        self, requests: Sequence[Request], *, tokenizer_hash: str, grammars: Mapping[str, bytes]
    ) -> Iterator[Output]:
        raise AssertionError("not asked here")

    def cancel(self, request_ids: Sequence[str]) -> None:
        raise AssertionError("not asked here")

    def close(self) -> None:
        self.closed = True


class Fleet:
    def __init__(self, client: redis.Redis, *endpoints: str) -> None:
        self.down: set[str] = set()
        self.engines: dict[str, QuietEngine] = {}
        self.announcers = [
            Announcer(client, lambda end=end: self.connect(end), end, ttl_s=0.2)  # type: ignore[misc]
            for end in endpoints
        ]
        self.source = AnnouncedEngines(
            client, namespace="pagemill", default_endpoint="default", connect=self.connect
        )

    def connect(self, endpoint: str) -> QuietEngine:
        if endpoint in self.down:
            raise EngineError(EngineReason.ENGINE_UNAVAILABLE, f"{endpoint} is down")
        self.engines[endpoint] = QuietEngine(endpoint)
        return self.engines[endpoint]

    def chosen(self, schema: str) -> str:
        engine = self.source.choose(schema)
        assert isinstance(engine, QuietEngine)
        return engine.endpoint


def test_without_announcements_the_configured_engine_serves(redis_client: redis.Redis) -> None:
    fleet = Fleet(redis_client)
    assert fleet.chosen("s") == "default"
    assert fleet.source.credit() == 4
    fleet.engines["default"].alive = False
    with pytest.raises(EngineError):
        fleet.source.credit()
    assert fleet.engines["default"].closed
    assert fleet.source.credit() == 4  # connected anew


def test_a_full_engine_is_passed_over(redis_client: redis.Redis) -> None:
    """A schema's favourite gets its bursts while it has room for them, then the other one."""
    fleet = Fleet(redis_client, "a", "b")
    for announcer in fleet.announcers:
        announcer.announce()
    favourite, other = rendezvous("s", ["a", "b"])
    assert fleet.source.credit() == 4
    chosen = [fleet.source.choose("s", 2) for _ in range(4)]
    assert [getattr(engine, "endpoint", "") for engine in chosen] == [
        favourite,
        favourite,
        other,
        other,
    ]
    assert fleet.source.credit() == 4
    assert fleet.chosen("s") == favourite


def test_a_draining_engine_gets_no_bursts(redis_client: redis.Redis) -> None:
    fleet = Fleet(redis_client, "a", "b")
    for announcer in fleet.announcers:
        announcer.announce()
    favourite, other = rendezvous("s", ["a", "b"])
    set_draining(redis_client, favourite, True)
    assert fleet.chosen("s") == other
    assert {engine.endpoint: engine.draining for engine in announced(redis_client)} == {
        favourite: True,
        other: False,
    }
    set_draining(redis_client, other, True)
    last = Fleet(redis_client)
    assert last.source.credit() == 0
    with pytest.raises(EngineError, match="no engine"):
        last.source.choose("s")
    set_draining(redis_client, favourite, False)
    set_draining(redis_client, other, False)
    assert Fleet(redis_client).chosen("s") == favourite


def test_credit_is_that_of_one_and_a_dead_engine_is_passed_over(redis_client: redis.Redis) -> None:
    fleet = Fleet(redis_client, "a", "b")
    for announcer in fleet.announcers:
        announcer.announce()
    assert fleet.source.credit() == 4
    favourite = fleet.chosen("s")
    fleet.source.failed(fleet.source.choose("s"))
    other = fleet.chosen("s")
    assert {favourite, other} == {"a", "b"}
    fleet.down |= {"a", "b"}
    fleet.source.close()
    with pytest.raises(EngineError, match="down"):
        fleet.source.choose("s")


def test_a_silent_engine_is_forgotten(redis_client: redis.Redis) -> None:
    fleet = Fleet(redis_client, "a", "b")
    first, second = fleet.announcers
    first.announce()
    second.announce()
    assert [engine.endpoint for engine in announced(redis_client)] == ["a", "b"]
    assert announced(redis_client)[0].stats.credit == 4
    second.withdraw()
    assert [engine.endpoint for engine in announced(redis_client)] == ["a"]
    time.sleep(0.25)
    assert announced(redis_client) == []
    assert redis_client.keys("*engine*") == []


def test_the_announcers_thread_survives_its_engine(redis_client: redis.Redis) -> None:
    fleet = Fleet(redis_client)
    fleet.down.add("a")
    announcer = Announcer(redis_client, lambda: fleet.connect("a"), "a", interval_s=0.01, ttl_s=5.0)
    announcer.start()
    time.sleep(0.05)
    assert announced(redis_client) == []
    fleet.down.clear()
    deadline = time.monotonic() + 10
    while not announced(redis_client) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [engine.endpoint for engine in announced(redis_client)] == ["a"]
    announcer.stop()
    assert announced(redis_client) == []
    assert fleet.engines["a"].closed


def test_without_redis_known_engines_serve_on(redis_client: redis.Redis) -> None:
    client = connect("unix:///nonexistent/redis.sock")
    with pytest.raises(Refused):
        announced(client)
    assert Fleet(client).chosen("s") == "default"


def test_schemas_spread_and_only_the_share_of_a_lost_engine_moves() -> None:
    engines = ["a", "b", "c", "d"]
    schemas = [f"schema{n}@1" for n in range(400)]
    before = {schema: rendezvous(schema, engines)[0] for schema in schemas}
    assert min(Counter(before.values()).values()) > 50
    after = {schema: rendezvous(schema, engines[:3])[0] for schema in schemas}
    moved = [schema for schema in schemas if before[schema] != after[schema]]
    assert moved == [schema for schema in schemas if before[schema] == "d"]
