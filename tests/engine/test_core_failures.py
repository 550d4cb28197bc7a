"""Steps that fail: whom that costs, and whether the core lives on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pagemill.engine.errors import EngineReason
from pagemill.engine.executor.base import StepRows
from pagemill.engine.executor.fake import FakeExecutor
from pagemill.engine.protocol import GrammarTable

from .test_core import ahead, submit

Make = Callable[..., Any]
POISON = 7


class Poisoned(FakeExecutor):
    """Raises whenever a row computes the token POISON."""

    def forward(self, rows: StepRows) -> Any:
        if POISON in rows.token_ids:
            raise RuntimeError("a kernel failed")
        return super().forward(rows)


class Flaky(FakeExecutor):
    """Raises in every seventh pass, after its work is done."""

    calls = 0

    def forward(self, rows: StepRows) -> Any:
        chosen = super().forward(rows)
        self.calls += 1
        if self.calls % 7 == 0:
            raise RuntimeError("a passing failure")
        return chosen


class Crowded(FakeExecutor):
    """Raises when more than two rows are computed at once."""

    def forward(self, rows: StepRows) -> Any:
        if len(rows.slots) > 2:
            raise MemoryError
        return super().forward(rows)


class Dead(FakeExecutor):
    """Never works."""

    def forward(self, rows: StepRows) -> Any:
        raise RuntimeError("no device")


@ahead
def test_the_guilty_request_ends_and_the_others_go_on(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes], settings: dict[str, Any]
) -> None:
    name, table = grammar
    prompts = {f"r{i}": [20 + i] * 30 for i in range(7)}
    healthy, poisoned = make_core(), make_core(Poisoned, **settings)
    for core in (healthy, poisoned):
        requests = [
            request_of(key, ids, grammar=name, max_tokens=30) for key, ids in prompts.items()
        ]
        if core is poisoned:
            requests.insert(3, request_of("poison", [20, 21, POISON, 22], max_tokens=30))
        core.handle(submit(*requests))
        core.handle(GrammarTable(name, table))
        core.run()
    assert poisoned.last("poison").reason == EngineReason.ENGINE_ERROR
    for key in prompts:
        assert poisoned.last(key).finish == healthy.last(key).finish
        assert poisoned.tokens(key) == healthy.tokens(key)
    assert poisoned.core.stats().counters["resets"] == 0
    assert poisoned.core.stats().free_blocks == poisoned.core.stats().total_blocks


@ahead
def test_passing_failures_change_nothing(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes], settings: dict[str, Any]
) -> None:
    name, table = grammar
    cores = [make_core(), make_core(Flaky, **settings)]
    for core in cores:
        core.handle(
            submit(
                request_of("bound", grammar=name, max_tokens=40),
                request_of("drawn", [9] * 40, max_tokens=20, temperature=1.0, seed=3),
                request_of("free", [9] * 33, max_tokens=20, ignore_eos=True),
            )
        )
        core.handle(GrammarTable(name, table))
        core.run()
    for key in ("bound", "drawn", "free"):
        assert cores[0].tokens(key) == cores[1].tokens(key)
    assert cores[1].core.stats().counters["failed_steps"] > 0


@ahead
def test_a_step_that_fails_only_as_a_whole_gets_smaller(
    make_core: Make, request_of: Make, settings: dict[str, Any]
) -> None:
    core = make_core(Crowded, **settings)
    core.handle(submit(*(request_of(f"r{i}", [i + 20] * 5, max_tokens=4) for i in range(5))))
    core.run()
    ends = [core.last(f"r{i}").finish for i in range(5)]
    assert ends.count("error") == 3
    assert all(end in ("length", "stop", "error") for end in ends)


@ahead
def test_a_dead_device_ends_requests_not_the_core(
    make_core: Make, request_of: Make, settings: dict[str, Any]
) -> None:
    core = make_core(Dead, **settings)
    for turn in range(3):
        core.handle(submit(request_of(f"a{turn}"), request_of(f"b{turn}")))
        core.run()
        assert core.last(f"a{turn}").reason == EngineReason.ENGINE_ERROR
        assert core.last(f"b{turn}").reason == EngineReason.ENGINE_ERROR


def test_starting_anew_ends_what_ran_and_serves_again(make_core: Make, request_of: Make) -> None:
    core = make_core()
    core.handle(submit(request_of("a", max_tokens=50), request_of("p", grammar="unknown")))
    core.step()

    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("the scheduler is broken")

        def stats(self) -> dict[str, int]:
            return {}

        def prefix_stats(self) -> dict[int, tuple[int, int]]:
            return {}

    core.core._stepper.scheduler = Broken()
    core.core.step()
    core.collect()
    assert core.last("a").reason == EngineReason.ENGINE_ERROR
    core.handle(submit(request_of("b", max_tokens=3)))
    core.run()
    assert core.last("b").finish in ("length", "stop")
    assert core.core.stats().counters["resets"] == 1
    assert core.core.stats().waiting == 1  # the parked one still waits for its grammar
