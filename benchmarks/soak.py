"""Pages at a steady pace for a while, workers recycled: what the memory of every process does.

    python benchmarks/soak.py --minutes 60 --json

Real server, Celery worker (each child ends after 50 tasks), engine with the fake executor, API
whose health is asked for. A tenth of the pages were submitted before. Records are dropped after
--keep-s, so that the server's memory comes to a standstill too.

Keys: minutes, pages, lost, per process rss_mib (after the first fifth, at the end) and growth (the
median of the last fifth over that of the second), used_memory_mib of the server the same way.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any

from pagemill import schemas
from pagemill.extraction.assembly import open_ledger
from pagemill.extraction.config import Settings
from pagemill.extraction.intake import fix_schema, parse_options, submission
from pagemill.extraction.ledger import connect
from pagemill.extraction.stack import ApiProcess, EmbeddedRedis, EngineProcess, WorkerProcess

SCHEMA = {
    "type": "object",
    "properties": {"in_stock": {"type": "boolean"}},
    "required": ["in_stock"],
}
SAMPLE_S = 2.0


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += tree(int(child))
    return found


def rss_mib(pid: int) -> float:
    """Resident memory of a process and all below it."""
    total = 0
    for one in tree(pid):
        with contextlib.suppress(OSError, ValueError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * 4096
    return total / 2**20


def summary(samples: list[float]) -> dict[str, float]:
    fifth = max(1, len(samples) // 5)
    early, late = median(samples[fifth : 2 * fifth]), median(samples[-fifth:])
    return {"early": round(early, 1), "late": round(late, 1), "growth": round(late / early, 3)}


def run(minutes: float, pages_per_s: float, keep_s: int) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis())
        engine = stack.enter_context(EngineProcess(options=["--executor", "fake"]))
        settings = Settings(
            redis_url=server.url, engine_endpoint=engine.endpoint, result_ttl_s=max(60, keep_s)
        )
        worker = stack.enter_context(
            WorkerProcess(settings, options=["--max-tasks-per-child", "50"])
        )
        api = stack.enter_context(ApiProcess(settings))
        ledger = open_ledger(settings)
        registry = schemas.SchemaRegistry(connect(server.url), settings.namespace)
        schema = fix_schema(registry, SCHEMA)
        client = connect(server.url)
        processes = {"server": server, "engine": engine, "worker": worker, "api": api}
        samples: dict[str, list[float]] = {name: [] for name in processes}
        used: list[float] = []
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        started = next_sample = time.monotonic()
        sent = 0
        while (now := time.monotonic()) - started < minutes * 60:
            due = int((now - started) * pages_per_s) - sent
            if due > 0:
                ledger.submit(
                    [
                        submission(
                            f"<h1>Lamp {n - n % 10 % 9}</h1><p>EUR {n % 97}.50</p>".encode(),
                            schema=schema,
                            model=settings.model,
                            url=f"https://shop{n % 50}.example/{n - (n % 10 == 9)}",
                            options=parse_options({"max_tokens": 64}),
                        )
                        for n in range(sent, sent + due)
                    ]
                )
                sent += due
            if now >= next_sample:
                next_sample = now + SAMPLE_S
                for name, process in processes.items():
                    samples[name].append(rss_mib(process.pid))
                used.append(int(client.info("memory")["used_memory"]) / 2**20)
                with opener.open(f"{api.url}/readyz", timeout=30) as reply:
                    reply.read()
            time.sleep(0.05)
        deadline = time.monotonic() + 300
        while ledger.depth().queued + ledger.depth().leased and time.monotonic() < deadline:
            time.sleep(0.2)
        depth = ledger.depth()
    return {
        "minutes": minutes,
        "pages": sent,
        "lost": depth.submitted - depth.done - depth.failed - depth.dead,
        "dead": depth.dead,
        "rss_mib": {name: summary(values) for name, values in samples.items()},
        "used_memory_mib": summary(used),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--pages-per-s", type=float, default=20.0)
    parser.add_argument("--keep-s", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    given = parser.parse_args()
    report = run(given.minutes, given.pages_per_s, given.keep_s)
    if given.json:
        print(json.dumps(report))
    else:
        json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
