"""What a scheduler refuses."""

from __future__ import annotations

import numpy as np
import pytest
from pagemill import _core

from .stepping import SIXTEEN, one_each, pair


def test_outcome_that_does_not_fit_changes_nothing() -> None:
    it = pair()
    it.add(1, SIXTEEN, max_tokens=4)
    plan = it.plan(0.0)
    one, none = np.ones(1, np.int32), np.zeros(1, np.uint8)
    with pytest.raises(ValueError, match="more tokens"):
        it.native.commit(plan, np.ones(2, np.int32), np.array([2], np.int32), none)
    with pytest.raises(ValueError, match="add up"):
        it.native.commit(plan, np.ones(2, np.int32), one, none)
    with pytest.raises(ValueError, match="one element"):
        it.native.commit(plan, one, np.ones(2, np.int32), none)
    with pytest.raises(ValueError, match="negative"):
        it.native.commit(plan, -one, one, none)
    with pytest.raises(RuntimeError, match="outstanding"):
        it.native.plan(0.0)
    it.compare()
    assert it.commit(one_each(plan)) == [(1, [1], 0)]
    with pytest.raises(RuntimeError, match="oldest"):
        it.native.commit(plan, one, one, none)


def test_row_without_a_token_is_sampled_again() -> None:
    it = pair()
    it.add(1, SIXTEEN, max_tokens=4)
    it.plan(0.0)
    assert it.commit([([], False)]) == []
    plan = it.plan(0.0)
    assert (plan.token_ids.tolist(), plan.sampled.tolist()) == ([16], [1])


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_blocks": 0},
        {"block_size": 0},
        {"max_num_seqs": 0},
        {"max_num_seqs": 65},
        {"enable_chunked_prefill": False, "max_model_len": 65},
        {"watermark_blocks": 16},
        {"policy": "random"},
        {"max_outstanding_plans": 3},
        {"num_scheduler_steps": 0},
        {"max_waiting_requests": 0},
    ],
)
def test_sizes_that_cannot_be_served_are_refused(wrong: dict[str, int | bool | str]) -> None:
    sizes = {"num_blocks": 16, "max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 64}
    _core.Scheduler(_core.SchedulerConfig(**sizes))
    with pytest.raises(ValueError, match="max_model_len" if len(wrong) > 1 else next(iter(wrong))):
        _core.Scheduler(_core.SchedulerConfig(**(sizes | wrong)))  # type: ignore[arg-type]


def test_few_prompts_are_in_their_midst_at_a_time() -> None:
    def most_in_midst(limit: int) -> int:
        it = pair(
            num_blocks=64,
            max_num_batched_tokens=16,
            long_prefill_token_threshold=4,
            max_partial_prefills=limit,
        )
        for number in range(4):
            it.add(number, [100 * (number + 1) + n for n in range(20)], max_tokens=1)
        most = ended = 0
        while ended < 4:
            plan = it.plan(0.0)
            most = max(most, int((plan.sampled == 0).sum()))
            ended += len(it.commit(one_each(plan)))
        return most

    assert (most_in_midst(1), most_in_midst(2), most_in_midst(0)) == (1, 2, 4)
