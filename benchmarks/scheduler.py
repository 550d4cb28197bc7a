"""What a scheduler step costs: `python benchmarks/scheduler.py [--json] [--plot FILE.svg]`.

Times are microseconds through pybind11 from Python, with prefix caching and stop conditions on
and blocks of 16 tokens:

- `decode_256`, `decode_4096`: `plan()` and `commit()` of a step in which that many requests decode
- `mixed_256_16`: the same with 16 requests that compute a 128-token chunk of their prompt besides
- `admit_200`: a burst of 200 requests of 1,000 tokens (half of it common) hashed, queued, looked
  up and started by one plan, per request
- `alloc_free_ns`: one block allocated and released in a C++ loop, nanoseconds

With `--json` the last line on standard output is one JSON object {key: {"median", "p99"}}; the
table goes to standard error. `--plot` draws the step time over 1 to 8,192 decoding requests.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pagemill._core import Plan, Scheduler, SchedulerConfig, time_alloc_free

BLOCK_SIZE = 16
STOP_TOKEN = 49_999
CHUNK = 128
TO_REACH = {
    "decode_256": 30.0,
    "mixed_256_16": 60.0,
    "decode_4096": math.nan,
    "alloc_free_ns": 60.0,
    "admit_200": 15.0,
}

_I32 = NDArray[np.int32]
_random = np.random.default_rng(0)


def prompt(length: int) -> _I32:
    return _random.integers(0, STOP_TOKEN, length, dtype=np.int32)


def outcome_of(plan: Plan) -> tuple[_I32, _I32, NDArray[np.uint8]]:
    rows = int(plan.sampled.sum())
    return prompt(rows), np.ones(rows, np.int32), np.zeros(rows, np.uint8)


def settle(scheduler: Scheduler, decoding: int) -> None:
    """Step until that many requests have computed their prompts."""
    while True:
        plan = scheduler.plan(0.0)
        outcome = outcome_of(plan)
        scheduler.commit(plan, *outcome)
        if len(outcome[0]) == decoding:
            return


def decoding_scheduler(requests: int, steps: int, num_blocks: int, prefills: int) -> Scheduler:
    scheduler = Scheduler(
        SchedulerConfig(
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            max_num_seqs=requests + prefills,
            max_num_batched_tokens=requests * 32 + prefills * CHUNK,  # all prompts in one step
            max_model_len=8192,
            long_prefill_token_threshold=CHUNK,
            max_waiting_requests=requests + prefills,
            max_waiting_tokens=10**9,
        )
    )
    for request_id in range(requests):
        # Lengths differ, so that requests fill their blocks at different steps.
        tokens = prompt(16 + request_id % 16)
        refusal = scheduler.add(
            request_id, tokens, max_tokens=steps + 8, stop_token_ids=[STOP_TOKEN]
        )
        assert refusal == 0
    settle(scheduler, requests)
    return scheduler


def time_decode(requests: int, steps: int, num_blocks: int) -> list[float]:
    scheduler = decoding_scheduler(requests, steps, num_blocks, 0)
    counts, ends = np.ones(requests, np.int32), np.zeros(requests, np.uint8)
    times = []
    for _ in range(steps):
        tokens = prompt(requests)
        start = time.perf_counter_ns()
        plan = scheduler.plan(1.0)
        scheduler.commit(plan, tokens, counts, ends)
        times.append((time.perf_counter_ns() - start) / 1e3)
        assert plan.num_rows == requests
    return times


def time_mixed(requests: int, prefills: int, steps: int, num_blocks: int) -> list[float]:
    scheduler = decoding_scheduler(requests, steps, num_blocks, prefills)
    chunks = 8
    next_id = requests
    left: dict[int, int] = {}  # request -> chunks to come
    counts, ends = np.ones(requests, np.int32), np.zeros(requests, np.uint8)
    times = []
    for _ in range(steps):
        # Prompts are replaced before their last chunk: the number of decoding rows stays.
        for request_id in [id for id, count in left.items() if count == 1]:
            scheduler.cancel(request_id)
            del left[request_id]
        while len(left) < prefills:
            # One starts per step after the first steps, each at another place in its prompt.
            scheduler.add(next_id, prompt(CHUNK * chunks), max_tokens=8)
            left[next_id] = chunks - next_id % (chunks - 1)
            next_id += 1
        tokens = prompt(requests)
        start = time.perf_counter_ns()
        plan = scheduler.plan(1.0)
        scheduler.commit(plan, tokens, counts, ends)
        times.append((time.perf_counter_ns() - start) / 1e3)
        assert plan.num_tokens == requests + prefills * CHUNK
        left = {id: count - 1 for id, count in left.items()}
    return times


def time_admission(requests: int, length: int, rounds: int) -> list[float]:
    scheduler = Scheduler(
        SchedulerConfig(
            num_blocks=20_000,
            block_size=BLOCK_SIZE,
            max_num_seqs=requests,
            max_num_batched_tokens=requests * length,
        )
    )
    times = []
    for round in range(rounds):
        shared = prompt(length // 2)
        prompts = [np.concatenate([shared, prompt(length - len(shared))]) for _ in range(requests)]
        first = round * requests
        start = time.perf_counter_ns()
        for i, tokens in enumerate(prompts):
            scheduler.add(first + i, tokens, max_tokens=64, stop_token_ids=[STOP_TOKEN])
        plan = scheduler.plan(0.0)
        times.append((time.perf_counter_ns() - start) / 1e3 / requests)
        assert plan.num_rows == requests
        scheduler.commit(plan, *outcome_of(plan))
        for i in range(requests):
            scheduler.cancel(first + i)
    return times[1:]


def summary(times: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(times), 2),
        "p99": round(float(np.percentile(times, 99)), 2),
    }


def measure(effort: float) -> dict[str, dict[str, float]]:
    def steps(most: int) -> int:
        return max(20, int(most * effort))

    cases: dict[str, Callable[[], list[float]]] = {
        "decode_256": lambda: time_decode(256, steps(800), 20_000),
        "mixed_256_16": lambda: time_mixed(256, 16, steps(700), 20_000),
        "decode_4096": lambda: time_decode(4096, steps(400), 200_000),
        "alloc_free_ns": lambda: [time_alloc_free(20_000, 20_000) for _ in range(steps(200))],
        "admit_200": lambda: time_admission(200, 1_000, steps(100)),
    }
    return {name: summary(case()) for name, case in cases.items()}


def table(results: dict[str, dict[str, float]]) -> str:
    lines = [f"{'':16}{'median':>10}{'p99':>10}{'to reach':>10}"]
    for name, result in results.items():
        goal = TO_REACH[name]
        if name == "decode_4096":
            goal = 16 * results["decode_256"]["median"]
        lines.append(f"{name:16}{result['median']:10.2f}{result['p99']:10.2f}{goal:10.1f}")
    return "\n".join(lines)


def draw(points: list[tuple[int, float]]) -> str:
    """An SVG of step time over running requests, both axes logarithmic."""
    width, height, margin = 640, 400, 56
    top = 10 ** math.ceil(math.log10(max(us for _, us in points)))
    low = 10 ** math.floor(math.log10(min(us for _, us in points)))

    def x(requests: int) -> float:
        return margin + (width - 2 * margin) * math.log2(requests) / math.log2(points[-1][0])

    def y(us: float) -> float:
        share = math.log10(us / low) / math.log10(top / low)
        return height - margin - (height - 2 * margin) * share

    def text(at: tuple[float, float], words: str, anchor: str = "middle") -> str:
        return f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}">{words}</text>'

    body = [text((width / 2, 24), "plan() + commit() of one step, median, over running requests")]
    tick = low
    while tick <= top:
        body.append(f'<path d="M{margin} {y(tick):.1f}H{width - margin}" stroke="#ddd"/>')
        body.append(text((margin - 6, y(tick) + 4), f"{tick:g} µs", "end"))
        tick *= 10
    for requests, _ in points:
        body.append(text((x(requests), height - margin + 20), f"{requests:,}"))
    body.append(text((width / 2, height - margin + 42), "running requests, all decoding"))
    line = " ".join(f"{x(requests):.1f},{y(us):.1f}" for requests, us in points)
    body.append(f'<polyline points="{line}" fill="none" stroke="#05a" stroke-width="2"/>')
    body += [f'<circle cx="{x(r):.1f}" cy="{y(us):.1f}" r="3" fill="#05a"/>' for r, us in points]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
        f"{''.join(body)}</svg>\n"
    )


def plot(path: Path, effort: float) -> None:
    points = []
    for requests in [1 << i for i in range(14)]:
        times = time_decode(requests, max(20, int(200 * effort)), requests * 40 + 1000)
        points.append((requests, statistics.median(times)))
        print(f"{requests:6} running: {points[-1][1]:9.2f} µs", file=sys.stderr)
    path.write_text(draw(points), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--plot", type=Path, help="write an SVG of step time over requests")
    parser.add_argument("--effort", type=float, default=1.0, help="scales the number of steps")
    arguments = parser.parse_args()
    gc.disable()
    results = measure(arguments.effort)
    print(table(results), file=sys.stderr if arguments.json else sys.stdout)
    if arguments.plot is not None:
        plot(arguments.plot, arguments.effort)
    if arguments.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
