"""What the ledger and the burst path cost per page, without a model.

    python benchmarks/pipeline.py --json

1. submit -> claim -> commit of bodies of --page-bytes, the extractor replaced by one that answers
   at once. First one after the other in this process: submit_us and work_us per page, p50_us and
   p99_us (a burst's share per page), round_trips_per_page (commands sent to Redis), bytes_per_page
   (memory of the server per waiting page) and bytes_per_record. Then a submitter in a process of
   its own beside one worker: pages_per_s, from the first submission to the last commit.
2. The same with real pages, real cleaning, and an engine process with the fake executor, whose
   steps hold 8,192 tokens as those of a large accelerator do: pages_per_s_with_cleaning, and the
   processor time of a page in each process: cleaning_cpu_ms.
3. burst_us_per_page: a burst of 200 tokenised pages of 1,000 tokens, from the client's encoding
   over a unix socket to the decoded message (in a thread of this process).
4. claim_us: one claim of 32 pages with a growing number of waiting pages; submit_us_at: submitting
   a page then.
5. fairness: one site of many pages, submitted first, beside many small sites. For the n-th page of
   a small site its share is n x sites pages served; small_site_waits is the worst ratio of what was
   served before it (in runs of 8) to that, in_order the same for the order of submission.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from pagemill.extraction.ledger import Commit, Ledger, LedgerLimits, PageSubmission, connect
from pagemill.extraction.pipeline import BurstRunner
from pagemill.extraction.record import PageInput, Result
from pagemill.extraction.stack import EmbeddedRedis, EngineProcess

SCHEMA = {
    "type": "object",
    "properties": {"in_stock": {"type": "boolean"}},
    "required": ["in_stock"],
}
RECORD = {"name": "Lamp", "price": 19.5, "description": "A lamp. " * 60}


LARGE_STEPS = ["--max-num-batched-tokens", "8192", "--max-num-seqs", "256"]


class InstantExtractor:
    """Answers every page with one record, so that only the pipeline's own work is left."""

    def run(
        self, engine: Any, pages: Sequence[tuple[PageInput, Any]], options: Any = None
    ) -> Iterator[Result]:
        for page, schema in pages:
            yield Result(id=page.id, url=page.url, status="done", record=RECORD, schema=schema.ref)


class NoEngine:
    """Has credit, and answers every request at once with no tokens."""

    info = Welcome(model="none", tokenizer_hash="", max_model_len=1, vocab_size=1, max_num_seqs=1)

    def stats(self, timeout_s: float = 5.0) -> EngineStats:
        return EngineStats(0, 0, 1, 1, 1024, 0.0, {})

    def generate(
        self, requests: Sequence[Request], *, tokenizer_hash: str, grammars: Mapping[str, bytes]
    ) -> Iterator[Output]:
        for request in requests:
            yield Output(request.request_id, finish="stop")

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is open."""


class CountingRedis(redis.Redis):
    """Counts the commands that are sent: each is one round trip."""

    sent = 0

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.sent += 1
        return super().execute_command(*args, **options)


def pages(first: int, count: int, schema: str, size: int) -> list[PageSubmission]:
    """Pages of `size` bytes, a third of it markup; they compress to a quarter, as crawled ones."""
    noise = np.random.default_rng(first)
    syllables = ["la", "mo", "ter", "in", "ber", "o", "shi", "ven", "ka", "re"]
    words = [a + b + c for a in syllables for b in syllables for c in syllables]
    options = parse_options({"max_tokens": 64})
    found = []
    for number in range(first, first + count):
        drawn = [words[at] for at in noise.integers(0, len(words), size // 14)]
        parts = [f"<html><body><h1>Lamp {number}</h1>"]
        for at in range(0, len(drawn), 12):
            name, *rest = drawn[at : at + 12]
            parts.append(f'<div class="section"><h2><a href="/{name}.html">{name}</a></h2>')
            parts.append(f'<p class="text-body">{" ".join(rest)}</p></div>\n')
        found.append(
            submission(
                "".join(parts).encode(),
                schema=schema,
                model="bench",
                url=f"https://shop{number % 100}.example/{number}",
                options=options,
            )
        )
    return found


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used_memory(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])


def bench_ledger(client: redis.Redis) -> Ledger:
    return Ledger(client, namespace="bench", limits=LedgerLimits(max_queued=10_000_000))


def submit_all(url: str, first: int, count: int, schema: str, size: int, go: Any, at: Any) -> None:
    """The submitter's process: makes its pages, waits for `go`, submits; `at` is when it began."""
    ledger = bench_ledger(connect(url))
    work = pages(first, count, schema, size)
    ledger.ping()
    go.wait()
    at.value = time.time()
    for start in range(0, count, 256):
        ledger.submit(work[start : start + 256])


def ledger_path(url: str, count: int, page_bytes: int) -> dict[str, Any]:
    plain = connect(url)
    client = CountingRedis(connection_pool=plain.connection_pool)
    ledger = bench_ledger(client)
    registry = schemas.SchemaRegistry(client, "bench")
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
    report = {
        "pages_per_s": 0,
        "submit_us": round((submitted - started) / count * 1e6, 1),
        "work_us": round((ended - submitted) / count * 1e6, 1),
        "p50_us": round(marks[49], 1),
        "p99_us": round(marks[98], 1),
        "round_trips_per_page": round(client.sent / count, 3),
        "bytes_per_page": round(queued),
        "bytes_per_record": round((used_memory(plain) - memory) / count),
    }
    spawn = multiprocessing.get_context("spawn")
    go, at = spawn.Event(), spawn.Value("d", 0.0)
    submitter = spawn.Process(
        target=submit_all, args=(url, 64 + count, count, schema, page_bytes, go, at)
    )
    submitter.start()
    left = count
    go.set()
    while left > 0:
        done = runner.run_once()
        left -= done
        if not done:
            time.sleep(0.001)
    seconds = time.time() - at.value
    submitter.join()
    report["pages_per_s"] = round(count / seconds)
    return report


def cleaning_path(url: str, count: int, page_bytes: int) -> dict[str, Any]:
    client = connect(url)
    ledger = Ledger(client, namespace="clean", limits=LedgerLimits(max_queued=10_000_000))
    registry = schemas.SchemaRegistry(client, "clean")
    schema = fix_schema(registry, SCHEMA)
    tokenizer = Tokenizer.load(store.resolve(None).directory)
    with (
        EngineProcess(options=["--executor", "fake", *LARGE_STEPS]) as process,
        contextlib.closing(EngineClient.connect(process.endpoint)) as engine,
    ):
        extractor = Extractor(
            tokenizer, model=engine.info.model, max_model_len=engine.info.max_model_len
        )
        runner = BurstRunner(
            ledger, extractor, FixedEngine(engine), registry, "bench", burst_size=64
        )
        ledger.submit(pages(0, 8, schema, page_bytes))
        runner.run_once()
        work = pages(8, count, schema, page_bytes)
        started, cpu, engine_cpu = time.perf_counter(), time.process_time(), cpu_s(process.pid)
        ledger.submit(work)
        left = count
        while left > 0:
            left -= runner.run_once()
        seconds = time.perf_counter() - started
        spent = {
            "worker": round((time.process_time() - cpu) / count * 1e3, 2),
            "engine": round((cpu_s(process.pid) - engine_cpu) / count * 1e3, 2),
        }
    return {"pages_per_s_with_cleaning": round(count / seconds, 1), "cleaning_cpu_ms": spent}


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
    claim_us: dict[str, float] = {}
    submit_us: dict[str, float] = {}
    queued = 0
    for size in sizes:
        started, before = time.perf_counter(), queued
        while queued < size:
            step = min(5000, size - queued)
            ledger.submit(
                [
                    PageSubmission(
                        body=f"{n % 1000}".encode(),
                        url=f"https://g{n % 500}.example/{n}",
                        schema="s@1",
                    )
                    for n in range(queued, queued + step)
                ]
            )
            queued += step
        submit_us[str(size)] = round((time.perf_counter() - started) / (queued - before) * 1e6, 1)
        samples = []
        for _ in range(50):
            started = time.perf_counter()
            leases = ledger.claim("growth", 32)
            samples.append((time.perf_counter() - started) * 1e6)
            ledger.release(leases, "unused")
        claim_us[str(size)] = round(sorted(samples)[25])
    return {"claim_us": claim_us, "submit_us_at": submit_us}


def worst_wait(order: Sequence[int], sites: int) -> float:
    """The largest ratio of pages served before a small site's n-th page to n x sites."""
    seen: dict[int, int] = {}
    worst = 0.0
    for place, site in enumerate(order, 1):
        seen[site] = seen.get(site, 0) + 1
        if site and seen[site] % 8 == 0:
            worst = max(worst, place / (seen[site] * sites))
    return round(worst, 2)


def fairness(url: str, small_sites: int, small: int) -> dict[str, Any]:
    """One site with as many pages as all others together, and before them."""
    ledger = Ledger(connect(url), namespace="fair", limits=LedgerLimits(max_queued=10_000_000))
    order = [0] * (small_sites * small)
    order += [site for _ in range(small) for site in range(1, small_sites + 1)]
    work = [
        PageSubmission(
            body=f"{n % 1000}".encode(), url=f"https://s{site}.example/{n}", schema="s@1"
        )
        for n, site in enumerate(order)
    ]
    for first in range(0, len(work), 5000):
        ledger.submit(work[first : first + 5000])
    served = []
    while leases := ledger.claim("fair", 64):
        served += [int(str(lease.url).split("//s")[1].split(".")[0]) for lease in leases]
        ledger.commit_all([Commit(lease, b"{}", "done") for lease in leases])
    assert sorted(served) == sorted(order)
    return {
        "fairness": {
            "sites": f"1 of {small_sites * small}, {small_sites} of {small}",
            "small_site_waits": worst_wait(served, small_sites + 1),
            "in_order": worst_wait(order, small_sites + 1),
        }
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pages", type=int, default=6000)
    parser.add_argument("--cleaned-pages", type=int, default=600)
    parser.add_argument("--page-bytes", type=int, default=20_000)
    parser.add_argument("--growth", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--small-sites", type=int, default=1000)
    parser.add_argument("--small-site", type=int, default=50, help="pages of a small site")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    given = parser.parse_args()
    logs.configure("warning")
    report: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis(maxmemory="8gb"))
        steps: list[Callable[[], dict[str, Any]]] = [
            lambda: ledger_path(server.url, given.pages, given.page_bytes),
            lambda: burst_path(50),
            lambda: fairness(server.url, given.small_sites, given.small_site),
            lambda: cleaning_path(server.url, given.cleaned_pages, given.page_bytes),
            lambda: growth(server.url, given.growth),
        ]
        for step in steps:
            found = step()
            print(found, file=sys.stderr, flush=True)
            report |= found
    report["machine"] = f"{platform.machine()}, Python {platform.python_version()}"
    if given.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
