"""Closing through the whole engine: budgets, what is reported, failures and preemptions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from pagemill import schemas
from pagemill.engine.errors import EngineReason
from pagemill.engine.executor.base import StepRows
from pagemill.engine.executor.fake import FakeExecutor
from pagemill.engine.protocol import GrammarTable, Output, Request, Submit
from pagemill.engine.vocabulary import Vocabulary
from pagemill.schemas.compile_worker import compile_schema

Make = Callable[..., Any]
SCHEMA = schemas.library.get("product")
VOCABULARY = Vocabulary.of_bytes()


@pytest.fixture(scope="module")
def product() -> tuple[str, bytes]:
    table = compile_schema(SCHEMA)[0]
    return hashlib.sha256(table).hexdigest(), table


def run(core: Any, table: tuple[str, bytes], requests: list[Request]) -> None:
    core.handle(Submit(VOCABULARY.hash, requests))
    core.handle(GrammarTable(*table))
    core.run()


def text_of(core: Any, key: str) -> bytes:
    return b"".join(VOCABULARY.tokens[token] for token in core.tokens(key))


def least_of(core: Any, request_of: Make, table: tuple[str, bytes]) -> int:
    """The least budget that is taken, as the refusal says it."""
    run(core, table, [request_of("least", grammar=table[0], max_tokens=1)])
    last: Output = core.last("least")
    assert last.reason == EngineReason.BUDGET_TOO_SMALL
    return int(last.message.split()[-2])


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.5, "seed": 4}])
def test_every_budget_gives_a_valid_record(
    make_core: Make, request_of: Make, product: tuple[str, bytes], sampling: dict[str, Any]
) -> None:
    core = make_core(max_model_len=1024)
    least = least_of(core, request_of, product)
    budgets = [least - 1, *range(least, least + 30, 3), 400, 600]
    run(
        core,
        product,
        [
            request_of(f"r{n}", f"page {n}", grammar=product[0], max_tokens=n, **sampling)
            for n in budgets
        ],
    )
    assert core.last(f"r{least - 1}").reason == EngineReason.BUDGET_TOO_SMALL
    validator = schemas.Validator(SCHEMA)
    closed = 0
    for budget in budgets[1:]:
        last = core.last(f"r{budget}")
        assert last.finish in ("stop", "length")
        assert last.usage is not None
        assert last.usage.completion_tokens <= budget
        assert not validator.errors(json.loads(text_of(core, f"r{budget}")))
        closed += last.usage.closed_early
    assert closed >= 5
    assert core.core.stats().free_blocks == core.core.stats().total_blocks


def test_a_record_with_room_is_not_marked(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes]
) -> None:
    core = make_core()
    run(core, grammar, [request_of("a", grammar=grammar[0], max_tokens=30)])
    usage = core.last("a").usage
    assert not usage.closed_early
    assert usage.loops_closed == 0
    exact = make_core()
    run(exact, grammar, [request_of("a", grammar=grammar[0], max_tokens=usage.completion_tokens)])
    assert exact.tokens("a") == core.tokens("a")
    assert not exact.last("a").usage.closed_early


def test_off_means_off(make_core: Make, request_of: Make, product: tuple[str, bytes]) -> None:
    core = make_core(close_records=False)
    run(core, product, [request_of("a", grammar=product[0], max_tokens=20)])
    assert core.last("a").finish == "length"
    assert not core.last("a").usage.closed_early
    with pytest.raises(ValueError, match=r"Expecting|Unterminated|delimiter|Invalid"):
        json.loads(text_of(core, "a"))


class Flaky(FakeExecutor):
    """Raises in every third step, after its work is done."""

    calls = 0

    def forward(self, rows: StepRows) -> Any:
        chosen = super().forward(rows)
        self.calls += 1
        if self.calls % 3 == 0:
            raise RuntimeError("a passing failure")
        return chosen


def test_failures_and_preemptions_keep_the_budget(
    make_core: Make, request_of: Make, product: tuple[str, bytes]
) -> None:
    cores = [
        make_core(max_model_len=512),
        make_core(Flaky, max_model_len=512),
        make_core(max_model_len=512, num_blocks=40),
    ]
    keys = [f"r{i}" for i in range(5)]
    for core in cores:
        run(
            core,
            product,
            [request_of(key, key * 9, grammar=product[0], max_tokens=180) for key in keys],
        )
    assert cores[1].core.stats().counters["failed_steps"] > 0
    assert cores[2].core.stats().counters["num_preemptions"] > 0
    for key in keys:
        for core in cores[1:]:
            assert core.tokens(key) == cores[0].tokens(key)
            assert core.last(key).usage.closed_early == cores[0].last(key).usage.closed_early
    assert any(cores[0].last(key).usage.closed_early for key in keys)
