"""Mistakes that prefix caches are known to make, one test each."""

from __future__ import annotations

import numpy as np
import pytest
from pagemill import _core

from .stepping import SIXTEEN, computed_tokens, one_each, pair, step


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


def test_cancel_before_a_step_that_fails_leaves_nothing_in_the_cache() -> None:
    it = pair()
    it.add(1, SIXTEEN, max_tokens=1)
    it.plan(0.0)
    it.cancel(1)
    it.abandon()
    it.add(2, SIXTEEN, max_tokens=1)
    assert computed_tokens(it.plan(0.0)) == [16]


def test_tokens_of_a_step_in_flight_are_not_cached_before_they_are_known() -> None:
    it = pair(max_outstanding_plans=2)
    it.add(1, SIXTEEN[:6], max_tokens=20)
    first = it.plan(0.0)
    ahead = it.plan(0.0)
    it.commit(one_each(first, token=7))
    it.add(2, [*SIXTEEN[:6], 7, 8, 9], max_tokens=1)
    third = it.plan(0.0)
    # It completes the block of 5 6 7 and a token that `ahead` is still to bring.
    assert third.token_ids.tolist()[0] == -1
    assert third.positions.tolist()[0] == 7
    assert computed_tokens(third) == [1, 5]
    it.commit(one_each(ahead, token=8))


def test_fork_does_not_write_into_a_block_that_others_can_find() -> None:
    """A full block of a parent that has ended: nobody else holds it, but the index shows it."""
    it = pair()
    it.add(1, SIXTEEN[:6], max_tokens=20)
    for token in range(7, 13):
        step(it, token=token)
    it.fork(1, 2, keep=7)
    it.cancel(1)
    plan = it.plan(0.0)
    assert plan.token_ids.tolist() == [7]
    assert len(plan.copy_src) == 1
    it.commit(one_each(plan, token=99))
    it.add(3, SIXTEEN[:12], max_tokens=1)
    assert 4 in computed_tokens(it.plan(0.0))  # two blocks of the parent are there, unspoilt
