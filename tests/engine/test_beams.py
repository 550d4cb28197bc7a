"""Beam search end to end: the same texts as a plain search over the executor's scores."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pagemill.engine.counter_rng import mix
from pagemill.engine.errors import EngineReason
from pagemill.engine.executor.fake import FakeExecutor
from pagemill.engine.executor.rows import StepRows
from pagemill.engine.protocol import Cancel, GrammarTable, Submit

Make = Callable[..., Any]
PROMPT = "a page of some length, so that it fills blocks"
VOCABULARY = 257
END = 256
SWITCHES = [
    {},
    {"async_scheduling": True, "speculation": "off"},
    {"num_scheduler_steps": 4},
    {"enable_prefix_caching": False},
    {"max_num_seqs": 2},  # fewer slots than beams: they queue, and run ahead of each other
    {"max_num_seqs": 3, "num_blocks": 9},  # and fewer blocks
    {"max_num_batched_tokens": 8, "max_num_seqs": 8},
]


def logprobs(tokens: list[int]) -> Any:
    """What the arithmetic model says of each next token, from its definition."""
    with np.errstate(over="ignore"):
        places = np.arange(len(tokens), dtype=np.uint64)
        total = mix(np.array(tokens, dtype=np.uint64) << np.uint64(32) | places).sum()
        value = mix(np.array([total], dtype=np.uint64))
        bits = mix(value + np.arange(VOCABULARY, dtype=np.uint64))
    logits = (bits >> np.uint64(11)).astype(np.float64) * (8 / 2.0**53)
    return logits - np.log(np.exp(logits).sum())


def plain_search(
    prompt: list[int], width: int, length: int, penalty: float, records: list[bytes] | None = None
) -> list[tuple[float, list[int]]]:
    """Beam search as its definition says, to the last place; `records`: the texts allowed."""
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for place in range(1, length + 1):
        candidates = []
        for rank, (total, text) in enumerate(beams):
            scores = logprobs(prompt + text)
            candidates += [
                (-(total + scores[token]), rank, token)
                for token in range(VOCABULARY)
                if records is None or legal(text, token, records)
            ]
        going = []
        for at, (minus, rank, token) in enumerate(sorted(candidates)[: 2 * width]):
            text = [*beams[rank][1], token]
            if token == END or place == length:
                if at < width:
                    finished.append((-minus / place**penalty, text))
            elif len(going) < width:
                going.append((-minus, text))
        beams = going
    return sorted(finished, key=lambda one: -one[0])[:width]


def legal(text: list[int], token: int, records: list[bytes]) -> bool:
    if token == END:
        return bytes(text) in records
    return any(record.startswith(bytes([*text, token])) for record in records)


def results(core: Any, request_id: str = "a") -> list[tuple[float, list[int], str]]:
    outputs = core.outputs[b"client", request_id]
    assert [output.sample for output in outputs] == list(range(len(outputs)))
    assert [output.ends_request for output in outputs] == [False] * (len(outputs) - 1) + [True]
    return [(output.score, list(output.token_ids), output.finish) for output in outputs]


def assert_same(found: Any, expected: list[tuple[float, list[int]]]) -> None:
    assert len(found) == len(expected)
    for (score, tokens, finish), (plain_score, text) in zip(found, expected, strict=True):
        assert tokens == (text[:-1] if text[-1] == END else text)
        assert finish == ("stop" if text[-1] == END else "length")
        assert math.isclose(score, plain_score, rel_tol=1e-9)


@pytest.mark.parametrize("settings", SWITCHES, ids=str)
@pytest.mark.parametrize(("width", "penalty"), [(1, 1.0), (4, 1.0), (5, 0.0), (3, -1.0)])
def test_texts_are_those_of_a_plain_search(
    make_core: Make, request_of: Make, settings: dict[str, Any], width: int, penalty: float
) -> None:
    core = make_core(**settings)
    asked = request_of(
        "a", PROMPT, max_tokens=14, n=width, beam_width=width, length_penalty=penalty
    )
    # Another's tokens stand in the same steps.
    other = request_of("b", "another page", max_tokens=60, ignore_eos=True)
    core.handle(Submit("bytes-1", [asked, other]))
    core.run()
    assert_same(results(core), plain_search(list(PROMPT.encode()), width, 14, penalty))
    stats = core.core.stats()
    assert stats.free_blocks == stats.total_blocks
    assert (stats.running, stats.waiting) == (0, 0)
    if width > 1 and not settings:
        assert stats.counters["scheduler_forks_shared"] > 0


@pytest.mark.parametrize("settings", SWITCHES, ids=str)
def test_beams_follow_their_grammar(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes], settings: dict[str, Any]
) -> None:
    records = [
        json.dumps({"kind": kind, "n": n}, separators=(",", ":")).encode()
        for kind, n in itertools.product(("a", "bc"), (1, 23, 456))
    ]
    core = make_core(**settings)
    asked = request_of("a", PROMPT, grammar=grammar[0], max_tokens=30, n=4, beam_width=4)
    core.handle(Submit("bytes-1", [asked]))
    core.handle(GrammarTable(*grammar))
    core.run()
    expected = plain_search(list(PROMPT.encode()), 4, 30, 1.0, records)
    assert_same(results(core), expected)
    assert len({tuple(text) for _, text in expected}) == 4
    assert core.core.grammars.acquire(grammar[0]) is not None
    core.core.grammars.release(grammar[0])
    assert hashlib.sha256(grammar[1]).hexdigest() == grammar[0]


def test_fewer_records_than_beams(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes]
) -> None:
    core = make_core()
    asked = request_of("a", grammar=grammar[0], max_tokens=30, n=9, beam_width=9)
    core.handle(Submit("bytes-1", [asked]))
    core.handle(GrammarTable(*grammar))
    core.run()
    found = [bytes(tokens) for _, tokens, _ in results(core)]
    assert len(set(found)) == len(found) == 6  # the grammar's language has no more


@pytest.mark.parametrize("settings", SWITCHES, ids=str)
def test_cancelling_ends_the_search(
    make_core: Make, request_of: Make, settings: dict[str, Any]
) -> None:
    core = make_core(**settings)
    core.handle(Submit("bytes-1", [request_of("a", PROMPT, max_tokens=60, n=2, beam_width=4)]))
    for _ in range(12):
        core.step()
    core.handle(Cancel(["a"]))
    core.run()
    assert [finish for _, _, finish in results(core)] == ["cancelled"] * 2
    stats = core.core.stats()
    assert (stats.free_blocks, stats.running, stats.waiting) == (stats.total_blocks, 0, 0)
    assert not core.core.has_requests


@pytest.mark.parametrize("settings", SWITCHES, ids=str)
def test_failing_steps_cost_no_text(
    make_core: Make, request_of: Make, settings: dict[str, Any]
) -> None:
    class Failing(FakeExecutor):
        calls = 0

        def forward(self, rows: StepRows) -> Any:
            Failing.calls += 1
            if Failing.calls % 5 == 3:
                raise RuntimeError("a kernel failed")
            return super().forward(rows)

    core = make_core(Failing, **settings)
    core.handle(Submit("bytes-1", [request_of("a", PROMPT, max_tokens=14, n=4, beam_width=4)]))
    core.run()
    assert core.core.stats().counters["failed_steps"] > 0
    assert_same(results(core), plain_search(list(PROMPT.encode()), 4, 14, 1.0))


def test_a_search_ends_when_the_engine_starts_anew(make_core: Make, request_of: Make) -> None:
    core = make_core()
    asked = request_of("a", PROMPT, max_tokens=60, n=2, beam_width=4)
    core.handle(Submit("bytes-1", [asked, request_of("b", max_tokens=60, ignore_eos=True)]))
    for _ in range(5):
        core.step()

    def fail(_: Any) -> None:
        raise RuntimeError("lost count")

    core.core._stepper._samples.fork = fail
    core.step()
    assert [finish for _, _, finish in results(core)] == ["error"] * 2
    assert core.last("b").reason == EngineReason.ENGINE_ERROR
    assert not core.core.has_requests
    assert core.core.stats().free_blocks == core.core.stats().total_blocks


def test_a_deadline_ends_the_search(make_core: Make, request_of: Make) -> None:
    now = [100.0]
    core = make_core()
    core.core._clock = core.core._stepper._clock = lambda: now[0]
    asked = request_of("a", PROMPT, max_tokens=60, n=2, beam_width=4, timeout_s=5.0)
    core.handle(Submit("bytes-1", [asked]))
    for _ in range(5):
        core.step()
    now[0] += 6
    core.run()
    assert [finish for _, _, finish in results(core)] == ["deadline"] * 2
    assert core.core.stats().free_blocks == core.core.stats().total_blocks


@pytest.mark.parametrize(
    "sampling",
    [
        {"beam_width": -1},
        {"beam_width": 65},
        {"beam_width": 2, "n": 3},
        {"beam_width": 2, "temperature": 1.0},
        {"beam_width": 2, "logprobs": 1},
        {"beam_width": 2, "ignore_eos": True},
        {"beam_width": 2, "length_penalty": float("nan")},
        {"logprobs": -2},
        {"logprobs": 65},
    ],
    ids=str,
)
def test_what_is_not_served(make_core: Make, request_of: Make, sampling: dict[str, Any]) -> None:
    core = make_core()
    core.handle(Submit("bytes-1", [request_of("a", **sampling)]))
    assert core.last("a").reason == EngineReason.MESSAGE_INVALID


@pytest.mark.parametrize("settings", SWITCHES, ids=str)
@pytest.mark.parametrize("constrained", [False, True])
def test_logprobs_of_each_token(
    make_core: Make,
    request_of: Make,
    grammar: tuple[str, bytes],
    settings: dict[str, Any],
    constrained: bool,
) -> None:
    def ask(name: str, **sampling: Any) -> Any:
        return request_of(
            name, PROMPT, grammar=grammar[0] if constrained else None, max_tokens=20, **sampling
        )

    core = make_core(**settings)
    core.handle(Submit("bytes-1", [ask("with", logprobs=3), ask("without")]))
    if constrained:
        core.handle(GrammarTable(*grammar))
    core.run()
    # Asking changes no token.
    assert core.tokens("with") == core.tokens("without")
    told = [one for output in core.outputs[b"client", "with"] for one in output.logprobs]
    assert [one.token_id for one in told] == core.tokens("with")
    assert not any(output.logprobs for output in core.outputs[b"client", "without"])
    text = list(PROMPT.encode())
    for one in told:
        scores = logprobs(text)
        assert math.isclose(one.logprob, scores[one.token_id], rel_tol=1e-9)
        values = [value for _, value in one.top]
        assert values == sorted(values, reverse=True)
        assert all(math.isclose(value, scores[token]) for token, value in one.top)
        if not constrained:
            assert [token for token, _ in one.top] == np.argsort(-scores)[:3].tolist()
        text.append(one.token_id)
