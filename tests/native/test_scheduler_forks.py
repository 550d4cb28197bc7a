"""Forks: shared blocks, copies, beams."""

from __future__ import annotations

import pytest
from pagemill._core import Refusal

from .stepping import SIXTEEN, computed_tokens, one_each, pair, step


def test_fork_copies_the_last_block_once_and_shares_the_rest() -> None:
    it = pair()
    it.add(1, SIXTEEN[:6], max_tokens=8)
    step(it)
    assert it.fork(1, 2, last_token=30) == Refusal.NONE
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
    it.fork(1, 2)
    it.cancel(1)
    plan = it.plan(0.0)
    assert plan.started_ids.tolist() == [2]
    assert len(plan.copy_src) == 0  # nobody else is left to disturb
    assert plan.table_blocks.tolist() == it.native.blocks_of(2)


def test_fork_of_a_failed_step_is_told_again() -> None:
    it = pair()
    it.add(1, SIXTEEN[:6], max_tokens=8)
    step(it)
    it.fork(1, 2)
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


def test_fork_from_the_prompt_computes_its_last_token_alone() -> None:
    it = pair()
    it.add(1, SIXTEEN[:10], max_tokens=8)
    step(it, token=50)
    step(it, token=51)
    assert it.fork(1, 2, keep=10) == Refusal.NONE
    plan = it.plan(0.0)
    assert plan.token_ids.tolist() == [51, 10]  # the child samples its own first token
    assert plan.positions.tolist() == [11, 9]
    assert it.native.blocks_of(1)[:2] == it.native.blocks_of(2)[:2]
    assert len(plan.copy_src) == 1


def test_fork_of_a_parent_without_so_many_tokens_is_refused() -> None:
    it = pair()
    it.add(1, SIXTEEN[:10], max_tokens=8)
    for keep in (0, 11):
        with pytest.raises(ValueError, match="keep"):
            it.native.fork(1, 2, keep=keep)
    it.compare()


def test_fork_without_a_slot_queues_and_shares_through_the_cache() -> None:
    it = pair(max_num_seqs=1)
    it.add(1, SIXTEEN[:10], max_tokens=2)
    step(it, token=50)
    assert it.fork(1, 2, keep=10) == Refusal.NONE
    assert it.native.num_waiting() == 1
    step(it)
    plan = it.plan(0.0)
    assert plan.started_ids.tolist() == [2]
    assert computed_tokens(plan) == [2]


def test_forks_were_admitted_with_their_parent() -> None:
    it = pair(max_num_seqs=1, max_waiting_requests=1, max_waiting_tokens=10)
    it.add(1, SIXTEEN[:10], max_tokens=2)
    step(it)
    assert it.fork(1, 2) == Refusal.NONE
    assert it.fork(1, 3) == Refusal.NONE
    assert it.add(4, [1], max_tokens=1) == Refusal.QUEUE_REQUESTS
    assert it.add(5, [1] * 11, max_tokens=1, admitted=True) == Refusal.NONE
    assert it.fork(1, 2) == Refusal.DUPLICATE_ID
    assert it.fork(9, 3) == Refusal.UNKNOWN_PARENT
