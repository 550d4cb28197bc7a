"""Mistakes that schedulers are known to make, one test each."""

from __future__ import annotations

import numpy as np
import pytest
from pagemill import _core
from pagemill._core import Finish, Refusal

from .plain_scheduler import Sizes
from .side_by_side import SideBySide

SIXTEEN = list(range(1, 17))


def pair(**sizes: int | bool | str) -> SideBySide:
    defaults: dict[str, int | bool | str] = {
        "num_blocks": 16,
        "block_size": 4,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 64,
        "max_model_len": 64,
    }
    return SideBySide(Sizes(**(defaults | sizes)))  # type: ignore[arg-type]


def one_each(plan: _core.Plan, token: int = 1) -> list[tuple[list[int], bool]]:
    return [([token], False)] * int(plan.sampled.sum())


def step(it: SideBySide, now: float = 0.0, token: int = 1) -> list[tuple[int, list[int], int]]:
    return it.commit(one_each(it.plan(now), token))


def computed_tokens(plan: _core.Plan) -> list[int]:
    return np.diff(plan.query_start).tolist()


# --- cache and blocks -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ({}, {}, 12),
        ({"salt": 1}, {"salt": 1}, 12),
        ({"salt": 1}, {"salt": 2}, 0),
        ({"salt": 1, "salt_from": 8}, {"salt": 2, "salt_from": 8}, 8),
        ({"salt": 1, "salt_from": 9}, {"salt": 2, "salt_from": 9}, 8),
        ({"salt": 1, "salt_from": 100}, {"salt": 2, "salt_from": 100}, 12),
        ({"adapter": 1}, {"adapter": 2}, 0),
    ],
)
def test_block_hash_includes_all_that_changes_kv(
    first: dict[str, int], second: dict[str, int], shared: int
) -> None:
    it = pair()
    it.add(1, SIXTEEN, max_tokens=1, **first)
    step(it)
    it.add(2, SIXTEEN, max_tokens=1, **second)
    assert computed_tokens(it.plan(0.0)) == [16 - shared]


def test_equal_hash_with_other_tokens_is_a_miss() -> None:
    index = _core.PrefixIndex(4, 2)
    a, b = np.array([1, 2], np.int32), np.array([1, 3], np.int32)
    assert index.insert(0, (7, 7), a)
    assert index.find((7, 7), a) == 0
    assert index.find((7, 7), b) == -1
    assert index.find((7, 8), a) == -1  # the tokens agree, what stands before them doesn't
    assert not index.insert(1, (7, 7), b)
    assert index.check_integrity() == ""


def test_full_prefix_hit_computes_a_token() -> None:
    it = pair()
    it.add(1, SIXTEEN, max_tokens=1)
    step(it)
    it.add(2, SIXTEEN, max_tokens=1)
    plan = it.plan(0.0)
    assert computed_tokens(plan) == [4]
    assert plan.sampled.tolist() == [1]


def test_prefix_is_found_before_tokens_are_counted() -> None:
    """The budget would not hold the prompt, but holds what the cache leaves of it."""
    it = pair(max_num_batched_tokens=16, enable_chunked_prefill=False, max_model_len=16)
    it.add(1, SIXTEEN[:15], max_tokens=1)
    it.add(2, SIXTEEN[:15], max_tokens=1)
    plan = it.plan(0.0)
    assert computed_tokens(plan) == [15]
    it.commit(one_each(plan))
    assert computed_tokens(it.plan(0.0)) == [3]


def test_prefix_is_found_again_after_preemption() -> None:
    it = pair(num_blocks=6, max_model_len=24)
    it.add(1, SIXTEEN[:7], max_tokens=17)
    it.add(2, [40 + i for i in range(7)], max_tokens=17)
    while it.native.stats()["preemptions"] == 0:
        step(it)
    it.cancel(1)
    plan = it.plan(0.0)
    assert plan.started_ids.tolist() == [2]
    assert plan.positions[0] == 8  # two of its own blocks were still there


def test_drafts_are_not_cached_before_they_hold() -> None:
    it = pair()
    it.add(1, SIXTEEN[:3], max_tokens=20)
    step(it, token=4)
    it.propose(1, [5, 6, 7, 8, 9])
    plan = it.plan(0.0)
    assert plan.num_drafts.tolist() == [5]
    it.add(2, [1, 2, 3, 4, 5, 6, 7, 8, 9], max_tokens=1)
    it.commit([([5, 99], False)])  # one draft held
    assert computed_tokens(it.plan(0.0)) == [1, 5]  # the block of 5 6 7 8 isn't there to be found


def test_rejected_drafts_are_overwritten_in_place() -> None:
    it = pair()
    it.add(1, SIXTEEN[:3], max_tokens=20)
    step(it, token=4)
    it.propose(1, [5, 6, 7])
    drafted = it.plan(0.0).slot_mapping.tolist()
    it.commit([([5, 99], False)])
    plan = it.plan(0.0)
    assert plan.token_ids.tolist() == [99]
    assert plan.slot_mapping.tolist() == [drafted[2]]


def test_failed_step_leaves_nothing_in_the_cache() -> None:
    it = pair()
    it.add(1, SIXTEEN, max_tokens=1)
    it.add(2, SIXTEEN, max_tokens=1)
    assert computed_tokens(it.plan(0.0)) == [16, 4]  # the second shares what the first computes
    it.abandon()
    assert it.native.num_free_blocks() == 16
    assert computed_tokens(it.plan(0.0)) == [16, 4]


def test_second_copy_of_a_block_leaves_no_dangling_entry() -> None:
    """Two copies of one content: the end of either must not break the other's entry."""
    it = pair()
    it.add(1, SIXTEEN[:6], max_tokens=20)
    it.add(2, SIXTEEN[:7], max_tokens=20)
    step(it, token=7)
    step(it, token=8)
    assert it.plan(0.0).num_rows == 2  # both complete the block 5 6 7 8
    it.commit([([9], False)] * 2)
    it.cancel(2)
    it.add(3, SIXTEEN[:9], max_tokens=1)
    plan = it.plan(0.0)
    assert computed_tokens(plan)[-1] == 1
    it.commit(one_each(plan))
    it.cancel(1)
    it.add(4, SIXTEEN[:9], max_tokens=1)
    assert computed_tokens(it.plan(0.0)) == [1]


def test_leaves_are_evicted_before_roots() -> None:
    it = pair(num_blocks=6, max_model_len=24)
    it.add(1, SIXTEEN, max_tokens=1)
    step(it)  # four blocks are cached, two hold nothing
    it.add(2, [50 + i for i in range(12)], max_tokens=1)
    step(it)
    it.add(3, SIXTEEN, max_tokens=1)
    assert computed_tokens(it.plan(0.0)) == [4]  # the tail went, three blocks are left


def test_hit_blocks_in_the_free_list_are_not_counted_as_free() -> None:
    it = pair(num_blocks=4, max_model_len=17)
    it.add(1, SIXTEEN[:8], max_tokens=1)
    step(it)  # two of the four free blocks hold the prefix
    it.add(2, [70, 71, 72], max_tokens=9)
    step(it)
    it.add(3, SIXTEEN, max_tokens=1)  # needs four: the two hits and two more, where one is free
    assert it.plan(0.0).started_ids.tolist() == []


# --- preemption, abort, overlap ---------------------------------------------------------------


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
        it.propose(2, [7])
    it.cancel(1)
    plan = it.plan(0.0)
    assert plan.started_ids.tolist() == [2]
    assert plan.num_drafts.tolist() == [0]


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


# --- fairness, liveness -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens", "refusal"),
    [
        (32, 1, Refusal.NONE),
        (33, 1, Refusal.TOO_LONG),  # the cache holds 32
        (16, 17, Refusal.NONE),  # the last token needs no room
        (16, 18, Refusal.TOO_LONG),
        (0, 1, Refusal.EMPTY_PROMPT),
    ],
)
def test_request_that_can_never_fit_is_refused(
    prompt_len: int, max_tokens: int, refusal: int
) -> None:
    it = pair(num_blocks=8)
    assert it.add(1, [1] * prompt_len, max_tokens=max_tokens) == refusal
    for _ in range(40):
        plan = it.plan(0.0)
        if plan.num_rows == 0:
            break
        it.commit(one_each(plan))
    assert it.native.num_running() + it.native.num_waiting() == 0


def test_two_requests_too_large_for_the_cache_together_both_end() -> None:
    it = pair(num_blocks=8, max_model_len=33, enable_prefix_caching=False)
    it.add(1, [1] * 12, max_tokens=20)
    it.add(2, [2] * 12, max_tokens=20)
    finished = []
    for _ in range(80):
        finished += [id for id, _, finish in step(it) if finish == Finish.LENGTH]
        if len(finished) == 2:
            break
    assert finished == [1, 2]  # the first never gives way
    assert it.native.stats()["preemptions"] <= 3


def test_preempted_request_comes_before_newer_ones_of_its_class() -> None:
    it = pair(num_blocks=6, max_model_len=24, policy="priority", enable_prefix_caching=False)
    it.add(1, [1, 2, 3], max_tokens=20, arrival=0.0)
    it.add(2, [4, 5, 6], max_tokens=20, arrival=1.0)
    while it.native.stats()["preemptions"] == 0:
        step(it)
    it.add(3, [7, 8, 9], max_tokens=1, arrival=2.0)
    it.add(4, [7, 8, 9], max_tokens=1, arrival=3.0, priority=-5)
    it.cancel(1)
    assert it.plan(0.0).started_ids.tolist() == [4, 2, 3]


def test_long_request_in_front_is_not_overtaken() -> None:
    it = pair(num_blocks=8, max_model_len=33)
    it.add(1, [1] * 8, max_tokens=10)
    step(it)
    it.add(2, [2] * 28, max_tokens=1)
    it.add(3, [3], max_tokens=1)
    assert it.plan(0.0).started_ids.tolist() == []


def test_waiting_ages_a_request_past_higher_priorities() -> None:
    it = pair(policy="priority", ageing_s=10.0, max_num_seqs=1)  # type: ignore[arg-type]
    it.add(1, [1], max_tokens=1, priority=1, arrival=0.0)
    it.add(2, [2], max_tokens=1, priority=0, arrival=9.0)
    it.add(3, [3], max_tokens=1, priority=0, arrival=11.0)
    order = []
    for _ in range(3):
        plan = it.plan(12.0)
        order += plan.started_ids.tolist()
        it.commit(one_each(plan))
    assert order == [2, 1, 3]


def test_decoding_goes_on_beside_a_long_prompt() -> None:
    it = pair(max_num_batched_tokens=8)
    it.add(1, [1] * 40, max_tokens=4)
    it.add(2, [2], max_tokens=8)
    for _ in range(4):
        plan = it.plan(0.0)
        it.commit(one_each(plan))
    it.add(3, [3] * 30, max_tokens=4, priority=-1)
    for _ in range(5):
        plan = it.plan(0.0)
        running = it.plain.running()
        decoding = [r.slot for r in running if len(r.tokens) > r.prompt_len]
        assert set(decoding) <= set(plan.slots.tolist())
        it.commit(one_each(plan))


def test_fair_share_by_tokens_not_by_requests() -> None:
    it = pair(policy="fair", fair_quantum=8, max_num_seqs=1, num_blocks=64, max_waiting_requests=64)
    for i in range(12):
        it.add(i, [1] * 16, max_tokens=1, tenant=1)
    for i in range(12, 60):
        it.add(i, [2] * 4, max_tokens=1, tenant=2)
    shares = {1: 0, 2: 0}
    for _ in range(25):
        plan = it.plan(0.0)
        for id in plan.started_ids.tolist():
            shares[1 if id < 12 else 2] += 16 if id < 12 else 4
        it.commit(one_each(plan))
    assert abs(shares[1] - shares[2]) <= 32


def test_prefix_group_runs_together_but_not_for_ever() -> None:
    it = pair(policy="prefix", group_size=3, max_num_seqs=1)
    prefixes = {"a": [1, 2, 3, 4, 5], "b": [6, 7, 8, 9, 5]}
    for id, name in enumerate("abababaa"):
        it.add(id, prefixes[name], max_tokens=1)
    order = ""
    for _ in range(8):
        plan = it.plan(0.0)
        order += "".join("abababaa"[id] for id in plan.started_ids.tolist())
        it.commit(one_each(plan))
    assert order == "aaabbbaa"


def test_deadline_ends_waiting_and_running_requests() -> None:
    it = pair(max_num_seqs=1)
    it.add(1, [1, 2], max_tokens=20, deadline=5.0)
    it.add(2, [1, 2], max_tokens=20, deadline=3.0)
    step(it, now=2.9)
    plan = it.plan(3.0)
    assert (plan.ended_ids.tolist(), plan.ended_reasons.tolist()) == ([2], [Finish.DEADLINE])
    it.commit(one_each(plan))
    plan = it.plan(5.0)
    assert plan.ended_ids.tolist() == [1]
    assert plan.num_rows == 0
    assert it.native.num_free_blocks() == 16


def test_requests_of_a_client_that_is_gone_end_with_its_lease() -> None:
    it = pair(max_num_seqs=2)
    it.renew(7, 10.0)
    for id, client in ((1, 7), (2, 8), (3, 7)):
        it.add(id, [id, 2], max_tokens=20, client=client)
    step(it, now=9.0)
    plan = it.plan(10.0)
    assert sorted(plan.ended_ids.tolist()) == [1, 3]
    assert plan.slots.tolist() == [1]
    assert it.native.stats()["leases_expired"] == 1


def test_queue_is_bounded_in_requests_and_in_tokens() -> None:
    it = pair(max_waiting_requests=2, max_waiting_tokens=10)
    assert it.add(1, [1] * 8, max_tokens=1) == Refusal.NONE
    assert it.add(2, [1] * 3, max_tokens=1) == Refusal.QUEUE_TOKENS
    assert it.add(1, [1] * 2, max_tokens=1) == Refusal.DUPLICATE_ID
    assert it.add(2, [1] * 2, max_tokens=1) == Refusal.NONE
    assert it.add(3, [1], max_tokens=1) == Refusal.QUEUE_REQUESTS


def test_equal_calls_give_equal_plans() -> None:
    def told() -> list[list[int]]:
        it = pair(policy="fair", num_blocks=8, max_model_len=32)
        seen = []
        for id in range(30):
            it.add(id * 7919 % 101, [id % 3] * (1 + id % 9), max_tokens=5, tenant=id % 4)
            plan = it.plan(float(id))
            seen.append(plan.slot_mapping.tolist() + plan.started_ids.tolist())
            it.commit(one_each(plan))
        return seen

    assert told() == told()


# --- forks ------------------------------------------------------------------------------------


def test_fork_copies_the_last_block_once_and_shares_the_rest() -> None:
    it = pair()
    it.add(1, SIXTEEN[:6], max_tokens=8)
    step(it)
    assert it.fork(1, 2, 30) == Refusal.NONE
    plan = it.plan(0.0)
    assert len(plan.copy_src) == 1
    assert plan.token_ids.tolist() == [1, 30]
    assert it.native.blocks_of(1)[0] == it.native.blocks_of(2)[0]
    assert it.native.blocks_of(1)[1] != it.native.blocks_of(2)[1]
    it.commit(one_each(plan))
    assert len(it.plan(0.0).copy_src) == 0


def test_fork_outlives_its_parent() -> None:
    it = pair()
    it.add(1, SIXTEEN[:6], max_tokens=8)
    step(it)
    it.fork(1, 2, -1)
    it.cancel(1)
    plan = it.plan(0.0)
    assert plan.started_ids.tolist() == [2]
    assert len(plan.copy_src) == 0  # nobody else is left to disturb
    assert plan.table_blocks.tolist() == it.native.blocks_of(2)


def test_fork_of_a_failed_step_is_told_again() -> None:
    it = pair()
    it.add(1, SIXTEEN[:6], max_tokens=8)
    step(it)
    it.fork(1, 2, -1)
    told = it.plan(0.0).started_ids.tolist()
    it.abandon()
    assert it.plan(0.0).started_ids.tolist() == told == [2]


def test_commit_gives_up_blocks_row_by_row() -> None:
    it = pair(num_blocks=6)
    it.add(1, [30, 31, 32], max_tokens=8)
    it.add(2, [1, 2, 3, 4, 5], max_tokens=8)
    it.add(3, [20, 21, 22, 23], max_tokens=8)
    step(it)
    it.fork(2, 4, last_token=9)
    it.propose(1, [7])
    plan = it.plan(0.0)
    # 1 reserves a block for its draft, 2 copies the block that it shares with 4, and for want of
    # another block for 3, 4 gives way: 2's row is the last to hold the block that was shared.
    assert plan.slots.tolist() == [0, 1]
    assert plan.num_drafts.tolist() == [1, 0]
    (shared,) = plan.copy_src.tolist()
    reserved = it.native.blocks_of(1)[1]
    it.commit([([], False), ([1], False)])
    # What nobody can look up is handed out next, the newest first.
    assert it.native.free_list()[:2] == [shared, reserved]


# --- contracts --------------------------------------------------------------------------------


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
