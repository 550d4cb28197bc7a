"""Kills a Celery worker again and again while it works off a queue; counts what that cost.

    python benchmarks/kill.py --pages 40000 --kills 60 --json

Real Redis (embedded Valkey, appendfsync everysec), real Celery, real pages; the engine's executor
is the fake one, so that the time goes into what is tested. A kill is kill -9 of the worker's whole
process group, 0.05 to 0.4 s after it has begun to make progress. The driver also plays zombie: it
claims pages, lets the leases run out, and commits late.

Keys: pages, kills, kills_with_leases (the worker held leases when it died), lost (accepted, but no
record), doubled (a record seen twice or changed), dead (given up), recomputed_share (leases that
were lost, per page), zombies (late commits tried), zombie_accepted, seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from pagemill import schemas
from pagemill.extraction.assembly import open_ledger
from pagemill.extraction.config import Settings
from pagemill.extraction.intake import fix_schema, parse_options, submission
from pagemill.extraction.ledger import Lease, Ledger, connect
from pagemill.extraction.stack import EmbeddedRedis, EngineProcess, WorkerProcess

SCHEMA = {
    "type": "object",
    "properties": {"in_stock": {"type": "boolean"}},
    "required": ["in_stock"],
}
BATCH = "kill"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass
class Journal:
    """What the submitter's side has seen: every record once, and never another one."""

    ledger: Ledger
    records: dict[str, bytes | None] = field(default_factory=dict)
    states: Counter[str] = field(default_factory=Counter)
    doubled: int = 0
    cursor: str = ""

    def read(self) -> int:
        """Take note of new records; return how many there are."""
        while True:
            found, self.cursor = self.ledger.records(BATCH, self.cursor, 1000)
            for record in found:
                if record.page_id in self.records:
                    self.doubled += 1
                self.records[record.page_id] = record.result
                self.states[record.state] += 1
            if not found:
                return len(self.records)

    def check(self) -> None:
        """Read all records again: one that has changed since counts as doubled."""
        cursor = ""
        while True:
            found, cursor = self.ledger.records(BATCH, cursor, 1000)
            if not found:
                return
            self.doubled += sum(self.records[r.page_id] != r.result for r in found)


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


def submit(ledger: Ledger, schema: str, settings: Settings, count: int) -> set[str]:
    options = parse_options({"max_tokens": 64})
    accepted: set[str] = set()
    for first in range(0, count, 1000):
        pages = [
            submission(
                f"<html><body><h1>Lamp {n}</h1><p>Price: EUR {n % 97}.50</p></body>".encode(),
                schema=schema,
                model=settings.model,
                url=f"https://shop{n % 50}.example/lamp/{n}",
                options=options,
            )
            for n in range(first, min(count, first + 1000))
        ]
        accepted |= {answer.page_id for answer in ledger.submit(pages, batch=BATCH)}
    return accepted


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


def run(
    pages: int, kills: int, seed: int, concurrency: int, lease_s: float, patience_s: float
) -> dict[str, object]:
    chance = random.Random(seed)
    started = time.monotonic()
    done_kills = kills_with_leases = 0
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis())
        engine = stack.enter_context(EngineProcess(options=["--executor", "fake"]))
        settings = Settings(
            redis_url=server.url,
            engine_endpoint=engine.endpoint,
            lease_s=lease_s,
            max_queued_pages=max(pages, 100_000),
        )
        ledger = open_ledger(settings)
        registry = schemas.SchemaRegistry(connect(server.url), settings.namespace)
        accepted = submit(ledger, fix_schema(registry, SCHEMA), settings, pages)
        say(f"{len(accepted)} pages accepted")
        journal, zombie = Journal(ledger), Zombie(ledger)
        worker = WorkerProcess(settings, concurrency=concurrency)
        stack.callback(worker.close)
        worker.start()
        while done_kills < kills and wait_progress(journal, pages, patience_s):
            zombie.claim()
            time.sleep(chance.uniform(0.05, 0.4))
            worker.kill()
            done_kills += 1
            kills_with_leases += ledger.depth().leased > 0
            zombie.commit()
            say(f"kill {done_kills}: {journal.read()} pages finished")
            worker.start()
        while wait_progress(journal, pages, patience_s):
            zombie.commit()
            time.sleep(0.2)
        journal.check()
        zombie.commit()
        depth = ledger.depth()
    return {
        "pages": len(accepted),
        "kills": done_kills,
        "kills_with_leases": kills_with_leases,
        "lost": len(accepted - set(journal.records)),
        "doubled": journal.doubled,
        "dead": journal.states["dead"],
        "done": journal.states["done"],
        "recomputed_share": round(depth.lost / len(accepted), 4),
        "zombies": zombie.tried,
        "zombie_accepted": zombie.accepted,
        "seconds": round(time.monotonic() - started, 1),
        "seed": seed,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pages", type=int, default=40_000)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--lease-s", type=float, default=2.0)
    parser.add_argument("--patience-s", type=float, default=120.0, help="without progress")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    given = parser.parse_args()
    report = run(
        given.pages,
        given.kills,
        given.seed,
        given.concurrency,
        given.lease_s,
        given.patience_s,
    )
    if given.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:20} {value}")


if __name__ == "__main__":
    main()
