"""Mistakes that keep requests waiting or turn them round for ever, one test each."""

from __future__ import annotations

import pytest
from pagemill._core import Finish, Refusal

from .stepping import one_each, pair, step


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
    assert plan.ended_reasons.tolist() == [Finish.LEASE] * 2
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
