"""What the ledger and the burst path cost per page, without a model.

    python benchmarks/pipeline.py --json

1. submit -> claim -> commit by one worker, the extractor replaced by one that answers at once:
   pages_per_s, overhead per page (p50_us, p99_us of a burst's share), round_trips_per_page
   (commands sent to Redis), bytes_per_page (memory of the server per waiting page of 20 kB) and
   bytes_per_record.
2. The same with real pages, real cleaning, and an engine process with the fake executor:
   pages_per_s_with_cleaning.
3. burst_us_per_page: a burst of 200 tokenised pages of 1,000 tokens, from the client's encoding
   over a unix socket to the decoded message (in a thread of this process).
4. claim_us: one claim of 32 pages with a growing number of waiting pages.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np
import redis
import zmq
from pagemill import schemas
from pagemill.engine import store
from pagemill.engine.client import EngineClient
from pagemill.engine.protocol import (
    EngineStats,
    Output,
    Request,
    Submit,
    Welcome,
    decode_client,
    encode,
)
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction import logs
from pagemill.extraction.engine_source import FixedEngine
from pagemill.extraction.extractor import Extractor
from pagemill.extraction.intake import fix_schema, parse_options, submission
from pagemill.extraction.ledger import Ledger, LedgerLimits, PageSubmission, connect
from pagemill.extraction.pipeline import BurstRunner
from pagemill.extraction.record import PageInput, Result
from pagemill.extraction.stack import EmbeddedRedis, EngineProcess

SCHEMA = {
    "type": "object",
    "properties": {"in_stock": {"type": "boolean"}},
    "required": ["in_stock"],
}
RECORD = {"name": "Lamp", "price": 19.5, "description": "A lamp. " * 60}


class InstantExtractor:
    """Answers every page with one record, so that only the pipeline's own work is left."""

    def run(
        self, engine: Any, pages: Sequence[tuple[PageInput, Any]], options: Any = None
    ) -> Iterator[Result]:
        for page, schema in pages:
            yield Result(id=page.id, url=page.url, status="done", record=RECORD, schema=schema.ref)


class NoEngine:
    """Has credit, and is asked nothing else."""

    info = Welcome(model="none", tokenizer_hash="", max_model_len=1, vocab_size=1, max_num_seqs=1)

    def stats(self, timeout_s: float = 5.0) -> EngineStats:
        return EngineStats(0, 0, 1, 1, 1024, 0.0, {})

    def generate(
        self, requests: Sequence[Request], *, tokenizer_hash: str, grammars: Mapping[str, bytes]
    ) -> Iterator[Output]:
        raise NotImplementedError

    def cancel(self, request_ids: Sequence[str]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""


class CountingRedis(redis.Redis):
    """Counts the commands that are sent: each is one round trip."""

    sent = 0

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.sent += 1
        return super().execute_command(*args, **options)


def pages(first: int, count: int, schema: str, size: int) -> list[PageSubmission]:
    noise = np.random.default_rng(first)
    syllables = ["la", "mo", "ter", "in", "ber", "o", "shi", "ven", "ka", "re"]
    words = [a + b + c for a in syllables for b in syllables for c in syllables]
    options = parse_options({"max_tokens": 64})
    found = []
    for number in range(first, first + count):
        text = " ".join(words[at] for at in noise.integers(0, len(words), size // 7))
        found.append(
            submission(
                f"<html><body><h1>Lamp {number}</h1><p>{text}</p></body>".encode(),
                schema=schema,
                model="bench",
                url=f"https://shop{number % 100}.example/{number}",
                options=options,
            )
        )
    return found


def used_memory(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])


def ledger_path(url: str, count: int, page_bytes: int) -> dict[str, Any]:
    plain = connect(url)
    client = CountingRedis(connection_pool=plain.connection_pool)
    ledger = Ledger(client, namespace="bench", limits=LedgerLimits(max_queued=10_000_000))
    registry = schemas.SchemaRegistry(plain, "bench")
    schema = fix_schema(registry, SCHEMA)
    extractor: Any = InstantExtractor()
    runner = BurstRunner(
        ledger, extractor, FixedEngine(NoEngine()), registry, "bench", burst_size=64
    )
    ledger.submit(pages(0, 64, schema, page_bytes))
    runner.run_once()  # compiles the schema, loads the scripts
    work = pages(64, count, schema, page_bytes)
    memory = used_memory(plain)
    client.sent = 0
    started = time.perf_counter()
    for first in range(0, count, 256):
        ledger.submit(work[first : first + 256])
    submitted = time.perf_counter()
    queued = (used_memory(plain) - memory) / count
    per_page: list[float] = []
    while True:
        burst_started = time.perf_counter()
        done = runner.run_once()
        if not done:
            break
        per_page.append((time.perf_counter() - burst_started) / done * 1e6)
    ended = time.perf_counter()
    marks = quantiles(per_page, n=100)
    return {
        "pages_per_s": round(count / (ended - started)),
        "submit_us": round((submitted - started) / count * 1e6, 1),
        "p50_us": round(marks[49], 1),
        "p99_us": round(marks[98], 1),
        "round_trips_per_page": round(client.sent / count, 3),
        "bytes_per_page": round(queued),
        "bytes_per_record": round((used_memory(plain) - memory) / count),
    }


def cleaning_path(url: str, endpoint: str, count: int, page_bytes: int) -> dict[str, Any]:
    client = connect(url)
    ledger = Ledger(client, namespace="clean", limits=LedgerLimits(max_queued=10_000_000))
    registry = schemas.SchemaRegistry(client, "clean")
    schema = fix_schema(registry, SCHEMA)
    tokenizer = Tokenizer.load(store.resolve(None).directory)
    with contextlib.closing(EngineClient.connect(endpoint)) as engine:
        extractor = Extractor(
            tokenizer, model=engine.info.model, max_model_len=engine.info.max_model_len
        )
        runner = BurstRunner(
            ledger, extractor, FixedEngine(engine), registry, "bench", burst_size=64
        )
        ledger.submit(pages(0, 8, schema, page_bytes))
        runner.run_once()
        started = time.perf_counter()
        ledger.submit(pages(8, count, schema, page_bytes))
        left = count
        while left > 0:
            left -= runner.run_once()
        seconds = time.perf_counter() - started
    return {"pages_per_s_with_cleaning": round(count / seconds, 1)}


def burst_path(bursts: int) -> dict[str, Any]:
    """One thread sends as the client does, another receives and decodes as the core does."""
    size, tokens = 200, 1000
    folder = Path(tempfile.mkdtemp(prefix="pagemill-"))
    context = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    router.bind(f"ipc://{folder}/burst.sock")
    dealer.connect(f"ipc://{folder}/burst.sock")
    ids = np.arange(tokens, dtype=np.int32)
    bodies = [(ids + n).tobytes() for n in range(size)]
    arrived: list[float] = []

    def receive() -> None:
        for _ in range(bursts):
            _, frame = router.recv_multipart(copy=False)
            message = decode_client(frame.bytes)
            assert isinstance(message, Submit)
            for request in message.requests:
                np.frombuffer(request.token_ids, dtype=np.int32)
            arrived.append(time.perf_counter())
            ready.set()

    ready = threading.Event()
    thread = threading.Thread(target=receive)
    thread.start()
    costs = []
    for burst in range(bursts):
        ready.clear()
        started = time.perf_counter()
        requests = [Request(f"{burst}:{n}", body, grammar="g") for n, body in enumerate(bodies)]
        dealer.send(encode(Submit("hash", requests)), copy=False)
        ready.wait(30)
        costs.append((arrived[-1] - started) / size * 1e6)
    thread.join()
    context.destroy(linger=0)
    (folder / "burst.sock").unlink(missing_ok=True)
    folder.rmdir()
    costs.sort()
    return {"burst_us_per_page": round(costs[len(costs) // 2], 2)}


def growth(url: str, sizes: Sequence[int]) -> dict[str, Any]:
    """Claim and give back 32 pages while more and more wait."""
    ledger = Ledger(connect(url), namespace="growth", limits=LedgerLimits(max_queued=10_000_000))
    costs: dict[str, float] = {}
    queued = 0
    for size in sizes:
        while queued < size:
            step = min(5000, size - queued)
            ledger.submit(
                [
                    PageSubmission(
                        body=f"{n % 1000}".encode(), url=f"https://g.example/{n}", schema="s@1"
                    )
                    for n in range(queued, queued + step)
                ]
            )
            queued += step
        samples = []
        for _ in range(50):
            started = time.perf_counter()
            leases = ledger.claim("growth", 32)
            samples.append((time.perf_counter() - started) * 1e6)
            ledger.release(leases, "unused")
        costs[str(size)] = round(sorted(samples)[25])
    return {"claim_us": costs}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pages", type=int, default=6000)
    parser.add_argument("--cleaned-pages", type=int, default=600)
    parser.add_argument("--page-bytes", type=int, default=20_000)
    parser.add_argument("--growth", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    given = parser.parse_args()
    logs.configure("warning")
    report: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis(maxmemory="8gb"))
        report |= ledger_path(server.url, given.pages, given.page_bytes)
        report |= burst_path(50)
        report |= growth(server.url, given.growth)
        print(report, file=sys.stderr, flush=True)
        engine = stack.enter_context(EngineProcess(options=["--executor", "fake"]))
        report |= cleaning_path(server.url, engine.endpoint, given.cleaned_pages, given.page_bytes)
    report["machine"] = f"{platform.machine()}, Python {platform.python_version()}"
    if given.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
