"""How far rounded weights and caches change the default model's answers.

    python benchmarks/agreement.py DIR --json

The first tokens of each text file in DIR are read with their true continuation (teacher-forced), in
float32 and in each kind of weights. Printed is the share of positions at which the likeliest next
token is the same as in float32, the perplexity relative to float32's, and the mean divergence
KL(float32 || rounded) in 1/1000 nat, in which independent causes add up.

With --by-cause instead one thing at a time is rounded, everything else being float32: the weights
of each part to int8, the cache to int8, weights or weights and activations to bfloat16.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from pagemill import _core
from pagemill.engine import store
from pagemill.engine.config import EngineConfig, set_thread_environment
from pagemill.engine.model.attention import BatchLayout
from pagemill.engine.model.native import KvKind, NativeDecoder, WeightKind
from pagemill.engine.tokenizer import Tokenizer
from torch.nn import functional

BLOCK_SIZE = 16


def logits_of(decoder: NativeDecoder, ids: list[int], kv: KvKind) -> torch.Tensor:
    """Logits [tokens, vocabulary] of one text, computed in one step."""
    count = len(ids)
    blocks = -(-count // BLOCK_SIZE)
    positions = np.arange(count, dtype=np.int32)
    layout = BatchLayout(
        slot_mapping=positions,
        block_tables=np.arange(blocks, dtype=np.int32)[None],
        slots=np.zeros(1, np.int32),
        query_start=np.array([0, count], np.int32),
        context_lens=np.array([count], np.int32),
    )
    cache = decoder.allocate_cache(blocks, BLOCK_SIZE, kv)
    return decoder.forward(cache, np.array(ids, np.int32), positions, layout, positions)


class Comparison:
    """Counts over the texts."""

    def __init__(self) -> None:
        self.tokens = self.same = 0
        self.loss = self.exact_loss = self.divergence = 0.0

    def add(self, ids: list[int], exact: torch.Tensor, found: torch.Tensor) -> None:
        self.tokens += len(ids) - 1
        self.same += int((exact[:-1].argmax(1) == found[:-1].argmax(1)).sum())
        target = torch.tensor(ids[1:], dtype=torch.long)
        one, other = exact[:-1].log_softmax(1), found[:-1].log_softmax(1)
        self.exact_loss += functional.nll_loss(one, target, reduction="sum").item()
        self.loss += functional.nll_loss(other, target, reduction="sum").item()
        self.divergence += functional.kl_div(other, one, reduction="sum", log_target=True).item()

    def figures(self) -> dict[str, float]:
        return {
            "agreement": round(self.same / self.tokens, 4),
            "perplexity_ratio": round(math.exp((self.loss - self.exact_loss) / self.tokens), 4),
            "divergence": round(1e3 * self.divergence / self.tokens, 3),
            "tokens": self.tokens,
        }


# What is rounded: the kind of the decoder, the names of parameters that are rounded to int8
# beforehand, and the cache.
Cause = tuple[WeightKind, str, KvKind]
CAUSES: dict[str, Cause] = {
    "weights": ("fp32", ".*", "fp32"),
    "weights but head": ("fp32", "layers.*", "fp32"),
    "embedding and head": ("fp32", "(head|embedding).*", "fp32"),
    "qkv": ("fp32", "layers.*qkv.*", "fp32"),
    "attention output": ("fp32", "layers.*output.*", "fp32"),
    "gate_up": ("fp32", "layers.*gate_up.*", "fp32"),
    "down": ("fp32", "layers.*down.*", "fp32"),
    "first layer": ("fp32", r"layers\.0\..*", "fp32"),
    "last layer": ("fp32", r"layers\.29\..*", "fp32"),
    "cache": ("fp32", "", "int8"),
    "bfloat16": ("bf16", "", "fp32"),
    "bfloat16, int8 cache": ("bf16", "", "int8"),
    "int8, fp32 cache": ("int8", "", "fp32"),
    "all": ("int8", "", "int8"),
}


def rounder(pattern: str) -> Callable[[str, torch.Tensor], torch.Tensor]:
    """A change of parameters: matrices whose name matches are rounded to int8 as a product does."""

    def change(name: str, weight: torch.Tensor) -> torch.Tensor:
        if weight.dim() < 2 or not re.fullmatch(pattern, name):
            return weight
        rounded = torch.empty_like(weight)
        matrix = _core.PackedMatrix(weight.data_ptr(), *weight.shape, "int8")
        matrix.unpack(rounded.data_ptr())
        return rounded

    return change


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="text files, *.txt")
    parser.add_argument("--model", default=EngineConfig.model)
    parser.add_argument("--limit", type=int, default=16, help="files")
    parser.add_argument("--tokens", type=int, default=512, help="of each file")
    parser.add_argument("--kinds", nargs="+", choices=["bf16", "int8"], default=["bf16", "int8"])
    parser.add_argument("--kv", nargs="+", choices=["fp32", "int8"], default=["fp32", "int8"])
    parser.add_argument("--sets", nargs="+", default=[_core.instruction_set()])
    parser.add_argument("--by-cause", action="store_true", help="one rounding at a time")
    parser.add_argument("--only", nargs="+", choices=CAUSES, help="of the causes only these")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="figures as the last line of output")
    arguments = parser.parse_args()

    config = EngineConfig(threads=arguments.threads)
    set_thread_environment(config)
    _core.set_num_threads(config.num_threads())
    files = store.resolve(arguments.model)
    tokenizer = Tokenizer.load(files.directory)
    paths = sorted(arguments.folder.glob("*.txt"))[: arguments.limit]
    if not paths:
        parser.error(f"no text file in {arguments.folder}")
    texts = [tokenizer.encode(path.read_text(encoding="utf-8")) for path in paths]
    texts = [list(ids[: arguments.tokens]) for ids in texts if len(ids) > 1]
    variants: dict[str, tuple[str, Cause]] = {}
    if arguments.by_cause:
        for name in arguments.only or CAUSES:
            variants[name] = (_core.instruction_set(), CAUSES[name])
    else:
        for name in arguments.sets:
            for kind in arguments.kinds:
                for kv in arguments.kv:
                    variants[f"{name} {kind}, {kv} cache"] = (name, (kind, "", kv))

    exact = NativeDecoder(files, "fp32")
    started = time.monotonic()
    # Kept in 16 bits it would be less; 49,152 logits for each of some thousand tokens are 1 GB.
    expected = [logits_of(exact, ids, "fp32").clone() for ids in texts]
    figures: dict[str, dict[str, float]] = {}
    decoder, built = exact, ("fp32", "")
    for key, (name, (kind, pattern, kv)) in variants.items():
        if built != (kind, pattern):
            decoder, built = NativeDecoder(files, kind, rounder(pattern)), (kind, pattern)
        comparison = Comparison()
        _core.use_instruction_set(name)
        for ids, logits in zip(texts, expected, strict=True):
            comparison.add(ids, logits, logits_of(decoder, ids, kv))
        _core.use_instruction_set(_core.instruction_sets()[-1])
        figures[key] = comparison.figures()
        text = f"{key:28s} {figures[key]}, {time.monotonic() - started:.0f} s"
        print(text, file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
