"""The line through step times, and what drafts make of it."""

from __future__ import annotations

import random

import pytest
from pagemill.engine.executor.step_cost import StepCost


@pytest.mark.parametrize(("fixed_s", "slope_s"), [(0.04, 0.001), (0.01, 0.002), (0.004, 0.0005)])
def test_a_line_is_found_again(fixed_s: float, slope_s: float) -> None:
    rng = random.Random(1)
    cost = StepCost()
    for _ in range(400):
        tokens = rng.choice([1, 3, 5, 9, 17, 30, 64, 100])
        cost.add(tokens, (fixed_s + slope_s * tokens) * rng.uniform(0.9, 1.1))
    assert cost.fixed_tokens(0.0) == pytest.approx(fixed_s / slope_s, rel=0.25)


def test_little_is_said_of_little() -> None:
    cost = StepCost()
    assert cost.fixed_tokens(12.5) == 12.5
    for _ in range(20):
        cost.add(3, 0.02)
        cost.add(0, 1.0)
        cost.add(600, 9.0)
        cost.add(9, 0.0)
        cost.add(9, float("nan"))
    assert cost.fixed_tokens(12.5) == 12.5


@pytest.mark.parametrize(("seconds", "expected"), [([0.02] * 3, 256.0), ([1e-6, 0.1, 1.0], 4.0)])
def test_the_answer_is_bounded(seconds: list[float], expected: float) -> None:
    cost = StepCost()
    for tokens, second in zip([1, 10, 100], seconds, strict=True):
        cost.add(tokens, second)
    assert cost.fixed_tokens(16.0) == expected


def test_a_machine_that_slows_down_is_followed() -> None:
    cost = StepCost()
    for slope_s in (0.001, 0.01):
        for step in range(600):
            tokens = 4 << step % 5
            cost.add(tokens, 0.05 + slope_s * tokens)
    assert cost.fixed_tokens(16.0) == pytest.approx(5.0, rel=0.2)
