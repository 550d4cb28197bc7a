"""Several samples of one request: forks of its prompt, each drawing on its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pagemill.engine.errors import EngineReason
from pagemill.engine.protocol import Cancel, GrammarTable, Submit

Make = Callable[..., Any]
PROMPT = "a page of some length, so that it fills blocks"


def finals(core: Any, request_id: str) -> dict[int, Any]:
    outputs = core.outputs[b"client", request_id]
    return {output.sample: output for output in outputs if output.finish is not None}


def tokens(core: Any, request_id: str, sample: int) -> list[int]:
    outputs = core.outputs[b"client", request_id]
    return [t for output in outputs if output.sample == sample for t in output.token_ids]


@pytest.mark.parametrize("settings", [{}, {"async_scheduling": True, "speculation": "off"}])
def test_each_sample_is_what_its_seed_gives_alone(
    make_core: Make, request_of: Make, settings: dict[str, Any]
) -> None:
    core = make_core(**settings)
    core.handle(
        Submit("bytes-1", [request_of("all", PROMPT, max_tokens=30, temperature=1.0, seed=5, n=4)])
    )
    core.run()
    alone = make_core()
    singles = [
        request_of(f"s{i}", PROMPT, max_tokens=30, temperature=1.0, seed=5 + i) for i in range(4)
    ]
    alone.handle(Submit("bytes-1", singles))
    alone.run()
    for i in range(4):
        assert tokens(core, "all", i) == alone.tokens(f"s{i}")
        assert finals(core, "all")[i].finish == alone.last(f"s{i}").finish
    assert len({tuple(tokens(core, "all", i)) for i in range(4)}) == 4
    outputs = core.outputs[b"client", "all"]
    assert [output.ends_request for output in outputs].index(True) == len(outputs) - 1


def test_samples_share_the_prompt_s_blocks(make_core: Make, request_of: Make) -> None:
    core = make_core(enable_prefix_caching=False, speculation="off")
    core.handle(
        Submit("bytes-1", [request_of("a", [7] * 160, max_tokens=20, temperature=1.0, n=4)])
    )
    for _ in range(3):
        core.step()
    counters = core.core.stats().counters
    assert counters["scheduler_forks_shared"] == 3
    assert counters["scheduler_prompt_tokens"] == 160
    used = core.core.stats().total_blocks - core.core.stats().free_blocks
    assert used < 10 + 4 * 3
    core.run()
    assert [finals(core, "a")[i].usage.cached_tokens for i in range(4)] == [0, 159, 159, 159]


def test_samples_follow_their_grammar(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes]
) -> None:
    core = make_core()
    core.handle(
        Submit(
            "bytes-1",
            [request_of("a", grammar=grammar[0], max_tokens=40, temperature=1.0, n=6)],
        )
    )
    core.handle(GrammarTable(*grammar))
    core.run()
    records = [json.loads(bytes(tokens(core, "a", i))) for i in range(6)]
    assert len({json.dumps(record) for record in records}) > 1


def test_more_samples_than_slots_all_come(make_core: Make, request_of: Make) -> None:
    core = make_core(max_num_seqs=2)
    core.handle(
        Submit("bytes-1", [request_of("a", max_tokens=1, temperature=1.0, n=9, ignore_eos=True)])
    )
    core.run()
    assert sorted(finals(core, "a")) == list(range(9))


def test_cancelling_ends_all_samples(make_core: Make, request_of: Make) -> None:
    core = make_core(max_num_seqs=2)
    request = request_of("a", max_tokens=500, temperature=1.0, n=5, ignore_eos=True)
    core.handle(Submit("bytes-1", [request]))
    for _ in range(3):
        core.step()
    core.handle(Cancel(["a"]))
    core.run()
    assert {output.finish for output in finals(core, "a").values()} == {"cancelled"}
    assert sorted(finals(core, "a")) == list(range(5))
    assert not core.core.has_requests
    assert core.core.stats().free_blocks == core.core.stats().total_blocks


@pytest.mark.parametrize("n", [0, -1, 65])
def test_a_number_of_samples_that_is_not_served(make_core: Make, request_of: Make, n: int) -> None:
    core = make_core()
    core.handle(Submit("bytes-1", [request_of("a", n=n)]))
    assert core.last("a").reason == EngineReason.MESSAGE_INVALID
    assert "n must lie" in core.last("a").message


def test_samples_count_against_the_queue(make_core: Make, request_of: Make) -> None:
    core = make_core(max_waiting_requests=3)
    core.handle(Submit("bytes-1", [request_of("a", n=4), request_of("b", n=3, max_tokens=4)]))
    assert core.last("a").reason == EngineReason.OVERLOADED
    core.run()
    assert len(finals(core, "b")) == 3
