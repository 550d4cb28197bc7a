"""Bursts through a real ledger and extractor, with an engine that follows a script."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import pytest
import redis
from pagemill import schemas
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.protocol import EngineStats, Output, Request, Usage, Welcome
from pagemill.engine.store import ModelFiles
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction.engine_source import FixedEngine
from pagemill.extraction.extractor import Extractor
from pagemill.extraction.finished import batch_result, record_line
from pagemill.extraction.intake import fix_schema, parse_options, submission
from pagemill.extraction.ledger import Ledger, PageSubmission
from pagemill.extraction.pipeline import BurstRunner
from pagemill.extraction.reason import Reason

pytestmark = pytest.mark.model

SCHEMA = {
    "type": "object",
    "properties": {"in_stock": {"type": "boolean"}},
    "required": ["in_stock"],
}
ANSWER = '{"in_stock":true}'
Outcome = EngineError | str | None


class ScriptedEngine:
    """Answers each burst as `script` says: an error that ends it after some pages, a reason with
    which each page ends, or (None) the same valid record for every page.
    """

    def __init__(self, tokenizer: Tokenizer, script: Sequence[Outcome] = ()) -> None:
        self.info = Welcome(
            model="scripted",
            tokenizer_hash=tokenizer.hash,
            max_model_len=4096,
            vocab_size=tokenizer.vocab_size,
            max_num_seqs=8,
        )
        self.bursts: list[int] = []
        self.credit = 8
        self.before_answering: Callable[[], None] = lambda: None
        self._answer = tuple(int(token) for token in tokenizer.encode(ANSWER))
        self._eos = tokenizer.eos_ids[0]
        self._script = list(script)

    def generate(
        self, requests: Sequence[Request], *, tokenizer_hash: str, grammars: Mapping[str, bytes]
    ) -> Iterator[Output]:
        assert tokenizer_hash == self.info.tokenizer_hash
        assert all(request.grammar in grammars for request in requests)
        self.bursts.append(len(requests))
        outcome = self._script.pop(0) if self._script else None
        self.before_answering()
        for number, request in enumerate(requests):
            if isinstance(outcome, EngineError) and number == len(requests) // 2:
                raise outcome
            if isinstance(outcome, str):
                yield Output(request.request_id, finish="error", reason=outcome, message="script")
                continue
            yield Output(request.request_id, self._answer)
            yield Output(request.request_id, (self._eos,), finish="stop", usage=Usage())

    def cancel(self, request_ids: Sequence[str]) -> None:
        raise AssertionError("nothing is cancelled here")

    def stats(self, timeout_s: float = 5.0) -> EngineStats:
        return EngineStats(
            running=0,
            waiting=0,
            free_blocks=1,
            total_blocks=1,
            credit=self.credit,
            last_step_age_s=0.0,
            counters={},
        )

    def close(self) -> None:
        """Nothing is open."""


class Bench:
    def __init__(self, client: redis.Redis, tokenizer: Tokenizer, script: Sequence[Outcome]):
        self.ledger = Ledger(client)
        self.registry = schemas.SchemaRegistry(client)
        self.schema = fix_schema(self.registry, SCHEMA)
        self.engine = ScriptedEngine(tokenizer, script)
        extractor = Extractor(tokenizer, model="scripted", max_model_len=4096)
        self.runner = BurstRunner(
            self.ledger,
            extractor,
            FixedEngine(self.engine),
            self.registry,
            "w",
            burst_size=6,
            lease_s=1.0,
        )

    def pages(self, count: int, **changes: str) -> list[PageSubmission]:
        return [
            submission(
                f"<h1>Lamp {number}</h1>".encode(),
                schema=changes.get("schema", self.schema),
                model="scripted",
                url=f"https://shop.example/{number}",
                client_id=f"p{number}",
                options=changes.get("options", "").encode() or parse_options({"max_tokens": 32}),
            )
            for number in range(count)
        ]

    def states(self, batch: str = "b") -> list[str]:
        return [record.state for record in self.ledger.records(batch)[0]]


@pytest.fixture(scope="module")
def tokenizer(model_files: ModelFiles) -> Tokenizer:
    return Tokenizer.load(model_files.directory)


@pytest.fixture
def bench(redis_client: redis.Redis, tokenizer: Tokenizer, request: pytest.FixtureRequest) -> Bench:
    return Bench(redis_client, tokenizer, getattr(request, "param", ()))


def scripted(*outcomes: Outcome) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bench", [outcomes], indirect=True, ids=["script"])


GONE = EngineError(EngineReason.ENGINE_UNAVAILABLE, "the engine went silent")


def test_bursts_until_nothing_waits(bench: Bench) -> None:
    bench.ledger.submit(bench.pages(8), batch="b")
    assert [bench.runner.run_once() for _ in range(3)] == [6, 2, 0]
    records, _ = bench.ledger.records("b")
    assert sorted(record.client_id for record in records) == [f"p{n}" for n in range(8)]
    line = msgspec.json.decode(record_line(records[0]))
    assert line["record"] == {"in_stock": True}
    assert line["id"] == records[0].client_id
    assert line["schema"] == bench.schema


def test_the_engines_credit_bounds_a_burst(bench: Bench) -> None:
    bench.ledger.submit(bench.pages(5))
    bench.engine.credit = 2
    assert bench.runner.run_once() == 2
    bench.engine.credit = 0
    assert bench.runner.run_once() == 0
    [wanted] = bench.ledger.submit(bench.pages(5)[4:])
    assert bench.runner.run_once(want=wanted.page_id) == 1


def test_a_wanted_page_takes_others_along(bench: Bench) -> None:
    accepted = bench.ledger.submit(bench.pages(12))
    assert bench.runner.run_once(want=accepted[11].page_id) == 6
    status = bench.ledger.page(accepted[11].page_id)
    assert status is not None
    assert status.state == "done"
    assert bench.runner.run_once(want=accepted[11].page_id) == 0


@scripted(GONE)
def test_an_engine_lost_in_the_middle_costs_time_only(bench: Bench) -> None:
    bench.ledger.submit(bench.pages(6), batch="b")
    with pytest.raises(EngineError):
        bench.runner.run_once()
    assert bench.ledger.depth().done == 3
    assert bench.ledger.depth().leased == 0
    while bench.runner.run_once():
        pass
    assert bench.states() == ["done"] * 6
    assert bench.engine.bursts == [6, 1, 1, 1]  # what was lost comes back alone


@scripted(*[EngineError(EngineReason.TOKENIZER_MISMATCH, "another tokenizer")] * 8)
def test_a_wrong_engine_holds_nothing_against_the_pages(bench: Bench) -> None:
    bench.ledger.submit(bench.pages(2), batch="b")
    for _ in range(8):
        with pytest.raises(EngineError):
            bench.runner.run_once()
    while bench.runner.run_once():
        pass
    assert bench.states() == ["done", "done"]


@scripted(*[GONE] * 4)
def test_a_page_that_ends_every_engine_is_given_up(bench: Bench) -> None:
    bench.ledger.submit(bench.pages(1), batch="b")
    for _ in range(3):
        with pytest.raises(EngineError):
            bench.runner.run_once()
    assert bench.runner.run_once() == 0
    [record], _ = bench.ledger.records("b")
    assert record.state == "dead"
    result = batch_result(record)
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.reason == Reason.ATTEMPTS_EXHAUSTED
    assert "went silent" in result.error.message


@scripted("engine_error", "engine_error")
def test_a_failure_of_the_moment_is_tried_again(bench: Bench) -> None:
    bench.ledger.submit(bench.pages(2), batch="b")
    for _ in range(6):
        bench.runner.run_once()
    assert bench.states() == ["done", "done"]


@scripted(*["engine_error"] * 10)
def test_a_failure_that_stays_is_the_pages_result(bench: Bench) -> None:
    bench.ledger.submit(bench.pages(2), batch="b")
    for _ in range(8):
        bench.runner.run_once()
    assert bench.states() == ["failed", "failed"]
    assert len(bench.engine.bursts) == 5


def test_what_cannot_be_done_fails_with_its_reason(bench: Bench, redis_client: redis.Redis) -> None:
    bench.ledger.submit(bench.pages(1, schema="no_such_schema@1"), batch="schema")
    bench.ledger.submit(bench.pages(1, options='{"max_tokens":0}'), batch="options")
    bench.ledger.submit(bench.pages(1)[:1], batch="body")
    redis_client.delete(*redis_client.keys("*:body:*"))
    bench.ledger.submit([msgspec.structs.replace(bench.pages(1)[0], body=b"")], batch="empty")
    while bench.runner.run_once():
        pass
    reasons = {}
    for batch in ("schema", "options", "body", "empty"):
        [record], _ = bench.ledger.records(batch)
        error = batch_result(record).error
        assert error is not None
        reasons[batch] = error.reason
    # The three share one body, which is gone before anything else is looked at.
    assert reasons == {
        "schema": Reason.BODY_MISSING,
        "options": Reason.BODY_MISSING,
        "body": Reason.BODY_MISSING,
        "empty": Reason.PAGE_EMPTY,
    }
    bench.ledger.submit(bench.pages(2, schema="no_such_schema@1")[1:], batch="schema2")
    bench.ledger.submit(bench.pages(2, options='{"max_tokens":0}')[1:], batch="options2")
    while bench.runner.run_once():
        pass
    for batch, reason in (
        ("schema2", Reason.SCHEMA_UNKNOWN),
        ("options2", Reason.REQUEST_INVALID),
    ):
        [record], _ = bench.ledger.records(batch)
        error = batch_result(record).error
        assert error is not None
        assert error.reason == reason


def test_heartbeats_keep_a_long_burst(bench: Bench) -> None:
    bench.ledger.submit(bench.pages(2), batch="b")

    def outlive_the_lease() -> None:
        time.sleep(1.5)
        assert bench.ledger.reap().requeued == 0

    bench.engine.before_answering = outlive_the_lease
    assert bench.runner.run_once() == 2


def test_a_burst_that_lost_its_leases_writes_nothing(bench: Bench) -> None:
    bench.ledger.submit(bench.pages(2), batch="b")

    def lose_the_leases() -> None:
        bench.engine.before_answering = lambda: None
        leases = [
            (key.decode().rsplit(":", 1)[1]) for key in bench.ledger.redis.scan_iter("*:page:*")
        ]
        bench.ledger.redis.zadd("{pagemill:0}:leases", dict.fromkeys(leases, 1))
        assert bench.ledger.reap().requeued == 2

    bench.engine.before_answering = lose_the_leases
    assert bench.runner.run_once() == 0
    assert bench.ledger.depth().zombie_commits == 2
    while bench.runner.run_once():
        pass
    assert bench.states() == ["done", "done"]
