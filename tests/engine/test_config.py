"""What an engine refuses to be told."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from pagemill.engine.config import POLICIES, EngineConfig, add_arguments, from_arguments
from pagemill.engine.errors import EngineError, EngineReason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"async_scheduling": True}, "--async-scheduling: .*--speculation off"),
        ({"num_scheduler_steps": 0}, "--num-scheduler-steps: must lie in 1 to 64"),
        ({"num_scheduler_steps": 65}, "--num-scheduler-steps"),
        ({"tensor_parallel_size": 2}, "--tensor-parallel-size: .*only the value 1"),
        ({"scheduling_policy": "random"}, "--scheduling-policy: 'random' is none of fcfs, "),
        ({"max_num_partial_prefills": -1}, "--max-num-partial-prefills"),
        ({"long_prefill_token_threshold": -1}, "--long-prefill-token-threshold"),
        ({"priority_ageing_s": -1.0}, "--priority-ageing-s"),
        ({"priority_ageing_s": float("nan")}, "--priority-ageing-s"),
        ({"fair_quantum": 0}, "--fair-quantum"),
        ({"prefix_group_size": 0}, "--prefix-group-size"),
        ({"instruction_set": "mmx"}, "--instruction-set: 'mmx' is none of auto, portable, "),
        ({"max_num_batched_tokens": 63}, "--max-num-batched-tokens"),
    ],
)
def test_what_cannot_be_served_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message) as raised:
        EngineConfig(**changes).check()
    assert raised.value.reason == EngineReason.CONFIG_INVALID


@pytest.mark.parametrize("policy", POLICIES)
def test_flags_reach_the_config(policy: str) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    flags = [
        "--scheduling-policy", policy, "--num-scheduler-steps", "4", "--async-scheduling",
        "--speculation", "off", "--max-num-partial-prefills", "2", "--fair-quantum", "100",
        "--long-prefill-token-threshold", "64", "--no-enable-prefix-caching",
    ]  # fmt: skip
    config = from_arguments(parser.parse_args(flags))
    assert config.scheduling_policy == policy
    assert (config.num_scheduler_steps, config.async_scheduling) == (4, True)
    assert (config.max_num_partial_prefills, config.fair_quantum) == (2, 100)
    assert not config.enable_prefix_caching
