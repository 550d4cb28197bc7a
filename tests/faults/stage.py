"""A whole line behind wires, a submitter with a journal, and what must hold after each fault."""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import httpx
import msgspec
from pagemill import schemas
from pagemill.engine.client import EngineClient
from pagemill.engine.store import ModelFiles
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction.assembly import make_extractor, open_ledger
from pagemill.extraction.bound_schema import bind
from pagemill.extraction.child import Child
from pagemill.extraction.config import Settings
from pagemill.extraction.intake import fix_schema, parse_options, submission
from pagemill.extraction.ledger import BatchRecord, Ledger, PageSubmission, connect
from pagemill.extraction.reason import Reason, Refused
from pagemill.extraction.record import ExtractOptions, PageInput
from pagemill.extraction.stack import ApiProcess, EmbeddedRedis, EngineProcess, WorkerProcess

from .conftest import SCHEMA, wait
from .proxy import Proxy

OPTIONS = ExtractOptions(max_tokens=64)
KINDS = 40  # texts that differ


def body(number: int) -> bytes:
    """A page of its own whose text, and so whose record, is that of its kind."""
    kind = number % KINDS
    text = f"<h1>Lamp {kind}</h1><p>Price: EUR {kind}.50</p>"
    return f"<html><body>{text}<!-- {number} --></body></html>".encode()


@dataclass
class Journal:
    """What the submitter knows: a line on disk before it submits, one after the ledger's yes."""

    file: TextIO
    accepted: dict[str, int] = field(default_factory=dict)  # page id -> number
    seen: dict[str, bytes | None] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    doubled: list[str] = field(default_factory=list)
    cursor: str = ""

    def note(self, event: str, **more: Any) -> None:
        self.file.write(json.dumps({"event": event, **more}) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def read(self, ledger: Ledger, batch: str) -> int:
        """Take note of records that are new; the number of those known."""
        with contextlib.suppress(Refused):
            while True:
                found, self.cursor = ledger.records(batch, self.cursor, 500)
                if not found:
                    break
                for record in found:
                    self._see(record)
        return len(self.seen)

    def _see(self, record: BatchRecord) -> None:
        if record.page_id in self.seen:
            self.doubled.append(record.page_id)
        self.seen[record.page_id] = record.result
        self.states[record.page_id] = record.state


class Stage:
    """Started once for many faults. The workers see Redis and the engine through proxies."""

    def __init__(self, model_files: ModelFiles, folder: Path) -> None:
        self._stack = contextlib.ExitStack()
        self._folder = folder
        self._batches = 0
        self.chance = random.Random(0)
        enter = self._stack.enter_context
        self.redis = enter(EmbeddedRedis(fsync="always", maxmemory="1gb"))
        self.engine = enter(EngineProcess(options=["--executor", "fake", "--fake-step-ms", "5"]))
        self.redis_wire = Proxy(self.redis.socket_path, "redis.sock")
        self._stack.callback(self.redis_wire.close)
        engine_socket = Path(self.engine.endpoint.removeprefix("ipc://"))
        self.engine_wire = Proxy(engine_socket, "engine.sock")
        self._stack.callback(self.engine_wire.close)
        common: dict[str, Any] = {"lease_s": 1.0, "burst_size": 16, "engine_timeout_s": 2.0}
        self.settings = Settings(
            redis_url=self.redis.url, engine_endpoint=self.engine.endpoint, **common
        )
        self.worker_settings = Settings(
            redis_url=f"unix://{self.redis_wire.path}",
            engine_endpoint=f"ipc://{self.engine_wire.path}",
            **common,
        )
        self.worker = WorkerProcess(self.worker_settings, concurrency=2)
        self.worker.grace_s = 30.0
        self.worker.start_timeout_s = 120.0
        self.api = ApiProcess(self.settings)
        self.ledger = open_ledger(self.settings)
        registry = schemas.SchemaRegistry(connect(self.redis.url), self.settings.namespace)
        self.schema = fix_schema(registry, SCHEMA)
        self.expected = self._without_faults(model_files)
        for child in (self.worker, self.api):
            self._stack.callback(child.close)
            child.start()

    def close(self) -> None:
        self._stack.close()

    def _without_faults(self, model_files: ModelFiles) -> list[Any]:
        """The record of each kind of page, from the engine alone."""
        with contextlib.closing(EngineClient.connect(self.engine.endpoint)) as engine:
            extractor = make_extractor(
                self.settings, Tokenizer.load(model_files.directory), engine.info
            )
            schema = bind(SCHEMA)
            pages = [(PageInput(id=str(n), body=body(n)), schema) for n in range(KINDS)]
            found = {result.id: result for result in extractor.run(engine, pages, OPTIONS)}
        assert {result.status for result in found.values()} == {"done"}
        return [found[str(number)].record for number in range(KINDS)]

    def page(self, batch: str, number: int) -> PageSubmission:
        """A page of a batch: other options make it another page, and its record the same."""
        options = msgspec.structs.replace(OPTIONS, seed=int(batch[1:]))
        return submission(
            body(number),
            schema=self.schema,
            model=self.settings.model,
            client_id=f"lamp-{number}",
            options=parse_options(options),
        )

    # --- one burst under a fault --------------------------------------------------------------

    def begin(self) -> tuple[str, Journal]:
        self._batches += 1
        batch = f"b{self._batches}"
        return batch, Journal((self._folder / f"{batch}.journal").open("w"))

    def submit(self, batch: str, journal: Journal, count: int) -> None:
        """Submit in groups, each until the ledger takes it; that may take a while."""
        for first in range(0, count, 40):
            pages = [self.page(batch, n) for n in range(first, min(first + 40, count))]
            journal.note("submit", first=first, count=len(pages))

            def accepted(pages: list[PageSubmission] = pages, first: int = first) -> bool:
                try:
                    answers = self.ledger.submit(pages, batch=batch)
                except Refused as refused:
                    if refused.reason in (Reason.LEDGER_UNAVAILABLE, Reason.LEDGER_FULL):
                        return False
                    raise
                for at, answer in enumerate(answers):
                    journal.accepted[answer.page_id] = first + at
                journal.note("accepted", pages=[answer.page_id for answer in answers])
                return True

            wait(accepted, 60, "room in the ledger")

    def heal(self) -> None:
        """Start what has died; wires are whole again."""
        for wire in (self.redis_wire, self.engine_wire):
            wire.delay_s = wire.loss = 0.0
            wire.release()
        children: tuple[Child, ...] = (self.redis, self.engine, self.worker, self.api)
        for child in children:
            if not child.is_running():
                child.start()

    def check(self, batch: str, journal: Journal, *, poison: int = 0) -> None:
        """The invariants, after the last fault. `poison` pages may have died."""
        accepted = journal.accepted
        # I1, I2: all that was accepted is terminal within a bound.
        wait(
            lambda: journal.read(self.ledger, batch) >= len(accepted),
            patience_s(len(accepted)),
            f"{len(accepted)} terminal pages of {batch}: {Counter(journal.states.values())}, "
            f"{self._depth()}",
        )
        assert set(journal.seen) == set(accepted)
        # I3: one result per page, which is still the same.
        assert not journal.doubled
        again, _ = self.ledger.records(batch, count=10 * len(accepted) + 10)
        assert {record.page_id: record.result for record in again} == journal.seen
        assert len(again) == len(accepted)
        # I4: the answer that a run without faults gives.
        for record in again:
            if record.state == "done":
                result = msgspec.json.decode(record.result or b"")
                assert result["record"] == self.expected[accepted[record.page_id] % KINDS]
        # I5: nobody is given up who isn't to blame, and none was tried more often than allowed.
        states = Counter(record.state for record in again)
        assert states["failed"] + states["dead"] <= poison, states
        for page_id in accepted:
            status = self.ledger.page(page_id)
            assert status is not None
            # I11: what was tried again says why.
            assert status.attempts <= 1 or status.error is not None
            assert status.attempts <= 40
        # I6: the sums agree.
        depth = self.ledger.depth()
        assert depth.submitted == depth.queued + depth.leased + (
            depth.done + depth.failed + depth.dead
        )
        progress = self.ledger.batch(batch)
        assert progress is not None
        assert (progress.total, progress.pending) == (len(accepted), 0)
        # I9: it is ready again by itself.
        wait(self.is_ready, 30, "a ready API")
        # I10: nothing is left.
        wait(lambda: self._left() == set(), 30, f"clean ledger: {self._left()}")

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.api.url}/readyz", timeout=10, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def _depth(self) -> str:
        try:
            return str(self.ledger.depth())
        except Refused as refused:
            return str(refused)

    def _left(self) -> set[bytes]:
        kinds = {key.split(b"}:")[1].split(b":")[0] for key in self.ledger.redis.scan_iter("{*")}
        return kinds & {b"body", b"queue", b"waiters", b"leases", b"heads", b"parked", b"inflight"}


def patience_s(pages: int) -> float:
    """How long a burst may take on a machine that does other things too."""
    return 120 + pages / 5


def settle(seconds: float) -> None:
    """Let a fault last: that it lasts is the fault."""
    time.sleep(seconds)
