"""Whatever the switches, every request gets the answer that it would get alone."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter

import numpy as np
import pytest
from pagemill import _core

from .paged_model import VOCABULARY, PagedModel, alone
from .plain_scheduler import Sizes


@dataclasses.dataclass
class Asked:
    prompt: list[int]
    max_tokens: int
    stops: tuple[int, ...]
    seed: int = 0
    answer: list[int] = dataclasses.field(default_factory=list)
    finish: int = 0


class Engine:
    """The loop around a scheduler and the paged model, with steps that fail now and then."""

    def __init__(
        self, sizes: Sizes, rng: random.Random, *, drafts: bool, failures: bool, forks: bool
    ) -> None:
        self.scheduler = _core.Scheduler(_core.SchedulerConfig(**dataclasses.asdict(sizes)))
        self.model = PagedModel(sizes.num_blocks, sizes.block_size)
        self.depth = sizes.max_outstanding_plans
        self.rng = rng
        self.drafts = drafts
        self.failures = failures
        self.forks = forks
        self.asked: dict[int, Asked] = {}
        self.launched: list[tuple[_core.Plan, list[list[int]] | None]] = []

    def ask(self, id: int, asked: Asked) -> None:
        self.asked[id] = asked
        refusal = self.scheduler.add(
            id,
            np.array(asked.prompt, dtype=np.int32),
            max_tokens=asked.max_tokens,
            stop_token_ids=asked.stops,
            multi_step=self.rng.random() < 0.8,
        )
        assert refusal == _core.Refusal.NONE

    def fork(self) -> None:
        """A second sample of a request, from where it stands or from its prompt."""
        parent = self.rng.choice(list(self.asked))
        asked = self.asked[parent]
        if asked.finish:
            return
        child = len(self.asked)
        known = asked.prompt + asked.answer
        keep = self.rng.choice([len(known), len(asked.prompt)])
        if self.scheduler.fork(parent, child, keep=keep) != _core.Refusal.NONE:
            return
        left = len(asked.prompt) + asked.max_tokens - keep
        self.asked[child] = Asked(known[:keep], left, asked.stops, seed=child)
        self.model.seeds[child] = child

    def propose(self) -> None:
        """Drafts that are right for a while, as those of a good drafter are."""
        for id, asked in self.asked.items():
            if asked.finish or self.rng.random() < 0.4:
                continue
            known = asked.prompt + asked.answer
            drafts = alone(known, self.rng.randint(1, 5), (), asked.seed)
            if self.rng.random() < 0.5:
                drafts[self.rng.randrange(len(drafts))] = self.rng.randrange(VOCABULARY)
            start = np.array([0, len(drafts)], dtype=np.int32)
            self.scheduler.propose(np.array([id]), start, np.array(drafts, dtype=np.int32))

    def launch(self) -> bool:
        if self.drafts:
            self.propose()
        if self.forks and self.rng.random() < 0.3 and len(self.asked) < 60:
            self.fork()
        plan = self.scheduler.plan(0.0)
        if plan.num_rows == 0:
            self.model.apply_changes(plan)
            return False
        broken = bool(self.launched) and self.launched[-1][1] is None
        if broken or (self.failures and self.rng.random() < 0.1):
            self.model.fail(plan)
            self.launched.append((plan, None))
        else:
            self.launched.append((plan, self.model.run(plan)))
        return True

    def land(self) -> None:
        plan, outcome = self.launched[0]
        if outcome is None:
            while self.launched:
                self.scheduler.abandon(self.launched.pop()[0])
            return
        self.launched.pop(0)
        done = self.scheduler.commit(
            plan,
            np.array([token for tokens in outcome for token in tokens], dtype=np.int32),
            np.array([len(tokens) for tokens in outcome], dtype=np.int32),
            np.zeros(len(outcome), dtype=np.uint8),
        )
        for i, id in enumerate(done.request_ids.tolist()):
            asked = self.asked[id]
            asked.answer += done.tokens[done.token_start[i] : done.token_start[i + 1]].tolist()
            asked.finish = int(done.finish[i])

    def step(self) -> bool:
        """False when there is nothing left to do."""
        launched = len(self.launched) < self.depth and self.launch()
        if self.launched and (not launched or len(self.launched) == self.depth):
            self.land()
            return True
        return launched


def questions(rng: random.Random, count: int) -> list[Asked]:
    prefix = [rng.randrange(VOCABULARY) for _ in range(23)]
    asked = []
    for _ in range(count):
        shared = prefix[: rng.randint(0, 23)]
        own = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 12))]
        asked.append(Asked(shared + own, rng.randint(1, 14), tuple(rng.sample(range(50), 2))))
    return asked


@pytest.mark.parametrize(
    ("cache", "chunked", "steps", "depth", "drafts", "failures", "forks"),
    list(
        itertools.product(
            [True, False],
            [True, False],
            [1, 4],
            [1, 2],
            [True, False],
            [True, False],
            [True, False],
        )
    ),
)
def test_switches_do_not_change_answers(
    cache: bool, chunked: bool, steps: int, depth: int, drafts: bool, failures: bool, forks: bool
) -> None:
    rng = random.Random(f"{cache}{chunked}{steps}{depth}{drafts}{failures}{forks}")
    for _ in range(2):
        sizes = Sizes(
            num_blocks=rng.randint(13, 40),  # few enough for preemptions
            block_size=rng.choice([4, 8]),
            max_num_seqs=rng.randint(2, 8),
            max_num_batched_tokens=64 if not chunked else rng.randint(10, 64),
            max_model_len=49,
            enable_prefix_caching=cache,
            enable_chunked_prefill=chunked,
            num_scheduler_steps=steps,
            max_outstanding_plans=depth,
        )
        engine = Engine(sizes, rng, drafts=drafts, failures=failures, forks=forks)
        for asked in questions(rng, 14):
            engine.ask(len(engine.asked), asked)
            if rng.random() < 0.5:
                engine.step()
        while engine.step():
            assert engine.scheduler.check_integrity() == ""
        for asked in engine.asked.values():
            assert asked.finish in (_core.Finish.STOP, _core.Finish.LENGTH)
            assert asked.answer == alone(asked.prompt, asked.max_tokens, asked.stops, asked.seed)
        assert engine.scheduler.num_free_blocks() == sizes.num_blocks


def test_the_settings_meet_what_is_hard() -> None:
    """The test above is worth something only if its cache is tight and its drafts are used."""
    sizes = Sizes(
        num_blocks=13, block_size=4, max_num_seqs=6, max_num_batched_tokens=64, max_model_len=49
    )
    met: Counter[str] = Counter()
    for seed in range(12):
        engine = Engine(sizes, random.Random(seed), drafts=seed % 2 == 0, failures=True, forks=True)
        for asked in questions(engine.rng, 14):
            engine.ask(len(engine.asked), asked)
            for _ in range(engine.rng.randint(1, 5)):
                engine.step()
        while engine.step():
            pass
        met.update(engine.scheduler.stats())
    for event in ("preemptions", "drafts_accepted", "prefix_hits", "abandons", "blocks_copied"):
        assert met[event] >= 5, event
    assert met["drafted_tokens"] > met["drafts_accepted"]
