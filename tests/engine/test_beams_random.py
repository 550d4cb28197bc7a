"""Beam searches among other requests, with too little of everything, and ended at any moment."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from pagemill.engine.executor.fake import FakeExecutor
from pagemill.engine.executor.rows import StepRows
from pagemill.engine.protocol import Cancel, GrammarTable, Submit

from .test_beams import PROMPT, assert_same, plain_search, results

Make = Callable[..., Any]
RECORDS = [
    json.dumps({"kind": kind, "n": n}, separators=(",", ":")).encode()
    for kind, n in itertools.product(("a", "bc"), (1, 23, 456))
]


def random_settings(rng: random.Random) -> dict[str, Any]:
    look_ahead = rng.random() < 0.4
    return {
        "max_num_seqs": rng.choice([1, 2, 3, 8]),
        "num_blocks": rng.choice([7, 9, 16, 256]),
        "max_num_batched_tokens": rng.choice([8, 16, 64]),
        "enable_prefix_caching": rng.random() < 0.5,
        "async_scheduling": look_ahead,
        "speculation": "off" if look_ahead else rng.choice(["off", "auto"]),
        "num_scheduler_steps": rng.choice([1, 1, 4]),
        "scheduling_policy": rng.choice(["fcfs", "fair", "prefix", "deadline", "priority"]),
        "max_waiting_requests": rng.choice([8, 64]),
        "max_waiting_tokens": rng.choice([60, 10_000]),
    }


class Failing(FakeExecutor):
    """Fails a step now and then."""

    calls = 0

    def forward(self, rows: StepRows) -> Any:
        self.calls += 1
        if self.calls % 7 == 3:
            raise RuntimeError("a kernel failed")
        return super().forward(rows)


def check_idle(core: Any) -> None:
    stats = core.core.stats()
    assert (stats.running, stats.waiting) == (0, 0)
    assert stats.free_blocks == stats.total_blocks
    assert not core.core.has_requests
    assert stats.counters["resets"] == 0


@pytest.mark.parametrize("seed", range(60))
def test_searches_among_others(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes], seed: int
) -> None:
    rng = random.Random(seed)
    settings = random_settings(rng)
    now = [100.0]
    core = make_core(Failing if rng.random() < 0.3 else FakeExecutor, **settings)
    core.core._clock = core.core._stepper._clock = lambda: now[0]
    asked: dict[str, Any] = {}
    for number in range(rng.randint(1, 6)):
        width = rng.choice([0, 1, 2, 4, 7])
        sampling: dict[str, Any] = {"max_tokens": rng.choice([1, 2, 9, 14])}
        if width:
            sampling |= {
                "beam_width": width,
                "n": rng.randint(1, width),
                "length_penalty": rng.choice([-3.0, 0.0, 1.0, 2.0]),
            }
        else:
            sampling["n"] = rng.choice([1, 1, 3])
            sampling["logprobs"] = rng.choice([-1, 2])
        constrained = rng.random() < 0.3
        if constrained:
            sampling["max_tokens"] = 30
        name = f"r{number}"
        prompt = PROMPT if rng.random() < 0.6 else f"page {number}"
        asked[name] = request_of(
            name,
            prompt,
            grammar=grammar[0] if constrained else None,
            timeout_s=rng.choice([0.0, 0.0, 3.0]),
            salt=rng.choice(["", "t"]),
            **sampling,
        )
    fates = {name: rng.choice(["", "", "", "cancel", "deadline"]) for name in asked}
    waiting = list(asked)
    for step in itertools.count():
        assert step < 5000
        if waiting and rng.random() < 0.5:
            name = waiting.pop(0)
            core.handle(Submit("bytes-1", [asked[name]]))
            if asked[name].grammar is not None:
                core.handle(GrammarTable(*grammar))
        if rng.random() < 0.1:
            for name, fate in fates.items():
                if fate == "cancel" and name not in waiting:
                    core.handle(Cancel([name]))
                if fate == "deadline":
                    now[0] += 0.5
        core.step()
        if not waiting and not core.core.busy:
            break
    check_idle(core)
    for name, request in asked.items():
        outputs = core.outputs[b"client", name]
        last = outputs[-1]
        assert last.ends_request
        finishes = {output.finish for output in outputs if output.finish is not None}
        if finishes & {"cancelled", "deadline"}:
            assert fates[name] or request.timeout_s
        elif finishes == {"error"}:
            assert last.reason == "overloaded", last
        elif request.sampling.beam_width:
            width = request.sampling.beam_width
            prompt = list(memoryview(request.token_ids).cast("i"))
            plain = plain_search(
                prompt,
                width,
                request.sampling.max_tokens,
                request.sampling.length_penalty,
                RECORDS if request.grammar else None,
            )
            assert_same(results(core, name), plain[: request.sampling.n])
