"""End to end: whatever the scheduler's switches, the same requests get the same tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from pagemill.engine.config import POLICIES, EngineConfig
from pagemill.engine.protocol import GrammarTable, Request, Submit

from .conftest import CoreHarness

Make = Callable[..., Any]

CACHE = [True, False]
CHUNKED = [True, False]
SPECULATION = ["off", "auto"]
STEPS = [1, 4]
LOOK_AHEAD = [False, True]


@pytest.fixture(scope="module")
def record_grammar() -> tuple[str, bytes]:
    from pagemill.schemas.compiler import compile

    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 10},
            "kind": {"enum": ["paper", "plastic"]},
            "count": {"type": ["integer", "null"], "maximum": 99999, "minimum": 0},
        },
        "required": ["title", "kind", "count"],
        "additionalProperties": False,
    }
    compiled = compile(schema, timeout_s=30.0)
    return compiled.hash, compiled.table


def requests_of(request_of: Make, grammar: str) -> list[Request]:
    shared = list(range(1, 38))
    requests = []
    for i in range(9):
        request = request_of(
            f"r{i}",
            shared[: 37 - i % 3] + [100 + i % 2] * (5 * i),
            grammar=grammar if i % 3 else None,
            max_tokens=(30, 70, 45)[i % 3],
            temperature=float(i % 2),
            seed=i,
            stop_token_ids=(98, 99, 100) if i % 4 == 3 else (),
            n=3 if i in (4, 5) else 1,
            salt="tenant" if i == 7 else "",
        )
        requests.append(
            msgspec.structs.replace(
                request,
                priority=i % 3,
                tenant=f"t{i % 2}",
                timeout_s=1e6 if i % 2 else 0.0,
                tag=f"schema-{i % 2}",
                page=b"# paper\nkind: plastic\ncount: 12\n",
            )
        )
    return requests


def answers(core: CoreHarness, requests: list[Request], grammar: tuple[str, bytes]) -> Any:
    core.handle(Submit("bytes-1", requests[:6]))
    core.handle(GrammarTable(*grammar))
    for _ in range(5):
        core.step()
    core.handle(Submit("bytes-1", requests[6:]))
    core.run()
    stats = core.core.stats()
    assert stats.free_blocks == stats.total_blocks
    found = {}
    for request in requests:
        outputs = core.outputs[b"client", request.request_id]
        for sample in range(request.sampling.n):
            own = [output for output in outputs if output.sample == sample]
            tokens = [token for output in own for token in output.token_ids]
            assert own[-1].finish in ("stop", "length")
            usage = own[-1].usage
            found[request.request_id, sample] = (
                tokens, own[-1].finish, usage.completion_tokens, usage.closed_early
            )  # fmt: skip
    return found


def harness(**settings: Any) -> CoreHarness:
    return CoreHarness(EngineConfig(model="fake", max_num_seqs=5, **settings))


@pytest.fixture(scope="module")
def asked(request_of: Make, record_grammar: tuple[str, bytes]) -> Any:
    """Requests, and the answers with every switch off and room for all."""
    requests = requests_of(request_of, record_grammar[0])
    plain = harness(
        enable_prefix_caching=False,
        enable_chunked_prefill=False,
        max_num_batched_tokens=1024,
        speculation="off",
    )
    return requests, answers(plain, requests, record_grammar)


def combinations() -> list[tuple[Any, ...]]:
    found = itertools.product(CACHE, CHUNKED, SPECULATION, STEPS, LOOK_AHEAD, POLICIES)
    # Drafts follow from the step before: with look-ahead they are refused, see test_config.
    return [one for one in found if not (one[2] == "auto" and one[4])]


@pytest.mark.parametrize(
    ("cache", "chunked", "speculation", "steps", "look_ahead", "policy"), combinations()
)
def test_switches_do_not_change_answers(
    asked: Any, record_grammar: tuple[str, bytes], cache: bool, chunked: bool, speculation: str,
    steps: int, look_ahead: bool, policy: str,
) -> None:  # fmt: skip
    requests, expected = asked
    core = harness(
        enable_prefix_caching=cache,
        enable_chunked_prefill=chunked,
        max_num_batched_tokens=24 if chunked else 1024,
        long_prefill_token_threshold=16 if chunked else 0,
        max_num_partial_prefills=2,
        speculation=speculation,
        num_scheduler_steps=steps,
        async_scheduling=look_ahead,
        scheduling_policy=policy,
        num_blocks=12,  # few enough for preemptions
    )
    assert answers(core, requests, record_grammar) == expected


def test_the_settings_meet_what_is_hard(asked: Any, record_grammar: tuple[str, bytes]) -> None:
    """The test above is worth something only if what it switches on is used."""
    requests, _ = asked
    core = harness(num_blocks=12, max_num_batched_tokens=24, num_scheduler_steps=4)
    answers(core, requests, record_grammar)
    counters = core.core.stats().counters
    for name in (
        "num_preemptions", "prefix_cache_hits", "scheduler_drafts_accepted", "scheduler_forks",
        "scheduler_blocks_copied", "scheduler_prefill_chunks",
    ):  # fmt: skip
        assert counters[name] > 0, name
    assert counters["scheduler_rows"] < counters["scheduler_scheduled_tokens"]
    by_schema = core.core.stats().prefix_cache
    assert set(by_schema) == {"schema-0", "schema-1"}
    assert sum(hits for _, hits in by_schema.values()) == counters["prefix_cache_hits"]
    assert sum(asked for asked, _ in by_schema.values()) == counters["prefix_cache_queries"]


def test_several_passes_take_fewer_steps(asked: Any, record_grammar: tuple[str, bytes]) -> None:
    requests, _ = asked
    steps = {}
    for passes in (1, 8):
        core = harness(num_scheduler_steps=passes, speculation="off")
        answers(core, requests, record_grammar)
        steps[passes] = core.core.stats().counters["steps"]
    assert steps[8] < steps[1] / 3
