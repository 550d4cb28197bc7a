"""Mistakes with preemption, cancellation and steps that run ahead, one test each."""

from __future__ import annotations

from pagemill._core import Finish

from .stepping import SIXTEEN, one_each, pair, step


def test_preempted_request_keeps_its_output_and_computes_it_again() -> None:
    it = pair(num_blocks=6, max_model_len=24, enable_prefix_caching=False)
    it.add(1, [1, 2, 3], max_tokens=20)
    it.add(2, [11, 12, 13], max_tokens=20)
    while it.native.stats()["preemptions"] == 0:
        step(it, token=5)
    it.cancel(1)
    plan = it.plan(0.0)
    assert plan.started_ids.tolist() == [2]
    tokens = plan.token_ids.tolist()
    assert tokens[:3] == [11, 12, 13]
    assert len(tokens) > 3
    assert set(tokens[3:]) == {5}


def test_drafts_do_not_outlive_a_preemption() -> None:
    it = pair(num_blocks=6, max_model_len=24, enable_prefix_caching=False)
    it.add(1, [1, 2, 3], max_tokens=20)
    it.add(2, [11, 12, 13], max_tokens=20)
    while it.native.stats()["preemptions"] == 0:
        plan = it.plan(0.0)
        it.commit(one_each(plan))
        if it.native.stats()["preemptions"] == 0:
            it.propose(2, [7])
    it.cancel(1)
    plan = it.plan(0.0)
    assert plan.started_ids.tolist() == [2]
    assert plan.num_drafts.tolist() == [0]


def test_drafts_wait_for_the_prompts_last_chunk() -> None:
    it = pair(num_blocks=8, max_model_len=32, max_num_batched_tokens=4, block_size=4)
    it.add(1, list(range(1, 7)), max_tokens=20)
    it.propose(1, [7, 8, 9])
    plan = it.plan(0.0)
    assert (plan.sampled.tolist(), plan.num_drafts.tolist()) == ([0], [0])
    it.commit([])
    plan = it.plan(0.0)
    assert (plan.sampled.tolist(), plan.num_drafts.tolist()) == ([1], [2])  # the budget's rest
    assert plan.token_ids.tolist() == [5, 6, 7, 8]
    it.commit([([7, 8, 5], False)])
    assert it.plan(0.0).positions.tolist() == [8]


def test_cancel_during_a_step_frees_nothing_before_it_is_over() -> None:
    it = pair()
    it.add(1, SIXTEEN, max_tokens=9)
    plan = it.plan(0.0)
    assert it.cancel(1)
    assert not it.cancel(1)
    assert it.native.num_free_blocks() == 12
    assert it.commit(one_each(plan)) == []  # its token is dropped
    assert it.native.num_free_blocks() == 16
    last = it.plan(0.0)
    assert last.ended_ids.tolist() == [1]
    assert last.ended_reasons.tolist() == [Finish.CANCELLED]
    assert last.ended_slots.tolist() == [0]


def test_cancel_during_a_step_that_fails() -> None:
    it = pair()
    it.add(1, SIXTEEN, max_tokens=9)
    it.plan(0.0)
    it.cancel(1)
    it.abandon()
    assert it.native.num_free_blocks() == 16
    assert it.plan(0.0).ended_ids.tolist() == [1]


def test_token_after_the_end_is_dropped_when_a_step_ran_ahead() -> None:
    it = pair(max_outstanding_plans=2)
    it.add(1, SIXTEEN[:4], max_tokens=9, stops=(2,))
    first = it.plan(0.0)
    ahead = it.plan(0.0)
    assert ahead.token_ids.tolist() == [-1]
    assert it.commit(one_each(first, token=2)) == [(1, [2], Finish.STOP)]
    assert it.native.num_free_blocks() < 16  # the step that ran ahead still writes
    assert it.commit(one_each(ahead)) == []
    assert it.native.num_free_blocks() == 16
    assert it.native.stats()["output_tokens"] == 1


def test_no_step_runs_ahead_of_a_certain_end() -> None:
    it = pair(max_outstanding_plans=2)
    it.add(1, SIXTEEN[:4], max_tokens=1)
    it.plan(0.0)
    assert it.plan(0.0).num_rows == 0


def test_passes_after_the_end_are_cut_off_and_their_blocks_come_back() -> None:
    it = pair(num_scheduler_steps=8)
    it.add(1, SIXTEEN[:4], max_tokens=20, stops=(9,))
    step(it)
    plan = it.plan(0.0)
    assert plan.passes.tolist() == [8]
    assert it.commit([([3, 9, 3, 3, 3, 3, 3, 3], False)]) == [(1, [3, 9], Finish.STOP)]
    assert it.native.num_free_blocks() == 16
    it.add(2, SIXTEEN[:4], max_tokens=4)
    step(it)
    assert it.plan(0.0).passes.tolist() == [3]  # never beyond max_tokens


def test_blocks_of_passes_that_were_not_run_come_back() -> None:
    it = pair(num_scheduler_steps=8)
    it.add(1, SIXTEEN[:4], max_tokens=20)
    step(it)
    it.plan(0.0)
    assert it.native.num_free_blocks() == 13
    it.commit([([3], False)])
    assert it.native.num_free_blocks() == 14


def test_row_that_may_not_run_several_passes_runs_one() -> None:
    it = pair(num_scheduler_steps=8)
    it.add(1, SIXTEEN[:4], max_tokens=20, multi_step=False)
    step(it)
    assert it.plan(0.0).passes.tolist() == [1]


def test_drafts_stay_within_the_model_length() -> None:
    it = pair(max_model_len=10)
    it.add(1, SIXTEEN[:7], max_tokens=3)
    step(it)
    it.propose(1, [1, 2, 3, 4])
    plan = it.plan(0.0)
    assert plan.num_drafts.tolist() == [1]  # with the bonus token that is all there is room for
    assert it.commit([([1, 2], False)]) == [(1, [1, 2], Finish.LENGTH)]


def test_prompt_chunk_before_the_last_samples_nothing() -> None:
    it = pair(max_num_batched_tokens=10)
    it.add(1, SIXTEEN, max_tokens=2)
    plan = it.plan(0.0)
    assert plan.sampled.tolist() == [0]
    assert it.commit([]) == []
    plan = it.plan(0.0)
    assert plan.sampled.tolist() == [1]
    assert plan.positions.tolist() == list(range(10, 16))


def test_late_result_of_an_old_run_is_discarded_by_its_epoch() -> None:
    it = pair(num_scheduler_steps=4, max_outstanding_plans=2)
    it.add(1, SIXTEEN[:4], max_tokens=20)
    first = it.plan(0.0)
    it.commit(one_each(first))
    it.plan(0.0)
    ahead = it.plan(0.0)  # counts on four tokens of the plan before it
    assert it.commit([([5, 6], False)]) == [(1, [5, 6], 0)]
    again = it.plan(0.0)
    assert again.token_ids.tolist() == [6]
    assert again.positions.tolist() == [6]
    assert it.commit([([7] * int(ahead.passes[0]), False)]) == []
    assert it.native.stats()["tokens_discarded"] == 4
    assert it.commit([([8, 9, 10, 11], False)]) == [(1, [8, 9, 10, 11], 0)]


def test_passes_end_where_the_grammar_does() -> None:
    it = pair(num_scheduler_steps=8)
    it.add(1, SIXTEEN[:4], max_tokens=20)
    step(it)
    it.plan(0.0)
    assert it.commit([([3, 4, 5], True)]) == [(1, [3, 4, 5], Finish.STOP)]
    assert it.native.num_free_blocks() == 16


def test_passes_end_at_max_tokens() -> None:
    it = pair(num_scheduler_steps=8)
    it.add(1, SIXTEEN[:4], max_tokens=4)
    step(it)
    assert it.plan(0.0).passes.tolist() == [3]
    assert it.commit([([3, 3, 3], False)]) == [(1, [3, 3, 3], Finish.LENGTH)]


def test_rows_with_drafts_run_one_pass_and_others_several() -> None:
    it = pair(num_scheduler_steps=4)
    it.add(1, SIXTEEN[:4], max_tokens=20)
    it.add(2, SIXTEEN[:4], max_tokens=20)
    step(it)
    it.propose(1, [1, 2])
    plan = it.plan(0.0)
    assert plan.passes.tolist() == [1, 4]
    assert plan.num_drafts.tolist() == [2, 0]


def test_look_ahead_waits_for_drafts_in_flight() -> None:
    """How many of them hold is open, so where the next step starts is open, too."""
    it = pair(max_outstanding_plans=2)
    it.add(1, SIXTEEN[:4], max_tokens=20)
    step(it)
    it.propose(1, [1, 2])
    assert it.plan(0.0).num_rows == 1
    assert it.plan(0.0).num_rows == 0
    it.commit([([1, 5], False)])
    assert it.plan(0.0).token_ids.tolist() == [5]


def test_lease_ends_between_launch_and_commit() -> None:
    it = pair(max_outstanding_plans=2)
    it.add(1, SIXTEEN[:4], max_tokens=20, client=3)
    it.renew(3, 5.0)
    first = it.plan(0.0)
    last = it.plan(5.0)
    assert last.ended_reasons.tolist() == [Finish.LEASE]
    assert it.native.num_free_blocks() < 16
    assert it.commit(one_each(first)) == []
    assert it.native.num_free_blocks() == 16
