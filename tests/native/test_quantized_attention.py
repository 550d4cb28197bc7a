"""Attention over the int8 KV cache against plain softmax attention on the same rounded K and V."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pagemill import _core

from .test_attention import ROWS, Batch

F32 = NDArray[np.float32]


@pytest.fixture(autouse=True, params=_core.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _core.instruction_set()
    _core.use_instruction_set(request.param)
    yield request.param
    _core.use_instruction_set(before)


def rounded(heads: F32) -> F32:
    """To 8 bits, one scale for the last dimension, in the cache's own order of operations."""
    largest = np.maximum(np.abs(heads).max(axis=-1, keepdims=True), np.float32(1e-30))
    whole = np.rint(heads * (np.float32(127) / largest))
    return np.asarray(whole * (largest / np.float32(127)), dtype=np.float32)


def cache_of(batch: Batch, layer: int = 0, num_layers: int = 1) -> _core.KvCache:
    """A cache that holds the batch's K and V; the batch keeps what rounding left of them."""
    num_blocks, block_size, num_kv_heads, head_dim = batch.keys.shape
    cache = _core.KvCache(num_layers, num_blocks, block_size, num_kv_heads, head_dim, "int8")
    places = np.arange(num_blocks * block_size, dtype=np.int32)
    cache.write(layer, places, batch.keys.ctypes.data, batch.values.ctypes.data)
    batch.keys, batch.values = rounded(batch.keys), rounded(batch.values)
    return cache


def run(batch: Batch, cache: _core.KvCache, *, share: bool = True, layer: int = 0) -> int:
    query = np.ascontiguousarray(batch.query)
    return _core.quantized_attention(
        cache,
        layer,
        query.ctypes.data,
        batch.out.ctypes.data,
        batch.block_tables,
        batch.slots,
        batch.query_start,
        batch.context_lens,
        query.shape[1],
        batch.scale,
        share,
    )


def tolerance() -> float:
    """Queries and weights are rounded to 16 bits; in tiles these are bfloat16's, eight of them for
    the magnitude. Rounding K and V to 8 bits costs several times as much."""
    return 2e-2 if _core.instruction_set() == "amx" else 2e-3


def assert_right(batch: Batch, share: bool = True) -> int:
    read = run(batch, cache_of(batch), share=share)
    np.testing.assert_allclose(batch.out, batch.expected(), rtol=tolerance(), atol=tolerance())
    return read


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_matches_softmax_attention(rows: list[tuple[int, int]]) -> None:
    assert_right(Batch(rows))


@pytest.mark.parametrize("head_dim", [16, 80, 128])
@pytest.mark.parametrize(("num_kv_heads", "group"), [(1, 1), (3, 3), (1, 64)])
def test_any_shape_of_heads(head_dim: int, num_kv_heads: int, group: int) -> None:
    rows = [(9, 60), (1, 33)]
    assert_right(Batch(rows, num_kv_heads=num_kv_heads, group=group, head_dim=head_dim))


@pytest.mark.parametrize("block_size", [16, 32, 112])
def test_any_block_size(block_size: int) -> None:
    assert_right(Batch([(20, 90), (1, 150)], block_size=block_size))


def sharing(rows: list[tuple[int, int]], shared_blocks: int, seed: int = 0) -> Batch:
    """A batch whose rows' first blocks are the same ones."""
    batch = Batch(rows, head_dim=16, seed=seed)
    tables = batch.block_tables
    for slot in batch.slots[1:]:
        tables[slot, :shared_blocks] = tables[batch.slots[0], :shared_blocks]
    return batch


def test_a_shared_prefix_is_read_once() -> None:
    rows = [(1, 300), (4, 310), (1, 420), (3, 290)]
    read = {share: assert_right(sharing(rows, 16), share) for share in (True, False)}
    assert read[False] - read[True] == 2 * 3 * 256  # two KV heads, three of four rows


def test_more_sharers_than_go_over_a_tile_together() -> None:
    assert_right(sharing([(1, 200 + i) for i in range(40)], 10))


def test_sharing_changes_nothing_beyond_rounding() -> None:
    outputs = []
    for share in (True, False):
        batch = sharing([(1, 333), (2, 390), (1, 700)], 20)
        run(batch, cache_of(batch), share=share)
        outputs.append(batch.out)
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=tolerance() / 2, atol=tolerance() / 2)


def test_many_drafts_behind_a_prefix() -> None:
    assert_right(sharing([(4, 400 + 7 * i) for i in range(40)], 20))


def test_a_long_row_is_cut_and_merged() -> None:
    assert_right(Batch([(1, 5000)], head_dim=16))
    assert_right(Batch([(7, 3000), (1, 10)], head_dim=16))


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 40), st.integers(80, 190)), min_size=1, max_size=6),
    shared=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
def test_random_batches(rows: list[tuple[int, int]], shared: int, seed: int) -> None:
    assert_right(sharing(rows, shared, seed))


def test_instruction_sets_agree() -> None:
    outputs = []
    for name in _core.instruction_sets():
        _core.use_instruction_set(name)
        batch = Batch([(20, 90), (1, 350)])
        run(batch, cache_of(batch))
        outputs.append(batch.out)
    for name, other in zip(_core.instruction_sets(), outputs, strict=True):
        allowed = 1e-2 if name == "amx" else 1e-3
        np.testing.assert_allclose(other, outputs[0], rtol=allowed, atol=allowed)


@pytest.mark.parametrize("rows", [[(64, 4000)], [(300, 3800), (2, 4000)]], ids=str)
def test_long_contexts(rows: list[tuple[int, int]]) -> None:
    assert_right(Batch(rows, num_kv_heads=1, head_dim=64))


def test_queries_and_weights_lose_less_than_keys_and_values() -> None:
    for rows in ([(90, 10)], [(70, 900)], [(1, 900)]):
        batch = Batch(rows)
        before = batch.expected()
        run(batch, cache_of(batch))
        after = batch.expected()
        errors = [np.sqrt(np.mean(np.square(x - after))) for x in (batch.out, before)]
        assert errors[0] < 0.5 * errors[1]


# Few queries, and so many that they go in tiles; not a multiple of either.
COUNTS = pytest.mark.parametrize("tokens", [1, 45])


@COUNTS
def test_zeros(tokens: int) -> None:
    for name in ("query", "keys", "values"):
        batch = Batch([(tokens, 150)])
        getattr(batch, name)[...] = 0
        cache = cache_of(batch)
        run(batch, cache)
        if name == "values":
            assert (batch.out == 0).all()
        else:  # all positions count alike
            np.testing.assert_allclose(batch.out, batch.expected(), rtol=5e-3, atol=1e-3)


@COUNTS
def test_equal_scores_give_the_mean(tokens: int) -> None:
    batch = Batch([(tokens, 700)])
    batch.keys[...] = batch.keys[0, 0]
    assert_right(batch)


@COUNTS
def test_large_scores_choose_one_value(tokens: int) -> None:
    """Of two positions in turn, thousands apart in their scores, one is seen."""
    batch = Batch([(tokens, 300)])
    batch.query[...] = np.abs(batch.query) + 1
    sign = np.where(np.arange(16) % 5 == 3, 1, -1)
    batch.keys[...] = np.abs(batch.keys) * 100 * sign[None, :, None, None]
    batch.values[...] = sign[None, :, None, None]
    run(batch, cache_of(batch))
    assert np.isfinite(batch.out).all()
    np.testing.assert_allclose(batch.out, 1, rtol=5e-3)


@COUNTS
@pytest.mark.parametrize("rise", [0.01, 1.0, 40.0, -40.0, 1000.0])
def test_scores_that_rise_or_fall_along_the_context(tokens: int, rise: float) -> None:
    """The greatest score of all changes from tile to tile, or stands in the first."""
    batch = Batch([(tokens, 500)], num_kv_heads=1, group=3, head_dim=32)
    table = batch.block_tables[batch.slots[0]]
    places = np.arange(len(table) * 16).reshape(-1, 16)
    batch.query[...] = 1
    # Powers of two, so that scores are as exact in tiles.
    batch.scale = 1 / 32
    batch.keys[table] = rise * places[:, :, None, None]
    assert_right(batch)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing_beyond_rounding(threads: int) -> None:
    batch = Batch([(50, 10), (1, 990), (1, 3)])
    cache = cache_of(batch)
    run(batch, cache)
    before = batch.out.copy()
    _core.set_num_threads(threads)
    try:
        run(batch, cache)
    finally:
        _core.set_num_threads(2)
    np.testing.assert_allclose(batch.out, before, rtol=1e-3, atol=1e-3)


def test_what_stands_behind_the_context_is_not_seen() -> None:
    batch = Batch([(3, 30)])
    cache = cache_of(batch)
    run(batch, cache)
    before = batch.out.copy()
    table, block_size = batch.block_tables[batch.slots[0]], batch.keys.shape[1]
    behind = np.array([table[2] * block_size + 1 + i for i in range(15)], np.int32)
    huge = np.full((15, *batch.keys.shape[2:]), 1e6, np.float32)
    cache.write(0, behind, huge.ctypes.data, huge.ctypes.data)
    run(batch, cache)
    np.testing.assert_allclose(batch.out, before, rtol=1e-4, atol=1e-4)


def test_layers_and_copied_blocks() -> None:
    batch = Batch([(5, 60)])
    cache = cache_of(batch, layer=1, num_layers=2)
    used = batch.block_tables[batch.slots[0], :5].copy()
    spare = np.array([b for b in range(batch.num_blocks) if b not in used], np.int32)
    cache.copy_blocks(used[1:2].copy(), spare[:1].copy())
    batch.block_tables[batch.slots[0], 1] = spare[0]
    batch.keys[spare[0]], batch.values[spare[0]] = batch.keys[used[1]], batch.values[used[1]]
    run(batch, cache, layer=1)
    np.testing.assert_allclose(batch.out, batch.expected(), rtol=tolerance(), atol=tolerance())


def test_caches_that_cannot_be_are_refused() -> None:
    for sizes, kind in [((1, 4, 8, 2, 64), "int8"), ((1, 4, 16, 2, 24), "int8"),
                        ((1, 0, 16, 2, 64), "fp32"), ((1, 4, 16, 2, 64), "fp8")]:  # fmt: skip
        with pytest.raises(ValueError, match=r"multiples of 16|at least 1|fp32 or int8"):
            _core.KvCache(*sizes, kind)
    cache = _core.KvCache(1, 4, 16, 2, 64, "int8")
    with pytest.raises(ValueError, match="no such KV block"):
        cache.copy_blocks(np.array([0], np.int32), np.array([4], np.int32))
    batch = Batch([(2, 30)])
    with pytest.raises(ValueError, match="no such layer"):
        run(batch, cache_of(batch), layer=3)
