"""The C++ attention kernel against plain softmax attention, over every instruction set."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pagemill import _core


@pytest.fixture(autouse=True, params=_core.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _core.instruction_set()
    _core.use_instruction_set(request.param)
    yield request.param
    _core.use_instruction_set(before)


class Batch:
    """Random rows over a random cache; `rows` are (query tokens, earlier tokens)."""

    def __init__(
        self,
        rows: list[tuple[int, int]],
        *,
        num_kv_heads: int = 2,
        group: int = 3,
        head_dim: int = 64,
        block_size: int = 16,
        seed: int = 0,
    ) -> None:
        random = np.random.default_rng(seed)
        self.scale = head_dim**-0.5
        contexts = [new + old for new, old in rows]
        blocks = [-(-context // block_size) for context in contexts]
        self.num_blocks = sum(blocks) + 1
        order = random.permutation(self.num_blocks).astype(np.int32)
        self.block_tables = np.full((len(rows) + 2, max([*blocks, 1])), -1, np.int32)
        # Slots don't follow the rows' order.
        self.slots = random.permutation(len(rows) + 2)[: len(rows)].astype(np.int32)
        for slot, count in zip(self.slots, blocks, strict=True):
            self.block_tables[slot, :count], order = order[:count], order[count:]
        self.query_start = np.cumsum([0, *(new for new, _ in rows)]).astype(np.int32)
        self.context_lens = np.array(contexts, np.int32)
        tokens, heads = int(self.query_start[-1]), num_kv_heads * group
        shape = (self.num_blocks, block_size, num_kv_heads, head_dim)
        self.query = random.normal(0, 2, (tokens, heads, head_dim)).astype(np.float32)
        self.keys = random.normal(0, 1, shape).astype(np.float32)
        self.values = random.normal(0, 1, shape).astype(np.float32)
        self.out = np.full(self.query.shape, np.nan, np.float32)

    def run(self, **changes: Any) -> NDArray[np.float32]:
        _, block_size, num_kv_heads, head_dim = self.keys.shape
        arguments: dict[str, Any] = {
            "query": self.query.ctypes.data,
            "query_stride": self.query.strides[0] // 4,
            "key_cache": self.keys.ctypes.data,
            "value_cache": self.values.ctypes.data,
            "out": self.out.ctypes.data,
            "block_tables": self.block_tables,
            "slots": self.slots,
            "query_start": self.query_start,
            "context_lens": self.context_lens,
            "num_blocks": self.num_blocks,
            "num_heads": self.query.shape[1],
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "block_size": block_size,
            "scale": self.scale,
        }
        _core.paged_attention(**(arguments | changes))
        return self.out

    def expected(self) -> NDArray[np.float64]:
        """Softmax attention in float64, a row and a head at a time."""
        _, block_size, num_kv_heads, _ = self.keys.shape
        group = self.query.shape[1] // num_kv_heads
        out = np.empty(self.query.shape)
        for row, slot in enumerate(self.slots):
            context = int(self.context_lens[row])
            table = self.block_tables[slot, : -(-context // block_size)]
            keys = self.keys[table].reshape(-1, *self.keys.shape[2:])[:context].astype(np.float64)
            values = self.values[table].reshape(-1, *self.values.shape[2:])[:context]
            start, end = self.query_start[row], self.query_start[row + 1]
            for token in range(start, end):
                seen = context - (end - token) + 1
                for head in range(self.query.shape[1]):
                    scores = keys[:seen, head // group] @ self.query[token, head] * self.scale
                    weights = np.exp(scores - scores.max())
                    out[token, head] = weights @ values[:seen, head // group] / weights.sum()
        return out


def assert_right(batch: Batch) -> None:
    np.testing.assert_allclose(batch.run(), batch.expected(), rtol=2e-5, atol=2e-5)


ROWS = {
    "one token": [(1, 0)],
    "decode": [(1, 5), (1, 63), (1, 64), (1, 200)],
    "whole prompts": [(5, 0), (16, 0), (64, 0), (130, 0)],
    "chunks": [(17, 31), (40, 100), (1, 15), (64, 64)],
    "row without queries": [(3, 4), (0, 20), (2, 0)],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_matches_softmax_attention(rows: list[tuple[int, int]]) -> None:
    assert_right(Batch(rows))


@pytest.mark.parametrize("head_dim", [2, 8, 20, 24, 80, 128])
@pytest.mark.parametrize(("num_kv_heads", "group"), [(1, 1), (3, 3), (1, 64)])
def test_any_shape_of_heads(head_dim: int, num_kv_heads: int, group: int) -> None:
    rows = [(9, 60), (1, 33)]
    assert_right(Batch(rows, num_kv_heads=num_kv_heads, group=group, head_dim=head_dim))


@pytest.mark.parametrize("block_size", [1, 4, 32, 100])
def test_any_block_size(block_size: int) -> None:
    assert_right(Batch([(20, 90), (1, 150)], block_size=block_size))


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 90)), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
)
def test_random_batches(rows: list[tuple[int, int]], seed: int) -> None:
    assert_right(Batch(rows, head_dim=16, seed=seed))


def test_queries_within_a_fused_product() -> None:
    batch = Batch([(9, 20), (1, 30)])
    wide = np.random.default_rng(1).normal(size=(10, 10, 64)).astype(np.float32)
    batch.query = wide[:, :6]
    assert_right(batch)


def test_large_scores_stay_finite() -> None:
    batch = Batch([(30, 100)])
    batch.query *= 200
    out = batch.run()
    assert np.isfinite(out).all()
    np.testing.assert_allclose(out, batch.expected(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing(threads: int) -> None:
    batch = Batch([(50, 10), (1, 99), (1, 3)])
    before = batch.run().copy()
    _core.set_num_threads(threads)
    try:
        np.testing.assert_array_equal(batch.run(), before)
    finally:
        _core.set_num_threads(2)


def test_calls_from_several_threads() -> None:
    batches = [Batch([(20, 30), (1, 80)], seed=seed) for seed in range(6)]

    def work(batch: Batch) -> None:
        for _ in range(20):
            batch.run()

    threads = [threading.Thread(target=work, args=(batch,)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for batch in batches:
        np.testing.assert_allclose(batch.out, batch.expected(), rtol=2e-5, atol=2e-5)


def wrong(**arrays: list[int]) -> dict[str, Any]:
    return {name: np.array(values, np.int32) for name, values in arrays.items()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query_stride": 100}, "query_stride"),
        (wrong(slots=[99, 0]), "slot"),
        (wrong(slots=[-1, 0]), "slot"),
        (wrong(slots=[0]), "different batches"),
        (wrong(query_start=[0, 3, 2]), "must not fall"),
        (wrong(query_start=[1, 2, 3]), "begin with 0"),
        (wrong(context_lens=[1, 4]), "more queries than context"),
        (wrong(context_lens=[2_000_000_000, 4]), "past the block table"),
        ({"num_blocks": 1}, "block id"),
        ({"num_blocks": 0}, "empty cache"),
        ({"num_heads": 5}, "heads"),
        ({"head_dim": 1000}, "head_dim"),
        ({"query": 0}, "null"),
        ({"slots": np.array([[0, 1]], np.int32)}, "one dimension"),
    ],
)
def test_wrong_layouts_are_refused(changes: dict[str, Any], message: str) -> None:
    batch = Batch([(2, 30), (1, 40)])
    with pytest.raises(ValueError, match=message):
        batch.run(**changes)
    assert np.isnan(batch.out).all()


def test_arrays_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError):
        Batch([(2, 30)]).run(slots=np.array([0], np.int64))


def test_pool_sizes_and_names_are_checked() -> None:
    for count in (0, -1, 1000):
        with pytest.raises(ValueError, match="1 to 256"):
            _core.set_num_threads(count)
    with pytest.raises(ValueError, match="instruction set"):
        _core.use_instruction_set("sse9")
