"""Kills a Celery worker again and again while it works off a queue; counts what that cost.

    python benchmarks/kill.py --pages 40000 --kills 60 --json
    python benchmarks/kill.py --executor model --victims worker engine api redis --pages 2000 --json

Real Redis (embedded Valkey, appendfsync everysec), real Celery, real pages; the engine's executor
is the fake one unless asked otherwise, so that the time goes into what is tested. A kill is kill -9
of a victim's whole process group, 0.05 to 0.4 s after another page was finished; several victims
take turns. With Redis among them its file is written at once (appendfsync always), and with the API
among them pages are uploaded through it while others are worked on; an upload that broke is sent
again. The driver also plays zombie: it claims pages, lets the leases run out, and commits late.

Keys: pages, kills, killed (by victim), kills_with_leases (a worker held leases when it came), lost
(accepted, but no record), doubled (a record seen twice or changed), dead (given up),
uploads_again, recomputed_share (leases that were lost, per page), zombies (late commits tried),
zombie_accepted, seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
from pagemill import schemas
from pagemill.extraction.assembly import open_ledger
from pagemill.extraction.config import Settings
from pagemill.extraction.intake import fix_schema, parse_options, submission
from pagemill.extraction.ledger import Lease, Ledger, connect
from pagemill.extraction.stack import ApiProcess, EmbeddedRedis, EngineProcess, WorkerProcess

SCHEMA = {
    "type": "object",
    "properties": {"in_stock": {"type": "boolean"}},
    "required": ["in_stock"],
}
VICTIMS = ("worker", "engine", "api", "redis")
UPLOAD_PAGES, AHEAD_PAGES = 20, 100


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass
class Journal:
    """What the submitter's side has seen: every record once, and never another one."""

    ledger: Ledger
    batch: str = "kill"
    records: dict[str, bytes | None] = field(default_factory=dict)
    states: Counter[str] = field(default_factory=Counter)
    doubled: int = 0
    cursor: str = ""

    def read(self) -> int:
        """Take note of new records; return how many there are."""
        while True:
            found, self.cursor = self.ledger.records(self.batch, self.cursor, 1000)
            for record in found:
                if record.client_id in self.records:
                    self.doubled += 1
                self.records[record.client_id] = record.result
                self.states[record.state] += 1
            if not found:
                return len(self.records)

    def check(self) -> None:
        """Read all records again: one that has changed since counts as doubled."""
        cursor = ""
        while True:
            found, cursor = self.ledger.records(self.batch, cursor, 1000)
            if not found:
                return
            self.doubled += sum(self.records[r.client_id] != r.result for r in found)


@dataclass
class Zombie:
    """A worker that always comes too late."""

    ledger: Ledger
    leases: list[Lease] = field(default_factory=list)
    tried: int = 0
    accepted: int = 0

    def claim(self) -> None:
        if len(self.leases) < 50:
            self.leases += self.ledger.claim("zombie", 2, lease_s=0.01)

    def commit(self) -> None:
        """Commit under leases that somebody else has taken over since."""
        for lease in list(self.leases):
            status = self.ledger.page(lease.page_id)
            if status is not None and status.worker == lease.worker and status.state == "leased":
                continue
            self.leases.remove(lease)
            self.tried += 1
            self.accepted += self.ledger.commit(lease, b'{"zombie":true}', "done")


def body(number: int) -> str:
    return f"<html><body><h1>Lamp {number}</h1><p>Price: EUR {number % 97}.50</p></body>"


def address(number: int) -> str:
    return f"https://shop{number % 50}.example/lamp/{number}"


def submit(ledger: Ledger, schema: str, settings: Settings, batch: str, count: int) -> set[str]:
    """Submit all pages; the client ids of those that the ledger took."""
    options = parse_options({"max_tokens": 64})
    accepted: set[str] = set()
    for first in range(0, count, 1000):
        pages = [
            submission(
                body(n).encode(),
                schema=schema,
                model=settings.model,
                url=address(n),
                client_id=f"lamp-{n}",
                options=options,
            )
            for n in range(first, min(count, first + 1000))
        ]
        accepted |= {answer.client_id for answer in ledger.submit(pages, batch=batch)}
    return accepted


class Uploader:
    """Uploads pages through the API in groups, some ahead of what is finished, from a thread.

    An upload without an answer of 202 is sent again, under the same Idempotency-Key.
    """

    def __init__(self, api: ApiProcess, journal: Journal, count: int) -> None:
        self._api, self._journal, self._count = api, journal, count
        self.accepted: set[str] = set()
        self.again = 0
        self.busy = threading.Event()
        self._thread = threading.Thread(target=self._run, name="uploads", daemon=True)

    def start(self) -> None:
        """Return when the first pages are accepted, and the journal knows their batch."""
        self._upload(range(min(UPLOAD_PAGES, self._count)))
        self._thread.start()

    def _run(self) -> None:
        for first in range(UPLOAD_PAGES, self._count, UPLOAD_PAGES):
            while first > len(self._journal.records) + AHEAD_PAGES:
                time.sleep(0.01)
            self._upload(range(first, min(self._count, first + UPLOAD_PAGES)))

    def _upload(self, numbers: range) -> None:
        pages = [{"id": f"lamp-{n}", "url": address(n), "html": body(n)} for n in numbers]
        asked: dict[str, Any] = {
            "schema": SCHEMA,
            "pages": pages,
            "options": {"max_tokens": 64},
        }
        while True:
            self.busy.set()
            try:
                reply = httpx.post(
                    f"{self._api.url}/v1/batches",
                    json=asked,
                    headers={"Idempotency-Key": "kill"},
                    timeout=30,
                    trust_env=False,
                )
                if reply.status_code == 202 and reply.json()["accepted"] == len(pages):
                    self._journal.batch = reply.json()["id"]
                    self.accepted |= {str(page["id"]) for page in pages}
                    return
            except (httpx.HTTPError, RuntimeError):
                pass  # it is being killed, or not up yet
            finally:
                self.busy.clear()
            self.again += 1
            time.sleep(0.2)


def wait_progress(journal: Journal, total: int, timeout_s: float) -> bool:
    """Wait until another page is finished; False when all are."""
    before = journal.read()
    deadline = time.monotonic() + timeout_s
    while before < total:
        if journal.read() > before:
            return True
        if time.monotonic() > deadline:
            raise SystemExit(f"no progress in {timeout_s:.0f} s at {before} of {total} pages")
        time.sleep(0.005)
    return False


def run(given: argparse.Namespace) -> dict[str, object]:
    chance = random.Random(given.seed)
    started = time.monotonic()
    killed: Counter[str] = Counter()
    kills_with_leases = 0
    pages, patience_s = given.pages, given.patience_s
    with contextlib.ExitStack() as stack:
        fsync = "always" if "redis" in given.victims else "everysec"
        server = stack.enter_context(EmbeddedRedis(fsync=fsync))
        options = ["--executor", "fake"] if given.executor == "fake" else []
        engine = stack.enter_context(EngineProcess(options=options))
        settings = Settings(
            redis_url=server.url,
            engine_endpoint=engine.endpoint,
            lease_s=given.lease_s,
            max_queued_pages=max(pages, 100_000),
        )
        ledger = open_ledger(settings)
        journal, zombie = Journal(ledger), Zombie(ledger)
        worker = WorkerProcess(settings, concurrency=given.concurrency)
        victims: dict[str, Any] = {"worker": worker, "engine": engine, "redis": server}
        stack.callback(worker.close)
        uploader: Uploader | None = None
        if "api" in given.victims:
            victims["api"] = api = stack.enter_context(ApiProcess(settings))
            uploader = Uploader(api, journal, pages)
            uploader.start()
            accepted = uploader.accepted
        else:
            registry = schemas.SchemaRegistry(connect(server.url), settings.namespace)
            schema = fix_schema(registry, SCHEMA)
            accepted = submit(ledger, schema, settings, journal.batch, pages)
            say(f"{len(accepted)} pages accepted")
        worker.start()
        while killed.total() < given.kills and wait_progress(journal, pages, patience_s):
            zombie.claim()
            name = given.victims[killed.total() % len(given.victims)]
            if name == "api" and uploader is not None:
                uploader.busy.wait(5)
            else:
                time.sleep(chance.uniform(0.05, 0.4))
            kills_with_leases += ledger.depth().leased > 0
            victims[name].kill()
            killed[name] += 1
            say(f"kill {killed.total()} ({name}): {len(journal.records)} pages finished")
            victims[name].start()
            zombie.commit()
        while wait_progress(journal, pages, patience_s):
            zombie.commit()
            time.sleep(0.2)
        journal.check()
        zombie.commit()
        depth = ledger.depth()
    return {
        "pages": len(accepted),
        "executor": given.executor,
        "kills": killed.total(),
        "killed": dict(killed),
        "kills_with_leases": kills_with_leases,
        "lost": len(accepted - set(journal.records)),
        "doubled": journal.doubled,
        "dead": journal.states["dead"],
        "done": journal.states["done"],
        "uploads_again": uploader.again if uploader is not None else 0,
        "recomputed_share": round(depth.lost / len(accepted), 4),
        "zombies": zombie.tried,
        "zombie_accepted": zombie.accepted,
        "seconds": round(time.monotonic() - started, 1),
        "seed": given.seed,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pages", type=int, default=40_000)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=["worker"])
    parser.add_argument("--executor", choices=("fake", "model"), default="fake")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--lease-s", type=float, default=2.0)
    parser.add_argument("--patience-s", type=float, default=120.0, help="without progress")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    given = parser.parse_args()
    report = run(given)
    if given.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:20} {value}")


if __name__ == "__main__":
    main()
