"""The packed matrix product and the elementwise kernels against numpy, in every instruction set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from pagemill import _core

F32 = NDArray[np.float32]


@pytest.fixture(autouse=True, params=_core.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[None]:
    before = _core.instruction_set()
    _core.use_instruction_set(request.param)
    yield
    _core.use_instruction_set(before)


def numbers(*shape: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def quantized(rows: F32, limit: int) -> NDArray[np.float64]:
    """Each row rounded so that its largest magnitude becomes `limit`, as the kernels do it."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    inverse = np.divide(np.float32(limit), largest, out=np.zeros_like(largest), where=largest > 0)
    return np.rint(rows * inverse).astype(np.float64) * (largest / np.float32(limit))


def multiply(
    weight: F32, rows: F32, kind: str, bias: F32 | None = None, residual: F32 | None = None
) -> F32:
    matrix = _core.PackedMatrix(weight.ctypes.data, *weight.shape, kind)
    assert (matrix.outputs, matrix.inputs) == weight.shape
    out = np.full((len(rows), len(weight)), np.nan, np.float32)
    if residual is not None:
        out[:] = residual
    matrix.multiply(
        rows.ctypes.data,
        len(rows),
        out.ctypes.data,
        0 if bias is None else bias.ctypes.data,
        residual is not None,
    )
    return out


SHAPES = [(1, 1), (16, 8), (17, 3), (5, 31), (100, 64), (33, 577)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("num_rows", [1, 2, 5, 6, 7, 13, 200])
def test_float32_product(shape: tuple[int, int], num_rows: int) -> None:
    weight, rows = numbers(*shape), numbers(num_rows, shape[1], seed=1)
    expected = rows.astype(np.float64) @ weight.T
    np.testing.assert_allclose(multiply(weight, rows, "fp32"), expected, rtol=1e-5, atol=1e-4)


def quantized_weights(weight: F32) -> NDArray[np.float64]:
    """Bytes times a whole factor (1 to 31) for each 32 inputs, times a scale for each output."""
    out = np.zeros(weight.shape)
    scale = np.abs(weight).max(axis=1, keepdims=True) / np.float32(127 * 31)
    scale[scale == 0] = 1
    for first in range(0, weight.shape[1], 32):
        group = weight[:, first : first + 32]
        steps = np.abs(group).max(axis=1, keepdims=True) / (127 * scale)
        step = np.clip(np.ceil(steps - 1e-4), 1, 31) * scale
        out[:, first : first + 32] = np.clip(np.rint(group / step), -127, 127) * step
    return out


def bfloat16(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Rounded to the nearest bfloat16, ties to even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def takes_pairs(kind: str, num_rows: int) -> bool:
    """Whether the set in use multiplies pairs of bfloat16, so that rows are rounded to them."""
    name = _core.instruction_set()
    return name in ("avx512", "amx") if kind == "bf16" else name == "amx" and num_rows > 4


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("num_rows", [1, 6, 13, 70])
def test_int8_product_is_exact_but_for_its_rounding(shape: tuple[int, int], num_rows: int) -> None:
    weight, rows = numbers(*shape), numbers(num_rows, shape[1], seed=1)
    weight[:, ::5] *= 4  # groups of different size
    expected = quantized(rows, 2047) @ quantized_weights(weight).T
    found = multiply(weight, rows, "int8")
    # A weight that lies between two steps may be rounded either way.
    tolerance = 1e-4
    if takes_pairs("int8", num_rows):
        # Bytes times factors are rounded to 8 binary digits, in rare cases next to a tie.
        expected = bfloat16(rows) @ quantized_weights(weight).T
        tolerance = 4e-3
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=np.abs(expected).max() * tolerance)


@pytest.mark.parametrize("shape", [*SHAPES, (49, 97)], ids=str)
def test_weights_are_read_back_as_they_were_rounded(shape: tuple[int, int]) -> None:
    weight = numbers(*shape)
    for kind, expected in (
        ("fp32", weight),
        ("bf16", bfloat16(weight)),
        ("int8", quantized_weights(weight)),
    ):
        found = np.full_like(weight, np.nan)
        _core.PackedMatrix(weight.ctypes.data, *shape, kind).unpack(found.ctypes.data)
        # Beside a tie an int8 weight may be rounded either way.
        tolerance = 1.01 * np.abs(weight).max() / 127 if kind == "int8" else 0
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=tolerance)
        assert np.mean(np.isclose(found, expected, rtol=1e-5)) > 0.99 or found.size < 200


def test_large_weights_cost_their_own_group_alone() -> None:
    """Beside a weight of 3, those of 0.01 round to 0; in another group they keep their digits."""
    weight, rows = np.full((1, 64), 1e-2, np.float32), np.ones((1, 64), np.float32)
    weight[0, 40], rows[0, 40] = 3.0, 0.0
    np.testing.assert_allclose(multiply(weight, rows, "int8"), [[0.32]], rtol=0.02)


def test_int8_sums_of_many_inputs_stay_exact() -> None:
    """All products at their largest and of one sign."""
    weight, rows = np.ones((1, 65536), np.float32), np.ones((1, 65536), np.float32)
    np.testing.assert_allclose(multiply(weight, rows, "int8"), [[65536]], rtol=1e-5)


@pytest.mark.parametrize("shape", [*SHAPES, (31, 1600), (49, 97)], ids=str)
@pytest.mark.parametrize("num_rows", [1, 2, 5, 13, 16, 17, 33, 70])
def test_bfloat16_product_rounds_weights_and_rows_alone(
    shape: tuple[int, int], num_rows: int
) -> None:
    """Rows only where the instructions take pairs of bfloat16."""
    weight, rows = numbers(*shape), numbers(num_rows, shape[1], seed=1)
    left = bfloat16(rows) if takes_pairs("bf16", num_rows) else rows.astype(np.float64)
    expected = left @ bfloat16(weight).T
    np.testing.assert_allclose(multiply(weight, rows, "bf16"), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8"])
def test_every_instruction_set_agrees_with_the_portable_one(kind: str) -> None:
    """Rows from 1 to 70, outputs and inputs beside the kernels' steps."""
    used = _core.instruction_set()
    tolerance = {"fp32": 1e-5, "bf16": 8e-3, "int8": 8e-3}[kind]
    for outputs, inputs in ((37, 67), (64, 320), (95, 33)):
        weight = numbers(outputs, inputs)
        for num_rows in range(1, 71, 3):
            rows, bias = numbers(num_rows, inputs, seed=1), numbers(outputs, seed=2)
            residual = numbers(num_rows, outputs, seed=3)
            found = multiply(weight, rows, kind, bias, residual)
            _core.use_instruction_set("portable")
            expected = multiply(weight, rows, kind, bias, residual)
            _core.use_instruction_set(used)
            largest = np.abs(expected).max()
            np.testing.assert_allclose(found, expected, rtol=0, atol=largest * tolerance)


@pytest.mark.parametrize("num_rows", [3, 40])
@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_what_is_no_number_stays_in_its_row(kind: str, num_rows: int) -> None:
    weight, rows = np.abs(numbers(40, 50)) + 1, numbers(num_rows, 50, seed=1)
    expected = multiply(weight, rows, kind)
    rows[0, 7], rows[1, 49] = np.nan, np.inf
    found = multiply(weight, rows, kind)
    assert np.isnan(found[0]).all()
    assert (found[1] == np.inf).all()
    np.testing.assert_array_equal(found[2:], expected[2:])


@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8"])
def test_bias_and_residual(kind: str) -> None:
    weight, rows = numbers(50, 40), numbers(9, 40, seed=1)
    bias, residual = numbers(50, seed=2), numbers(9, 50, seed=3)
    plain = multiply(weight, rows, kind)
    np.testing.assert_allclose(multiply(weight, rows, kind, bias), plain + bias, atol=1e-5)
    both = multiply(weight, rows, kind, bias, residual)
    np.testing.assert_allclose(both, plain + bias + residual, atol=1e-5)


def test_zeros_quantize_to_zeros() -> None:
    weight, rows = numbers(20, 10), numbers(3, 10)
    weight[4] = 0
    rows[1] = 0
    out = multiply(weight, rows, "int8")
    assert np.isfinite(out).all()
    assert not out[1].any()
    assert not out[:, 4].any()


@pytest.mark.parametrize("threads", [1, 4])
def test_threads_change_nothing(threads: int) -> None:
    weight, rows = numbers(300, 96), numbers(150, 96, seed=1)
    before = multiply(weight, rows, "fp32")
    _core.set_num_threads(threads)
    try:
        np.testing.assert_array_equal(multiply(weight, rows, "fp32"), before)
    finally:
        _core.set_num_threads(2)


@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("num_rows", [0, 3, 16, 39])
def test_gates_within_the_product_are_those_after_it(kind: str, num_rows: int) -> None:
    """Where a kernel does it at once; the others leave it to silu_mul()."""
    inner, hidden = 96, 70
    weight, down = numbers(2 * inner, hidden), numbers(hidden, inner, seed=1)
    rows, bias = numbers(num_rows, hidden, seed=2), numbers(2 * inner, seed=3)
    first = _core.PackedMatrix(weight.ctypes.data, 2 * inner, hidden, kind)
    second = _core.PackedMatrix(down.ctypes.data, hidden, inner, kind)
    found = np.full((num_rows, hidden), np.nan, np.float32)
    served = first.multiply_gated(
        second, rows.ctypes.data, num_rows, found.ctypes.data, bias.ctypes.data
    )
    tiles = _core.instruction_set() == "amx" and takes_pairs(kind, num_rows)
    assert served == (tiles and kind != "fp32")
    if served:
        gate_up = multiply(weight, rows, kind, bias)
        gated = np.empty((num_rows, inner), np.float32)
        _core.silu_mul(gate_up.ctypes.data, num_rows, inner, gated.ctypes.data)
        np.testing.assert_array_equal(found, multiply(down, gated, kind))


def test_no_row_is_no_work() -> None:
    assert multiply(numbers(4, 4), numbers(0, 4), "fp32").shape == (0, 4)


def test_int8_takes_a_quarter_of_the_memory() -> None:
    weight = numbers(64, 256)
    sizes = {
        kind: _core.PackedMatrix(weight.ctypes.data, 64, 256, kind).num_bytes
        for kind in ("fp32", "bf16", "int8")
    }
    assert sizes["fp32"] == weight.nbytes == 2 * sizes["bf16"]
    assert sizes["int8"] == weight.nbytes // 4 + 64 * 4 + 64 * 256 // 32


@pytest.mark.parametrize(
    ("outputs", "inputs", "kind", "message"),
    [(0, 4, "fp32", "output"), (4, 0, "fp32", "inputs"), (4, 70_000, "int8", "65536"),
     (4, 4, "fp8", "int8")],
)  # fmt: skip
def test_wrong_matrices_are_refused(outputs: int, inputs: int, kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.PackedMatrix(numbers(4, 4).ctypes.data, outputs, inputs, kind)


@pytest.mark.parametrize(("rows", "size"), [(1, 8), (3, 1), (7, 30), (90, 576)])
def test_rms_norm(rows: int, size: int) -> None:
    x, weight = numbers(rows, size) * 3, numbers(size, seed=1)
    out = np.empty_like(x)
    _core.rms_norm(x.ctypes.data, weight.ctypes.data, 1e-5, rows, size, out.ctypes.data)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rows", "size"), [(1, 8), (3, 1), (7, 30), (40, 1536)])
def test_silu_mul(rows: int, size: int) -> None:
    gate_up = numbers(rows, 2 * size) * 10
    gate_up[0, 0] = -100  # where exp() must not overflow
    out = np.empty((rows, size), np.float32)
    _core.silu_mul(gate_up.ctypes.data, rows, size, out.ctypes.data)
    gate, up = np.split(gate_up.astype(np.float64), 2, axis=1)
    np.testing.assert_allclose(out, gate / (1 + np.exp(-gate)) * up, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("head_dim", [2, 12, 64])
def test_rotate_turns_the_first_heads_in_place(head_dim: int) -> None:
    rows = numbers(5, 4, head_dim)
    before = rows.copy()
    angles = numbers(5, head_dim // 2, seed=1)
    cos, sin = np.cos(angles), np.sin(angles)
    _core.rotate(rows.ctypes.data, 4 * head_dim, cos.ctypes.data, sin.ctypes.data, 5, 3, head_dim)
    low, high = np.split(before[:, :3], 2, axis=2)
    c, s = cos[:, None], sin[:, None]
    expected = np.concatenate([low * c - high * s, high * c + low * s], axis=2)
    np.testing.assert_allclose(rows[:, :3], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(rows[:, 3], before[:, 3])


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="rms_norm"):
        _core.rms_norm(1, 1, 1e-5, -1, 4, 1)
    with pytest.raises(ValueError, match="silu_mul"):
        _core.silu_mul(0, 1, 4, 0)
    with pytest.raises(ValueError, match="rotate"):
        _core.rotate(1, 4, 1, 1, 1, 2, 4)


def test_peaks_are_measured() -> None:
    for what in ("fp32", "bf16", "int16", "read"):
        assert _core.measure_peak(what, 0.001) > 0
    with pytest.raises(ValueError, match="a peak is"):
        _core.measure_peak("fp8", 0.001)


@pytest.mark.parametrize("size", [2, 6, 8, 24, 64, 80, 128])
def test_hadamard(size: int) -> None:
    heads = numbers(5, size)
    run = size & -size
    matrix = np.ones((1, 1))
    while len(matrix) < run:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    expected = (heads.reshape(-1, run) @ matrix / np.sqrt(run)).reshape(heads.shape)
    _core.hadamard(heads.ctypes.data, 5, size)
    np.testing.assert_allclose(heads, expected, rtol=1e-5, atol=1e-5)
