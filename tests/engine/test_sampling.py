"""Choosing tokens: masks, distributions, and draws that depend on the request alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagemill.engine.counter_rng import uniforms
from pagemill.engine.protocol import GrammarTable, Submit

torch = pytest.importorskip("torch")

from pagemill.engine.sampling import apply_bitmask, sample  # noqa: E402

Make = Callable[..., Any]


def test_uniforms_are_uniform_and_independent() -> None:
    places = np.arange(50_000, dtype=np.uint64)
    drawn = uniforms(0, np.zeros_like(places), places)
    assert 0 <= drawn.min() <= drawn.max() < 1
    counts, _ = np.histogram(drawn, bins=20, range=(0, 1))
    # Chi-square with 19 degrees of freedom: 43.8 is exceeded once in a thousand.
    assert ((counts - 2500) ** 2 / 2500).sum() < 43.8
    other = uniforms(0, np.ones_like(places), places)
    assert abs(np.corrcoef(drawn, other)[0, 1]) < 0.02
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.02
    assert not np.array_equal(drawn, uniforms(1, np.zeros_like(places), places))


def test_uniforms_depend_on_seed_and_place_alone() -> None:
    seeds = np.array([5, 6, 7], dtype=np.uint64)
    places = np.array([0, 9, 3], dtype=np.uint64)
    together = uniforms(3, seeds, places)
    for i in range(3):
        assert uniforms(3, seeds[i : i + 1], places[i : i + 1])[0] == together[i]


@given(st.integers(1, 100), st.data())
def test_bitmasks_are_read_low_bit_first(width: int, data: st.DataObject) -> None:
    allowed = data.draw(st.lists(st.booleans(), min_size=width, max_size=width))
    bits = np.zeros(-(-width // 32) * 32, dtype=np.uint8)
    bits[:width] = allowed
    words = torch.from_numpy(np.packbits(bits, bitorder="little").view(np.int32).copy())
    masked = apply_bitmask(torch.zeros(1, width), words[None])
    assert (masked[0] == 0).tolist() == allowed


def draw(logits: list[float], temperature: float, top_p: float, count: int) -> np.ndarray[Any, Any]:
    u = torch.from_numpy((np.arange(count) + 0.5) / count)
    ids = sample(
        torch.tensor([logits]).expand(count, -1),
        torch.full((count,), temperature),
        torch.full((count,), top_p),
        u,
    )
    return np.bincount(ids.numpy(), minlength=len(logits)) / count


def test_draws_follow_the_distribution() -> None:
    """Evenly spaced numbers give each id its probability, to within one draw."""
    logits = [1.0, 3.0, -2.0, 2.0, float("-inf")]
    for temperature in (0.5, 1.0, 2.0):
        expected = torch.softmax(torch.tensor(logits) / temperature, 0).numpy()
        assert np.abs(draw(logits, temperature, 1.0, 4000) - expected).max() < 1e-3


def test_top_p_keeps_the_smallest_sufficient_set() -> None:
    logits = np.log([0.5, 0.3, 0.15, 0.05]).tolist()
    assert draw(logits, 1.0, 0.5, 100).tolist() == [1, 0, 0, 0]
    kept = draw(logits, 1.0, 0.6, 8000)
    assert np.abs(kept - [0.625, 0.375, 0, 0]).max() < 1e-3
    assert (draw(logits, 1.0, 1.0, 4000) > 0).all()
    assert draw(logits, 1.0, 1e-9, 10).tolist() == [1, 0, 0, 0]


def test_illegal_ids_are_never_drawn() -> None:
    logits = [50.0, float("-inf"), 0.0, float("-inf")]
    drawn = draw(logits, 100.0, 1.0, 1000)
    assert drawn[1] == drawn[3] == 0
    assert drawn[2] > 0
    # At the very end of the interval, too.
    last = sample(
        torch.tensor([logits]), torch.ones(1), torch.ones(1), torch.tensor([1 - 2.0**-53])
    )
    assert last.item() in (0, 2)


def test_rows_do_not_touch_each_other() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(16, 300, generator=generator) * 3
    temperature = torch.linspace(0.2, 2.0, 16)
    top_p = torch.linspace(0.3, 1.0, 16)
    u = torch.linspace(0, 0.999, 16, dtype=torch.float64)
    together = sample(logits, temperature, top_p, u)
    for i in range(16):
        row = slice(i, i + 1)
        assert sample(logits[row], temperature[row], top_p[row], u[row]) == together[i]


def test_seeds_fix_a_request_alone_in_a_batch_and_preempted(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes]
) -> None:
    name, table = grammar

    def requests(seed: int) -> list[Any]:
        hot = {"temperature": 1.0, "seed": seed, "ignore_eos": True}
        return [
            *(request_of(f"free{i}", [i] * 40, max_tokens=60, **hot) for i in range(6)),
            request_of("bound", grammar=name, max_tokens=40, temperature=1.0, seed=seed),
        ]

    def tokens(core: Any, burst: list[Any]) -> dict[str, list[int]]:
        core.handle(Submit("bytes-1", burst))
        if core.core.stats().waiting:
            core.handle(GrammarTable(name, table))
        core.run()
        return {request.request_id: core.tokens(request.request_id) for request in burst}

    alone: dict[str, list[int]] = {}
    for request in requests(seed=1):
        alone |= tokens(make_core(), [request])
    batch = make_core(max_num_seqs=8)
    # Too few blocks for all of them: 7 requests of up to 100 tokens in 24 blocks of 16.
    tight = make_core(max_num_seqs=8, num_blocks=24)
    assert tokens(batch, requests(seed=1)) == alone
    assert tokens(tight, requests(seed=1)) == alone
    assert tight.core.stats().counters["num_preemptions"] > 0
    assert json.loads(bytes(alone["bound"]))["n"] in (1, 23, 456)
    assert tokens(make_core(), requests(seed=2)) != alone
    assert tokens(make_core(seed=9), requests(seed=1)) != alone


@given(
    st.integers(1, 400), st.floats(0.05, 4), st.sampled_from([0.1, 0.5, 0.9, 0.999, 1.0]),
    st.integers(0, 2**32), st.booleans(),
)  # fmt: skip
def test_the_core_draws_what_torch_draws(
    width: int, temperature: float, top_p: float, seed: int, level: bool
) -> None:
    """Rows without a grammar; grammars' masks are tested with the rows."""
    from pagemill._core import GrammarRows

    rng = np.random.default_rng(seed)
    count = 40
    logits = rng.normal(0, 3, (count, width)).astype(np.float32)
    if level:
        logits = np.round(logits)  # many equal ones: the lower id goes first
    draws = (rng.random(count) * 0.999).astype(np.float64)
    heat = np.full(count, temperature, dtype=np.float32)
    share = np.full(count, top_p, dtype=np.float32)
    rows = GrammarRows(count, width)
    out = np.empty(count, dtype=np.int32)
    starts = np.zeros(count + 1, dtype=np.int32)
    slots = np.arange(count, dtype=np.int32)
    rows.masked_sample(
        logits.ctypes.data, width, slots, out, starts, np.zeros(0, np.int32),
        temperature=heat, top_p=share, uniforms=draws,
    )  # fmt: skip
    expected = sample(
        torch.from_numpy(logits),
        torch.from_numpy(heat),
        torch.from_numpy(share),
        torch.from_numpy(draws),
    )
    different = np.flatnonzero(out != expected.numpy())
    for row in different:  # only where a uniform meets a step of the distribution function
        near = [
            sample(
                torch.from_numpy(logits[row : row + 1]),
                torch.from_numpy(heat[row : row + 1]),
                torch.from_numpy(share[row : row + 1]),
                torch.tensor([min(max(draws[row] + shift, 0.0), 0.9999999)]),
            ).item()
            for shift in (-1e-6, 1e-6)
        ]
        assert out[row] in near


def test_draws_are_checked() -> None:
    from pagemill._core import GrammarRows

    rows = GrammarRows(1, 4)
    logits = np.zeros((1, 4), dtype=np.float32)
    one = np.zeros(1, dtype=np.int32)
    for temperature, top_p, uniform in ((0, 1, 0.5), (1, 0, 0.5), (1, 1.5, 0.5), (1, 1, 1.0)):
        with pytest.raises(ValueError, match="temperature above 0"):
            rows.masked_sample(
                logits.ctypes.data, 4, one, one.copy(), np.zeros(2, np.int32), one[:0],
                temperature=np.float32([temperature]), top_p=np.float32([top_p]),
                uniforms=np.float64([uniform]),
            )  # fmt: skip
