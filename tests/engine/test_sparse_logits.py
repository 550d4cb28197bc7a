"""Where few tokens are legal only their logits are computed, the same to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagemill import _core

VOCAB, HIDDEN, HEADS, DIM, INNER = 1000, 64, 4, 16, 96


@pytest.fixture(params=_core.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _core.instruction_set()
    _core.use_instruction_set(request.param)
    yield request.param
    _core.use_instruction_set(before)


def decoder_of(kind: str) -> _core.CpuDecoder:
    """One layer of random weights."""
    rng = np.random.default_rng(5)
    decoder = _core.CpuDecoder(
        num_layers=1, hidden_size=HIDDEN, inner_size=INNER, vocab_size=VOCAB, num_heads=HEADS,
        num_kv_heads=HEADS, head_dim=DIM, rms_norm_eps=1e-5, kind=kind,
    )  # fmt: skip
    layer = "layers.0."
    for name, shape in {
        "embedding.weight": (VOCAB, HIDDEN),
        "head.weight": (VOCAB, HIDDEN),
        "norm.weight": (1, HIDDEN),
        layer + "attention_norm.weight": (1, HIDDEN),
        layer + "feed_forward_norm.weight": (1, HIDDEN),
        layer + "attention.qkv.weight": (3 * HIDDEN, HIDDEN),
        layer + "attention.output.weight": (HIDDEN, HIDDEN),
        layer + "feed_forward.gate_up.weight": (2 * INNER, HIDDEN),
        layer + "feed_forward.down.weight": (HIDDEN, INNER),
    }.items():
        values = rng.normal(size=shape).astype(np.float32)
        decoder.set(name, values.ctypes.data, *shape)
    angles = np.arange(64 * DIM // 2, dtype=np.float32)
    decoder.set_rotary(np.cos(angles).ctypes.data, np.sin(angles).ctypes.data, 64)
    return decoder


@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8"])
def test_sparse_logits_are_the_same(kind: str, instruction_set: str) -> None:
    decoder = decoder_of(kind)
    cache = _core.KvCache(1, 8, 16, HEADS, DIM, "fp32")
    # Without tiles, sums of pairs of bfloat16 are split as it suits the number of rows.
    exact = not (kind == "bf16" and instruction_set == "avx512")

    def forward(chosen: list[int], num_sparse: int, outputs: list[int]) -> Any:
        tokens = np.arange(40, dtype=np.int32)
        logits = np.full((len(chosen), VOCAB), np.nan, dtype=np.float32)
        decoder.forward(
            cache,
            tokens,
            tokens,
            tokens,
            np.arange(8, dtype=np.int32).reshape(1, 8),
            np.zeros(1, dtype=np.int32),
            np.array([0, 40], dtype=np.int32),
            np.array([40], dtype=np.int32),
            np.array(chosen, dtype=np.int32),
            logits.ctypes.data,
            num_sparse,
            np.array(outputs, dtype=np.int32),
        )
        return logits

    masks = st.one_of(
        st.sets(st.integers(0, VOCAB - 1), min_size=1, max_size=12),
        st.sets(st.integers(VOCAB - 20, VOCAB - 1), min_size=1, max_size=3),
        st.sets(st.integers(0, VOCAB - 1), min_size=100, max_size=256),
    )

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.integers(0, 39), max_size=34), st.lists(masks, min_size=1, max_size=20))
    def holds(whole: list[int], sparse: list[set[int]]) -> None:
        chosen = whole + [(7 * i) % 40 for i in range(len(sparse))]
        outputs = sorted(set().union(*sparse))
        expected = forward(chosen, 0, [])
        found = forward(chosen, len(sparse), outputs)
        same = np.testing.assert_array_equal if exact else close
        same(found[: len(whole)], expected[: len(whole)])
        same(found[len(whole) :, outputs], expected[len(whole) :, outputs])
        for row, mask in enumerate(sparse, len(whole)):
            legal = sorted(mask)
            best = [legal[int(np.argmax(logits[row, legal]))] for logits in (found, expected)]
            if exact:
                assert best[0] == best[1]

    holds()
    with pytest.raises(ValueError, match="outside the vocabulary"):
        forward([0], 1, [VOCAB])
    with pytest.raises(ValueError, match="sparse"):
        forward([0], 2, [1])


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
