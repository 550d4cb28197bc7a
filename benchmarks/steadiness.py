"""A burst of 200 pages beside records that are being written: how steadily their tokens come.

    python benchmarks/steadiness.py --executor fake --batched-tokens 512 --json
    python benchmarks/steadiness.py --executor model --batched-tokens 64 128 --json

An engine process; --running requests decode one token a step, all from one client. After --before-s
seconds another client sends a burst of --pages prompts of --prompt-tokens tokens (the first 300 the
same, as pages of a schema have) with 16 tokens to write each. The fake executor's step takes
--fake-step-ms.

Keys, for each size of a step's token budget: before_ms and during_ms (p50, p99 of the time between
two outputs of a running request, at its client), ratio_p99, burst_s, refused (requests of the burst
that the engine didn't take).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import quantiles
from typing import Any

import numpy as np
from pagemill.engine import EngineClient
from pagemill.engine.protocol import Request, SamplingParams
from pagemill.extraction.stack import EngineProcess

SHARED = 300


def request(name: str, ids: np.ndarray[Any, Any], tokens: int) -> Request:
    sampling = SamplingParams(max_tokens=tokens, ignore_eos=True)
    return Request(name, ids.astype("<i4").tobytes(), sampling)


def watch(client: EngineClient, one: Request, times: list[float], stop: threading.Event) -> None:
    """Note when each output of a request arrives, until told to stop."""
    stream = client.generate([one], tokenizer_hash=client.info.tokenizer_hash, grammars={})
    for _ in stream:
        times.append(time.perf_counter())
        if stop.is_set():
            client.cancel([one.request_id])


def gaps(times: Sequence[Sequence[float]], start: float, end: float) -> dict[str, float]:
    """Milliseconds between outputs of each request that arrived within [start, end)."""
    found = [
        (after - before) * 1e3
        for arrived in times
        for before, after in pairwise(arrived)
        if start <= after < end
    ]
    marks = quantiles(found, n=100)
    return {"p50": round(marks[49], 2), "p99": round(marks[98], 2)}


def measure(given: argparse.Namespace, batched_tokens: int) -> dict[str, Any]:
    options = ["--max-num-batched-tokens", str(batched_tokens)]
    if given.executor == "fake":
        options += ["--executor", "fake", "--fake-step-ms", str(given.fake_step_ms)]
    drawn = np.random.default_rng(1)
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(EngineProcess(options=options))
        steady, bursting = (
            stack.enter_context(contextlib.closing(EngineClient.connect(process.endpoint)))
            for _ in range(2)
        )
        shared = drawn.integers(100, 30_000, SHARED)
        times: list[list[float]] = [[] for _ in range(given.running)]
        stop = threading.Event()
        room = steady.info.max_model_len - 100
        threads = [
            threading.Thread(
                target=watch,
                args=(steady, request(f"r{n}", drawn.integers(100, 30_000, 50), room), mine, stop),
            )
            for n, mine in enumerate(times)
        ]
        for thread in threads:
            thread.start()
        while not all(len(mine) > 20 for mine in times):
            time.sleep(0.01)
        started = time.perf_counter()
        time.sleep(given.before_s)
        own = given.prompt_tokens - SHARED
        burst = [
            request(f"b{n}", np.concatenate([shared, drawn.integers(100, 30_000, own)]), 16)
            for n in range(given.pages)
        ]
        sent = time.perf_counter()
        outputs = bursting.generate(burst, tokenizer_hash=bursting.info.tokenizer_hash, grammars={})
        last = [output for output in outputs if output.finish is not None]
        ended = time.perf_counter()
        stop.set()
        for thread in threads:
            thread.join()
    before, during = gaps(times, started, sent), gaps(times, sent, ended)
    return {
        "batched_tokens": batched_tokens,
        "before_ms": before,
        "during_ms": during,
        "ratio_p99": round(during["p99"] / before["p99"], 2),
        "burst_s": round(ended - sent, 2),
        "refused": sum(output.finish == "error" for output in last),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--executor", choices=("fake", "model"), default="fake")
    parser.add_argument("--batched-tokens", type=int, nargs="+", default=[512])
    parser.add_argument("--running", type=int, default=8)
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--prompt-tokens", type=int, default=1000)
    parser.add_argument("--before-s", type=float, default=5.0)
    parser.add_argument("--fake-step-ms", type=float, default=10.0)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    given = parser.parse_args()
    report: dict[str, Any] = {
        "executor": given.executor,
        "pages": given.pages,
        "runs": [measure(given, size) for size in given.batched_tokens],
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }
    if given.json:
        print(json.dumps(report))
    else:
        for run in report["runs"]:
            print(run)


if __name__ == "__main__":
    main()
