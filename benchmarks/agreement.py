"""How far rounded weights and caches change the default model's answers.

    python benchmarks/agreement.py DIR --json

The first tokens of each text file in DIR are read with their true continuation (teacher-forced), in
float32 and in each kind of weights. Printed is the share of positions at which the likeliest next
token is the same as in float32, and the perplexity relative to float32's.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
from pagemill import _core
from pagemill.engine import store
from pagemill.engine.config import EngineConfig, set_thread_environment
from pagemill.engine.model.attention import BatchLayout
from pagemill.engine.model.native import KvKind, NativeDecoder
from pagemill.engine.tokenizer import Tokenizer

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
        self.loss = self.exact_loss = 0.0

    def add(self, ids: list[int], exact: torch.Tensor, found: torch.Tensor) -> None:
        self.tokens += len(ids) - 1
        self.same += int((exact[:-1].argmax(1) == found[:-1].argmax(1)).sum())
        target = torch.tensor(ids[1:], dtype=torch.long)
        self.exact_loss += torch.nn.functional.cross_entropy(
            exact[:-1], target, reduction="sum"
        ).item()
        self.loss += torch.nn.functional.cross_entropy(found[:-1], target, reduction="sum").item()

    def figures(self) -> dict[str, float]:
        return {
            "agreement": round(self.same / self.tokens, 4),
            "perplexity_ratio": round(math.exp((self.loss - self.exact_loss) / self.tokens), 4),
            "tokens": self.tokens,
        }


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
    exact = NativeDecoder(files, "fp32")
    decoders = {kind: NativeDecoder(files, kind) for kind in arguments.kinds}
    found = {
        f"{name} {kind}, {kv} cache": Comparison()
        for name in arguments.sets
        for kind in arguments.kinds
        for kv in arguments.kv
    }
    for ids in texts:
        expected = logits_of(exact, ids, "fp32").clone()
        for key, comparison in found.items():
            name, kind, kv, _ = key.replace(",", "").split()
            _core.use_instruction_set(name)
            comparison.add(ids, expected, logits_of(decoders[kind], ids, kv))  # type: ignore[arg-type]
        _core.use_instruction_set(_core.instruction_sets()[-1])
    figures = {key: comparison.figures() for key, comparison in found.items()}
    for key, values in figures.items():
        print(f"{key:28s} {values}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
