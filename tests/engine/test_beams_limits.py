"""Beam searches at the edges of what is allowed, and ended in every way there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.protocol import Cancel, GrammarTable, Submit

from .test_beams import PROMPT, assert_same, plain_search, results
from .test_beams_random import RECORDS, check_idle

Make = Callable[..., Any]


def search(request_of: Make, name: str = "a", **sampling: Any) -> Any:
    return request_of(name, PROMPT, **{"max_tokens": 14, "n": 2, "beam_width": 4} | sampling)


def plain(width: int, length: int, count: int) -> list[tuple[float, list[int]]]:
    return plain_search(list(PROMPT.encode()), width, length, 1.0)[:count]


@pytest.mark.parametrize("width", [1, 5, 64])
def test_one_token_is_enough(make_core: Make, request_of: Make, width: int) -> None:
    core = make_core()
    core.handle(Submit("bytes-1", [search(request_of, max_tokens=1, beam_width=width, n=width)]))
    core.run()
    assert_same(results(core), plain(width, 1, width))
    check_idle(core)


def test_more_beams_than_slots_and_blocks(make_core: Make, request_of: Make) -> None:
    core = make_core(max_num_seqs=1, num_blocks=5, max_waiting_tokens=len(PROMPT))
    core.handle(Submit("bytes-1", [search(request_of, beam_width=16, n=16)]))
    core.run()
    assert_same(results(core), plain(16, 14, 16))
    check_idle(core)


def test_beams_do_not_count_as_new_requests(make_core: Make, request_of: Make) -> None:
    core = make_core(max_num_seqs=2, max_waiting_requests=4)
    core.handle(Submit("bytes-1", [search(request_of), search(request_of, "b", beam_width=5)]))
    assert core.last("b").reason == "overloaded"
    core.run()
    assert_same(results(core), plain(4, 14, 2))
    check_idle(core)


def test_every_candidate_ends_the_text(make_core: Make, request_of: Make) -> None:
    best = [ids for _, (ids,) in plain_search(list(PROMPT.encode()), 64, 1, 1.0)]
    core = make_core()
    core.handle(
        Submit("bytes-1", [search(request_of, beam_width=32, n=32, stop_token_ids=tuple(best))])
    )
    core.run()
    found = results(core)
    assert [finish for _, _, finish in found] == ["stop"] * 32
    assert all(tokens == [] for _, tokens, _ in found)  # the end is not told
    check_idle(core)


@pytest.mark.parametrize("steps", range(16))
@pytest.mark.parametrize("settings", [{}, {"async_scheduling": True, "speculation": "off"}])
def test_ended_after_any_step(
    make_core: Make, request_of: Make, settings: dict[str, Any], steps: int
) -> None:
    core = make_core(max_num_seqs=3, **settings)
    core.handle(Submit("bytes-1", [search(request_of), request_of("b", max_tokens=30)]))
    for _ in range(steps):
        core.step()
    over = bool(core.outputs.get((b"client", "a")))
    core.handle(Cancel(["a", "a"]))
    core.handle(Cancel(["a"]))
    if not over:  # Its id is in use until the end is told.
        core.handle(Submit("bytes-1", [search(request_of)]))
        assert core.last("a").reason == "message_invalid"
        core.outputs.clear()
    core.run()
    if not over:
        assert [finish for _, _, finish in results(core)] == ["cancelled"] * 2
    assert core.last("b").finish in ("stop", "length")
    core.outputs.clear()
    core.handle(Submit("bytes-1", [search(request_of)]))
    core.run()
    assert_same(results(core), plain(4, 14, 2))
    check_idle(core)


def test_a_client_that_leaves_takes_its_search_along(make_core: Make, request_of: Make) -> None:
    core = make_core(max_num_seqs=3)
    for client in (b"gone", b"client"):
        core.handle(Submit("bytes-1", [search(request_of)]), client)
    for _ in range(4):
        core.step()
    core.core.gone(b"gone")
    core.core.gone(b"gone")
    core.run()
    assert_same(results(core), plain(4, 14, 2))
    check_idle(core)


@pytest.mark.parametrize("jump", [11.0, 1e9, -1e6])
def test_leases_of_searches_when_the_clock_jumps(
    make_core: Make, request_of: Make, jump: float
) -> None:
    now = [100.0]
    core = make_core(max_num_seqs=3, client_timeout_s=10.0)
    core.core._clock = core.core._stepper._clock = lambda: now[0]
    core.handle(Submit("bytes-1", [search(request_of)]))
    for _ in range(4):
        core.step()
    now[0] += jump
    core.handle(Cancel(["another"]))  # it comes back late, or in time: what it says counts
    core.run()
    assert_same(results(core), plain(4, 14, 2))
    now[0] += abs(jump)
    core.handle(Submit("bytes-1", [search(request_of, "b")]))
    for _ in range(4):
        core.step()
    now[0] += 11.0
    core.run()
    assert {finish for _, _, finish in results(core, "b")} == {"cancelled"}
    check_idle(core)


def test_a_parked_search_can_be_cancelled(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes]
) -> None:
    core = make_core()
    constrained = request_of("a", PROMPT, grammar=grammar[0], max_tokens=30, n=3, beam_width=3)
    core.handle(Submit("bytes-1", [constrained]))
    core.handle(Cancel(["a"]))
    core.handle(GrammarTable(*grammar))
    core.run()
    assert core.last("a").finish == "cancelled"
    assert core.last("a").ends_request
    check_idle(core)


def test_a_table_that_is_none_ends_the_search(make_core: Make, request_of: Make) -> None:
    core = make_core()
    core.handle(Submit("bytes-1", [search(request_of)]))
    bad = request_of("b", PROMPT, grammar="0" * 64, max_tokens=30, n=3, beam_width=3)
    core.handle(Submit("bytes-1", [bad]))
    core.handle(GrammarTable("0" * 64, b"no table"))
    core.run()
    assert core.last("b").finish == "error"
    assert_same(results(core), plain(4, 14, 2))
    check_idle(core)


def test_all_requests_end_at_once(make_core: Make, request_of: Make) -> None:
    core = make_core(max_num_seqs=3)
    core.handle(Submit("bytes-1", [search(request_of), request_of("b", max_tokens=30, n=3)]))
    for _ in range(4):
        core.step()
    core.core.close(EngineError(EngineReason.OVERLOADED, "over"))
    core.core.end_all(EngineError(EngineReason.OVERLOADED, "over"))
    core.collect()
    assert core.last("a").ends_request
    assert core.last("b").ends_request
    assert not core.core.has_requests


def test_the_longest_prompt_that_fits(make_core: Make, request_of: Make) -> None:
    core = make_core(max_num_seqs=2, num_blocks=4, max_model_len=64)
    prompt = [5] * 63
    asked = [
        request_of("a", prompt, max_tokens=1, n=4, beam_width=4),
        request_of("b", prompt, max_tokens=2, n=4, beam_width=4),
    ]
    core.handle(Submit("bytes-1", asked))
    assert core.last("b").reason == "prompt_too_long"
    core.run()
    assert_same(results(core), plain_search(prompt, 4, 1, 1.0))
    check_idle(core)


@pytest.mark.parametrize("queued", [False, True])
def test_samples_whose_first_never_started_end_with_it(
    make_core: Make, request_of: Make, queued: bool
) -> None:
    """The scheduler doesn't know of samples that wait for the first one's prompt."""
    now = [100.0]
    core = make_core(max_num_seqs=1)
    core.core._clock = core.core._stepper._clock = lambda: now[0]
    if queued:
        core.handle(Submit("bytes-1", [request_of("b", max_tokens=20, ignore_eos=True)]))
        core.step()
    core.handle(Submit("bytes-1", [request_of("a", PROMPT, max_tokens=30, n=3, timeout_s=2.0)]))
    now[0] += 3.0
    core.run(most=200)
    finishes = [output.finish for output in core.outputs[b"client", "a"]]
    assert finishes == ["deadline"] * 3
    check_idle(core)


def test_logprobs_of_samples_under_a_grammar_with_few_tokens(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes]
) -> None:
    core = make_core(num_scheduler_steps=4)
    asked = request_of("a", PROMPT, grammar=grammar[0], max_tokens=30, n=3, logprobs=64)
    core.handle(Submit("bytes-1", [asked]))
    core.handle(GrammarTable(*grammar))
    core.run()
    for sample in range(3):
        mine = [o for o in core.outputs[b"client", "a"] if o.sample == sample]
        told = [one for output in mine for one in output.logprobs]
        assert bytes(one.token_id for one in told) in RECORDS
        for one in told:
            assert one.token_id in [token for token, _ in one.top]
            assert 1 <= len(one.top) <= 11  # a digit or an end, a letter, a sign
    check_idle(core)
