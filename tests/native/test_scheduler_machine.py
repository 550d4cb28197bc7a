"""Random lives of a scheduler, in C++ and in plain Python: plans and blocks must be equal."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from .plain_scheduler import Sizes
from .side_by_side import SideBySide

POLICIES = ("fcfs", "static", "priority", "deadline", "prefix", "fair")


def draw_sizes(rng: random.Random) -> Sizes:
    max_num_seqs = rng.randint(1, 6)
    chunked = rng.random() < 0.85
    max_model_len = rng.randint(8, 48)
    least = max_num_seqs if chunked else max(max_num_seqs, max_model_len)
    num_blocks = rng.randint(6, 24)
    return Sizes(
        num_blocks=num_blocks,
        block_size=rng.choice([1, 2, 4, 5]),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=rng.randint(least, least + 20),
        max_model_len=max_model_len,
        enable_prefix_caching=rng.random() < 0.8,
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=rng.choice([0, 0, 1, 3, 7]),
        max_partial_prefills=rng.choice([0, 0, 1, 2]),
        policy=rng.choice(POLICIES),
        ageing_s=rng.choice([0.0, 1.0, 10.0]),
        fair_quantum=rng.choice([1, 5, 40]),
        group_size=rng.choice([1, 2, 50]),
        watermark_blocks=rng.choice([0, 0, 1, 3]),
        max_waiting_requests=rng.choice([3, 20, 20]),
        max_waiting_tokens=rng.choice([60, 1000, 1000]),
        num_scheduler_steps=rng.choice([1, 1, 2, 5]),
        max_outstanding_plans=rng.choice([1, 1, 2]),
    )


class Life:
    """A pair of schedulers with a clock and the moves that tests draw from `rng`."""

    def __init__(self, sizes: Sizes) -> None:
        self.pair = SideBySide(sizes)
        self.now = 0.0
        self.next_id = 0

    def some_id(self, rng: random.Random) -> int:
        return rng.randint(max(0, self.next_id - 12), self.next_id + 1)

    def submit(self, rng: random.Random) -> None:
        # Few token values and few roots, so that prefixes are shared often.
        root = rng.choice([0, 0, 1])
        prompt = [(root + i * (rng.random() < 0.03)) % 5 for i in range(rng.randint(0, 40))]
        fresh = rng.random() < 0.97
        self.pair.add(
            self.next_id if fresh else self.some_id(rng),
            prompt,
            max_tokens=rng.randint(1, 16),
            stops=tuple(rng.sample(range(12), rng.choice([0, 0, 1, 6]))),
            deadline=self.now + rng.choice([1e9, 1e9, float("inf"), rng.randint(0, 30)]),
            arrival=self.now,
            priority=rng.randint(-2, 2),
            salt=rng.choice([0, 0, 7, 8]),
            salt_from=rng.choice([0, 3, 8, 100]),
            tenant=rng.randint(0, 3),
            adapter=rng.choice([0, 0, 0, 1]),
            multi_step=rng.random() < 0.8,
            client=rng.randint(0, 2),
            admitted=rng.random() < 0.1,
        )
        self.next_id += fresh

    def fork(self, rng: random.Random) -> None:
        if len(self.pair.plain.policy) > 30:  # No limit of the queue holds them up.
            return
        running = [request.id for request in self.pair.plain.running()]
        parent = rng.choice(running) if running and rng.random() < 0.9 else self.some_id(rng)
        known = self.pair.plain.requests.get(parent)
        some = known is not None and known.state != "ended" and rng.random() < 0.5
        keep = rng.randint(1, len(known.tokens)) if some and known is not None else -1
        self.pair.fork(parent, self.next_id, keep, rng.choice([-1, -1, 2]))
        self.next_id += 1

    def renew(self, rng: random.Random) -> None:
        self.pair.renew(rng.randint(1, 2), self.now + rng.randint(0, 40))

    def propose(self, rng: random.Random) -> None:
        running = [request.id for request in self.pair.plain.running()]
        for id in (self.some_id(rng), self.next_id - 1, *running):
            if rng.random() < 0.5:
                self.pair.propose(id, [rng.randint(0, 9) for _ in range(rng.randint(0, 6))])

    def plan(self) -> bool:
        if len(self.pair.plans) == self.pair.sizes.max_outstanding_plans:
            return False
        return self.pair.plan(self.now).num_rows > 0

    def commit(self, rng: random.Random) -> None:
        plan = self.pair.plans[0]
        outcome = []
        for row in range(plan.num_rows):
            if not plan.sampled[row]:
                continue
            most = int(plan.num_drafts[row] + plan.passes[row])
            # Mostly all passes, and any number of drafts; now and then nothing at all.
            full = plan.num_drafts[row] == 0 and rng.random() < 0.9
            count = most if full else rng.randint(0, most)
            tokens = [rng.randint(0, 60) if rng.random() < 0.5 else 1 for _ in range(count)]
            outcome.append((tokens, rng.random() < 0.05))
        self.pair.commit(outcome)

    def drain(self, rng: random.Random) -> None:
        """Whatever happened before, every request comes to an end, and every block is free."""
        for _ in range(20_000):
            if len(self.pair.plans) == self.pair.sizes.max_outstanding_plans:
                self.commit(rng)
            elif not self.plan():
                if not self.pair.plans:
                    break
                self.commit(rng)
        assert not self.pair.plain.requests
        assert self.pair.native.num_free_blocks() == self.pair.sizes.num_blocks


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(rng=st.randoms(use_true_random=False))
    def make(self, rng: random.Random) -> None:
        self.life = Life(draw_sizes(rng))

    @rule(rng=st.randoms(use_true_random=False))
    def submit(self, rng: random.Random) -> None:
        self.life.submit(rng)

    @rule(rng=st.randoms(use_true_random=False), count=st.integers(2, 5))
    def submit_burst(self, rng: random.Random, count: int) -> None:
        for _ in range(count):
            self.life.submit(rng)

    @rule(rng=st.randoms(use_true_random=False))
    def cancel(self, rng: random.Random) -> None:
        self.life.pair.cancel(self.life.some_id(rng))

    @rule(rng=st.randoms(use_true_random=False))
    def fork(self, rng: random.Random) -> None:
        self.life.fork(rng)

    @rule(rng=st.randoms(use_true_random=False))
    def renew(self, rng: random.Random) -> None:
        self.life.renew(rng)

    @rule(rng=st.randoms(use_true_random=False))
    def propose(self, rng: random.Random) -> None:
        self.life.propose(rng)

    @rule(seconds=st.sampled_from([0.0, 1.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.life.now += seconds

    @rule()
    def plan(self) -> None:
        self.life.plan()

    @precondition(lambda self: self.life.pair.plans)
    @rule(rng=st.randoms(use_true_random=False))
    def commit(self, rng: random.Random) -> None:
        self.life.commit(rng)

    @precondition(lambda self: self.life.pair.plans)
    @rule()
    def abandon(self) -> None:
        self.life.pair.abandon()

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "life"):
            self.life.pair.compare()

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.life.drain(random.Random(0))


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def live(seed: int, moves: int) -> None:
    """A busier life than the state machine's: most moves are steps."""
    rng = random.Random(seed)
    life = Life(draw_sizes(rng))
    for _ in range(moves):
        move = rng.random()
        if move < 0.25:
            life.submit(rng)
        elif move < 0.28:
            life.pair.cancel(life.some_id(rng))
        elif move < 0.36:
            life.propose(rng)
        elif move < 0.40:
            life.fork(rng)
        elif move < 0.41:
            life.renew(rng)
        elif move < 0.65:
            life.plan()
            life.now += 1
        elif life.pair.plans:
            if move < 0.96:
                life.commit(rng)
            else:
                life.pair.abandon()
    life.drain(rng)


@pytest.mark.parametrize("seed", range(60))
def test_long_life(seed: int) -> None:
    live(seed, 300)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_longer_life(seed: int) -> None:
    live(seed, 3000)
