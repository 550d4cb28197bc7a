"""Every decision of the scheduler is counted, and the counters move with what happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from pagemill._core import Scheduler, SchedulerConfig
from pagemill.engine.config import POLICIES
from pagemill.engine.protocol import Cancel, Submit

Make = Callable[..., Any]
RENAMED = {
    "preemptions": "num_preemptions",
    "prefix_queries": "prefix_cache_queries",
    "prefix_hits": "prefix_cache_hits",
}


def counted(core: Any, *requests: Any) -> dict[str, int]:
    core.handle(Submit("bytes-1", list(requests)))
    core.run()
    counters: dict[str, int] = core.core.stats().counters
    return counters


def test_all_of_the_scheduler_s_counters_are_told(make_core: Make) -> None:
    told = make_core().core.stats().counters
    own = Scheduler(SchedulerConfig(num_blocks=1, max_num_seqs=1)).stats()
    assert {RENAMED.get(name, f"scheduler_{name}") for name in own} <= set(told)


@pytest.mark.parametrize("policy", POLICIES)
def test_starts_and_ends(make_core: Make, request_of: Make, policy: str) -> None:
    core = make_core(scheduling_policy=policy)
    requests = [request_of(f"r{i}", max_tokens=4, ignore_eos=True) for i in range(3)]
    counters = counted(core, *requests)
    assert counters["scheduler_requests_added"] == counters["scheduler_requests_started"] == 3
    assert counters["scheduler_finished_length"] == counters["requests_finished_length"] == 3
    assert counters["scheduler_output_tokens"] == counters["generation_tokens"] == 12


def test_forks(make_core: Make, request_of: Make) -> None:
    counters = counted(make_core(), request_of("a", max_tokens=4, temperature=1.0, n=3))
    assert counters["scheduler_forks"] == counters["scheduler_forks_shared"] == 2
    assert counters["scheduler_blocks_copied"] > 0


def test_preemptions(make_core: Make, request_of: Make) -> None:
    core = make_core(num_blocks=8, max_num_seqs=4, enable_prefix_caching=False)
    requests = [request_of(f"r{i}", [i + 1] * 20, max_tokens=40, ignore_eos=True) for i in range(4)]
    counters = counted(core, *requests)
    assert counters["num_preemptions"] > 0
    assert counters["scheduler_requests_resumed"] == counters["num_preemptions"]


def test_tokens_that_look_ahead_discards(make_core: Make, request_of: Make) -> None:
    """A request that is cancelled while its step runs: what the step brings is for nobody."""
    core = make_core(async_scheduling=True, speculation="off")
    core.handle(Submit("bytes-1", [request_of("a", max_tokens=90, ignore_eos=True)]))
    for _ in range(3):
        core.step()
    core.handle(Cancel(["a"]))
    core.run()
    assert core.last("a").finish == "cancelled"
    assert core.core.stats().counters["scheduler_tokens_discarded"] > 0


def test_prefix_hits_by_schema(make_core: Make, request_of: Make) -> None:
    core = make_core()
    for name in ("first", "second"):
        request = request_of(name, [7] * 40, max_tokens=2)
        counted(core, msgspec.structs.replace(request, tag="offers"))
    stats = core.core.stats()
    assert stats.prefix_cache["offers"] == (80, 32)
    assert stats.counters["prefix_cache_hits"] == 32
