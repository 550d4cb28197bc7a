"""Drives the C++ scheduler and the plain one with the same calls, and compares all they show."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from pagemill import _core

from .plain_scheduler import PlainScheduler, Sizes

PLAN_ARRAYS = (
    "slots query_start context_lens sampled num_drafts passes token_ids positions slot_mapping "
    "started_slots started_ids ended_slots table_slots table_indices table_blocks "
    "copy_src copy_dst ended_ids ended_reasons"
).split()


def ids(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int32)


class SideBySide:
    """One scheduler in two forms. Each method does one call on both and checks that they agree."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.plain = PlainScheduler(sizes)
        self.native = _core.Scheduler(_core.SchedulerConfig(**dataclasses.asdict(sizes)))
        self.plans: list[_core.Plan] = []

    def add(
        self,
        id: int,
        tokens: list[int],
        *,
        max_tokens: int,
        stops: tuple[int, ...] = (),
        deadline: float = math.inf,
        **more: int | float | bool,
    ) -> int:
        refusal = self.native.add(
            id,
            ids(tokens),
            max_tokens=max_tokens,
            stop_token_ids=stops,
            deadline=deadline,
            **more,  # type: ignore[arg-type]
        )
        expected = self.plain.add(
            id, tokens, max_tokens=max_tokens, stops=stops, deadline=deadline, **more
        )
        assert refusal == expected
        self.compare()
        return refusal

    def cancel(self, id: int) -> bool:
        cancelled = self.native.cancel(id)
        assert cancelled == self.plain.cancel(id)
        self.compare()
        return cancelled

    def fork(self, parent: int, child: int, keep: int = -1, last_token: int = -1) -> int:
        refusal = self.native.fork(parent, child, keep=keep, last_token=last_token)
        assert refusal == self.plain.fork(parent, child, keep, last_token)
        self.compare()
        return refusal

    def renew(self, client: int, until: float) -> None:
        self.native.renew(client, until)
        self.plain.renew(client, until)

    def propose(self, id: int, drafts: list[int]) -> bool:
        taken = self.native.propose(np.array([id]), ids([0, len(drafts)]), ids(drafts))
        assert taken == self.plain.propose(id, drafts)
        return bool(taken)

    def plan(self, now: float) -> _core.Plan:
        plan = self.native.plan(now)
        expected = self.plain.plan(now)
        for name in PLAN_ARRAYS:
            assert getattr(plan, name).tolist() == expected[name], name
        assert plan.num_rows == len(expected["slots"])
        assert plan.num_tokens == len(expected["token_ids"]) <= self.sizes.max_num_batched_tokens
        if plan.num_rows > 0:
            self.plans.append(plan)
        self.compare()
        return plan

    def commit(self, outcome: list[tuple[list[int], bool]]) -> list[tuple[int, list[int], int]]:
        """Commit the oldest plan; `outcome` holds (tokens, ends) of each sampling row."""
        done = self.native.commit(
            self.plans.pop(0),
            ids([token for tokens, _ in outcome for token in tokens]),
            ids([len(tokens) for tokens, _ in outcome]),
            np.array([ends for _, ends in outcome], dtype=np.uint8),
        )
        start = done.token_start.tolist()
        tokens = done.tokens.tolist()
        results = [
            (id, tokens[start[i] : start[i + 1]], finish)
            for i, (id, finish) in enumerate(
                zip(done.request_ids.tolist(), done.finish.tolist(), strict=True)
            )
        ]
        assert results == self.plain.commit(outcome)
        self.compare()
        return results

    def abandon(self) -> None:
        """Abandon the newest plan."""
        self.native.abandon(self.plans.pop())
        self.plain.abandon()
        self.compare()

    def compare(self) -> None:
        assert self.native.check_integrity() == ""
        assert self.native.free_list() == self.plain.free
        assert self.native.num_waiting() == len(self.plain.policy)
        assert self.native.num_running() == len(self.plain.running())
        for request in self.plain.requests.values():
            assert self.native.blocks_of(request.id) == request.blocks
