"""How near the CPU kernels come to what the machine can do.

    python benchmarks/kernels.py --json

Peaks are measured first, each over all threads: multiply-adds in float32, products of bfloat16
added in float32 and products of 16-bit numbers added in 32 bits, from registers to registers, and
bytes read from memory. A kernel is held against the peak of the arithmetic that it uses: int8
weights and an int8 KV cache are computed in bfloat16 where there are tiles, else in 16-bit numbers.
Then come each kernel of the default model alone, and the whole decoder, prefill only and decode
only; of that also what its kernels take alone, and what is left.

GFLOP/s count two operations for a multiplication and its addition; GB/s count weights, or the K and
V that have to be read. `share` is the time that the roofline allows (the longer of operations at
their peak and bytes at theirs; for whole runs the sum of that over the kernels) / the time taken.
Of a kernel alone it may be above 1: one product's weights stay in a cache, as they don't in a run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pagemill import _core
from pagemill.engine import store
from pagemill.engine.config import EngineConfig, set_thread_environment
from pagemill.engine.model.attention import BatchLayout
from pagemill.engine.model.config import ModelConfig
from pagemill.engine.model.native import KvKind, NativeDecoder, WeightKind

_F32 = NDArray[np.float32]
Figures = Iterator[tuple[str, dict[str, Any]]]

BLOCK_SIZE = 16
BFLOAT16_IN_INT8 = ("qkv", "down", "head")  # what a decoder of int8 weights keeps in bfloat16
WEIGHT_BYTES = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0 + 1 / 32}


_clock = time.perf_counter


def best_s(work: Callable[[], object], seconds: float) -> float:
    """The shortest of several calls, after one that isn't counted."""
    work()
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = _clock()
        work()
        times.append(_clock() - start)
    return min(times)


@dataclass(frozen=True)
class Machine:
    """Measured peaks: billions of operations by kind of number, and of bytes, a second."""

    fp32: float
    bf16: float
    int16: float
    read: float

    @classmethod
    def measure(cls, seconds: float) -> Machine:
        names = ("fp32", "bf16", "int16", "read")
        return cls(*(max(_core.measure_peak(name, seconds) for _ in range(3)) for name in names))

    def least_s(self, kind: str, operations: float, size: float) -> float:
        """What the roofline allows for `operations` on weights or K/V of a kind."""
        tiles = _core.instruction_set() == "amx"
        peak = {"fp32": self.fp32, "bf16": self.bf16, "int8": self.bf16 if tiles else self.int16}
        return max(operations / peak[kind], size / self.read) / 1e9


def products(config: ModelConfig) -> list[tuple[str, int, int, int]]:
    """The model's matrix products: name, inputs, outputs, how often."""
    query = config.num_heads * config.head_dim
    kv = config.num_kv_heads * config.head_dim
    hidden, inner, layers = config.hidden_size, config.intermediate_size, config.num_layers
    return [
        ("qkv", hidden, query + 2 * kv, layers),
        ("attention output", query, hidden, layers),
        ("gate_up", hidden, 2 * inner, layers),
        ("down", inner, hidden, layers),
        ("head", hidden, config.vocab_size, 1),
    ]


def row(machine: Machine, kind: str, operations: float, size: float, took: float) -> dict[str, Any]:
    return {
        "gflops": operations / took / 1e9,
        "gb_per_s": size / took / 1e9,
        "us": took * 1e6,
        "share": machine.least_s(kind, operations, size) / took,
    }


def measure_product(
    machine: Machine, kind: str, weight: _F32, count: int, seconds: float
) -> dict[str, Any]:
    outputs, inputs = weight.shape
    matrix = _core.PackedMatrix(weight.ctypes.data, outputs, inputs, kind)
    x = np.ones((count, inputs), np.float32)
    out = np.empty((count, outputs), np.float32)
    took = best_s(lambda: matrix.multiply(x.ctypes.data, count, out.ctypes.data), seconds)
    return row(machine, kind, 2.0 * count * inputs * outputs, matrix.num_bytes, took)


def measure_products(
    machine: Machine, config: ModelConfig, kinds: list[str], rows: list[int], seconds: float
) -> Figures:
    random = np.random.default_rng(0)
    for kind in kinds:
        for name, inputs, outputs, _ in products(config):
            weight = random.normal(size=(outputs, inputs)).astype(np.float32)
            for count in rows:
                found = measure_product(machine, kind, weight, count, seconds)
                yield f"{kind} {name} x{count}", found


@dataclass(frozen=True)
class Rows:
    """A step's rows: `tokens` new ones each, `context` with them, the first `shared` in common."""

    count: int
    tokens: int
    context: int
    shared: int = 0

    def arrays(self) -> dict[str, NDArray[np.int32]]:
        blocks = -(-self.context // BLOCK_SIZE)
        tables = np.arange(self.count * blocks, dtype=np.int32).reshape(self.count, blocks)
        tables[:, : self.shared // BLOCK_SIZE] = tables[0, : self.shared // BLOCK_SIZE]
        return {
            "block_tables": np.ascontiguousarray(tables),
            "slots": np.arange(self.count, dtype=np.int32),
            "query_start": np.arange(self.count + 1, dtype=np.int32) * self.tokens,
            "context_lens": np.full(self.count, self.context, np.int32),
        }

    def pairs(self) -> float:
        """Pairs of a query and a position that it sees."""
        earlier = self.context - self.tokens
        return self.count * (self.tokens * earlier + self.tokens * (self.tokens + 1) / 2)

    def attention(self, config: ModelConfig, kv: str) -> tuple[float, float]:
        """Operations of one layer, and bytes of K and V that it has to read once."""
        operations = 4.0 * self.pairs() * config.num_heads * config.head_dim
        positions = self.shared + self.count * (self.context - self.shared)
        per_block = _core.KvCache.bytes_per_block(
            1, BLOCK_SIZE, config.num_kv_heads, config.head_dim, kv
        )
        return operations, positions * per_block / BLOCK_SIZE


def measure_one_attention(
    machine: Machine, config: ModelConfig, kv: str, rows: Rows, seconds: float
) -> dict[str, Any]:
    random = np.random.default_rng(0)
    arrays = rows.arrays()
    num_blocks = int(arrays["block_tables"].max()) + 1
    heads, kv_heads, dim = config.num_heads, config.num_kv_heads, config.head_dim
    shape = (num_blocks * BLOCK_SIZE, kv_heads, dim)
    keys, values = (random.normal(size=shape).astype(np.float32) for _ in range(2))
    query = random.normal(size=(rows.count * rows.tokens, heads, dim)).astype(np.float32)
    out = np.empty_like(query)
    pointers = query.ctypes.data, keys.ctypes.data, values.ctypes.data, out.ctypes.data
    cache = _core.KvCache(1, num_blocks, BLOCK_SIZE, kv_heads, dim, kv)
    cache.write(0, np.arange(len(keys), dtype=np.int32), pointers[1], pointers[2])

    def on_integers() -> None:
        _core.quantized_attention(
            cache, 0, pointers[0], pointers[3], **arrays, num_heads=heads, scale=dim**-0.5
        )

    def on_floats() -> None:
        _core.paged_attention(
            pointers[0],
            heads * dim,
            *pointers[1:],
            **arrays,
            num_blocks=num_blocks,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=dim,
            block_size=BLOCK_SIZE,
            scale=dim**-0.5,
        )

    took = best_s(on_integers if kv == "int8" else on_floats, seconds)
    return row(machine, kv, *rows.attention(config, kv), took)


def measure_attention(
    machine: Machine, config: ModelConfig, steps: dict[str, Rows], seconds: float
) -> Figures:
    for kv in ("int8", "fp32"):
        for name, rows in steps.items():
            found = measure_one_attention(machine, config, kv, rows, seconds)
            yield f"{kv} attention, {name}", found


def measure_step(
    machine: Machine, decoder: NativeDecoder, kind: WeightKind, rows: Rows, seconds: float
) -> dict[str, Any]:
    config = decoder.config
    kv: KvKind = "fp32" if kind == "fp32" else "int8"
    arrays = rows.arrays()
    num_tokens = rows.count * rows.tokens
    new = np.arange(rows.context - rows.tokens, rows.context, dtype=np.int32)
    positions = np.tile(new, rows.count)
    blocks = arrays["block_tables"][:, new // BLOCK_SIZE].reshape(-1)
    layout = BatchLayout((blocks * BLOCK_SIZE + positions % BLOCK_SIZE).astype(np.int32), **arrays)
    cache = decoder.allocate_cache(int(arrays["block_tables"].max()) + 1, BLOCK_SIZE, kv)
    ids = np.arange(num_tokens, dtype=np.int32) % config.vocab_size
    last = arrays["query_start"][1:] - 1
    took = best_s(lambda: decoder.forward(cache, ids, positions, layout, last), seconds)
    least = config.num_layers * machine.least_s(kv, *rows.attention(config, kv))
    attention = measure_one_attention(machine, config, kv, rows, seconds / 4)
    parts = {"attention_ms": config.num_layers * attention["us"] / 1e3}
    random = np.random.default_rng(0)
    for product, inputs, outputs, often in products(config):
        count = rows.count if product == "head" else num_tokens
        held = "bf16" if kind == "int8" and product in BFLOAT16_IN_INT8 else kind
        size = inputs * outputs * WEIGHT_BYTES[held]
        least += often * machine.least_s(held, 2.0 * count * inputs * outputs, size)
        weight = random.normal(size=(outputs, inputs)).astype(np.float32)
        alone = measure_product(machine, held, weight, count, seconds / 4)
        parts[f"{product.replace(' ', '_')}_ms"] = often * alone["us"] / 1e3
    whole = {"ms": took * 1e3, "tokens_per_s": num_tokens / took, "share": least / took}
    return whole | parts | {"rest_ms": took * 1e3 - sum(parts.values())}


def measure_decoder(
    machine: Machine,
    files: store.ModelFiles,
    kinds: list[WeightKind],
    steps: dict[str, Rows],
    seconds: float,
) -> Figures:
    """Whole forward passes: what of the kernels' roofline they reach together."""
    for kind in kinds:
        start = time.perf_counter()
        decoder = NativeDecoder(files, kind)
        took = time.perf_counter() - start
        yield f"{kind} decoder, loading", {"ms": took * 1e3, "mib": decoder.num_bytes / 2**20}
        for name, rows in steps.items():
            yield f"{kind} decoder, {name}", measure_step(machine, decoder, kind, rows, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=EngineConfig.model)
    parser.add_argument(
        "--kinds", nargs="+", choices=["int8", "bf16", "fp32"], default=["int8", "bf16", "fp32"]
    )
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16, 64, 512])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="count one thread's processor time, for a machine that others use too",
    )
    parser.add_argument("--set", choices=_core.instruction_sets(), help="instruction set")
    parser.add_argument("--only-decoder", action="store_true", help="whole forward passes alone")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each figure")
    parser.add_argument("--plot", help="write a roofline picture (SVG) to this file")
    parser.add_argument("--json", action="store_true", help="figures as the last line of output")
    arguments = parser.parse_args()

    if arguments.processor_time:
        global _clock
        _clock, arguments.threads = time.thread_time, 1
    config = EngineConfig(threads=arguments.threads)
    set_thread_environment(config)
    _core.set_num_threads(config.num_threads())
    if arguments.set:
        _core.use_instruction_set(arguments.set)
    files = store.resolve(arguments.model)
    model = ModelConfig.load(files.directory)
    machine = Machine.measure(arguments.seconds)
    print(
        f"peaks of {config.num_threads()} thread(s): fp32 {machine.fp32:.0f} GFLOP/s, "
        f"bf16 {machine.bf16:.0f}, int16 {machine.int16:.0f} GOP/s, read {machine.read:.1f} GB/s",
        file=sys.stderr,
    )
    prefill = {"prefill of 512": Rows(1, 512, 512), "512 behind 2,560": Rows(1, 512, 3072)}
    contexts = {
        f"decode of 32 at {context:,}": Rows(32, 1, context) for context in (500, 1000, 2000)
    }
    decode = {
        "decode of 1": Rows(1, 1, 1400),
        "decode of 32": Rows(32, 1, 1400),
        "decode of 32, 304 shared": Rows(32, 1, 1400, 304),
        "32 x 4 drafts, 304 shared": Rows(32, 4, 1400, 304),
    }
    results: dict[str, dict[str, Any]] = {}
    figures = [
        measure_decoder(machine, files, arguments.kinds, prefill | decode, arguments.seconds)
    ]
    if not arguments.only_decoder:
        figures = [
            measure_products(machine, model, arguments.kinds, arguments.rows, arguments.seconds),
            measure_attention(machine, model, prefill | decode | contexts, arguments.seconds),
            *figures,
        ]
    for found in figures:
        for name, values in found:
            results[name] = values
            text = ", ".join(f"{key} {value:.4g}" for key, value in values.items())
            print(f"{name:44s} {text}", file=sys.stderr, flush=True)
    peaks = {
        "fp32_gflops": machine.fp32,
        "bf16_gflops": machine.bf16,
        "int16_gops": machine.int16,
        "read_gb_per_s": machine.read,
    }
    if arguments.plot:
        from roofline import draw

        draw(arguments.plot, peaks, results)
    if arguments.json:
        print(json.dumps({"threads": config.num_threads(), "peaks": peaks, "kernels": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
