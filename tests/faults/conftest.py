"""A whole line that can be killed: Valkey, an engine with the fake executor, a Celery worker."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from pagemill import schemas
from pagemill.engine.store import ModelFiles
from pagemill.extraction.assembly import open_ledger
from pagemill.extraction.config import Settings
from pagemill.extraction.intake import fix_schema, parse_options, submission
from pagemill.extraction.ledger import Ledger, PageSubmission, connect
from pagemill.extraction.reason import Reason, Refused
from pagemill.extraction.stack import EmbeddedRedis, EngineProcess, WorkerProcess

SCHEMA = {
    "type": "object",
    "properties": {"in_stock": {"type": "boolean"}, "rating": {"enum": [1, 2, 3, 4, 5]}},
    "required": ["in_stock", "rating"],
}


@dataclass
class Line:
    """The processes, the submitter's side, and what it has seen so far."""

    redis: EmbeddedRedis
    engine: EngineProcess
    worker: WorkerProcess
    settings: Settings
    ledger: Ledger
    schema: str
    journal: dict[str, bytes] = field(default_factory=dict)

    def page(self, number: int) -> PageSubmission:
        return submission(
            f"<html><body><h1>Lamp {number}</h1><p>Price: EUR {number}.50</p></body>".encode(),
            schema=self.schema,
            model=self.settings.model,
            url=f"https://shop.example/lamp/{number}",
            client_id=f"lamp-{number}",
            options=parse_options({"max_tokens": 64}),
        )

    def finished(self, batch: str) -> int:
        """How many pages are terminal; what is seen here must never change."""
        with contextlib.suppress(Refused):
            cursor = ""
            seen = 0
            while True:
                records, cursor = self.ledger.records(batch, cursor, 500)
                if not records:
                    return seen
                for record in records:
                    seen += 1
                    assert record.result is not None, record
                    known = self.journal.setdefault(record.client_id, record.result)
                    assert known == record.result, f"{record.client_id} changed"
        return 0

    def wait_finished(self, batch: str, count: int, timeout_s: float = 60.0) -> None:
        wait(lambda: self.finished(batch) >= count, timeout_s, f"{count} finished pages")


def wait(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll until `condition` holds; fails the test when it doesn't in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"no {what} after {timeout_s:.0f} s")
        time.sleep(0.05)


@pytest.fixture
def line(model_files: ModelFiles) -> Iterator[Line]:
    """Everything started, nothing submitted; leases of one second, bursts of sixteen."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis(fsync="always"))
        engine = stack.enter_context(
            EngineProcess(options=["--executor", "fake", "--fake-step-ms", "10"])
        )
        settings = Settings(
            redis_url=server.url, engine_endpoint=engine.endpoint, burst_size=16, lease_s=1.0
        )
        registry = schemas.SchemaRegistry(connect(server.url), settings.namespace)
        schema = fix_schema(registry, SCHEMA)
        worker = WorkerProcess(settings, concurrency=2)
        stack.callback(worker.close)
        worker.start()
        yield Line(server, engine, worker, settings, open_ledger(settings), schema)


def is_away(refused: Refused) -> bool:
    """Whether the ledger said that Redis is away."""
    return refused.reason == Reason.LEDGER_UNAVAILABLE
