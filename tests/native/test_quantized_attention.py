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
    largest = np.abs(heads).max(axis=-1, keepdims=True)
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


def assert_right(batch: Batch, share: bool = True) -> int:
    read = run(batch, cache_of(batch), share=share)
    # Queries and weights are rounded to 16 bits.
    np.testing.assert_allclose(batch.out, batch.expected(), rtol=2e-3, atol=2e-3)
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
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-3, atol=1e-3)


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
    for other in outputs[1:]:
        np.testing.assert_allclose(other, outputs[0], rtol=1e-3, atol=1e-3)


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
    np.testing.assert_allclose(batch.out, batch.expected(), rtol=2e-3, atol=2e-3)


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
