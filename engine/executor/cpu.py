"""Runs plans on the CPU with the C++ kernels."""

from __future__ import annotations

import time

import numpy as np
import torch
from numpy.typing import NDArray
from pagemill._core import KvCache
from torch import Tensor

from ..model.native import NativeDecoder
from .batch import Batch
from .rows import StepRows, Wanted
from .torch import ModelExecutor

_I32 = NDArray[np.int32]
_MOST_SPARSE = 128  # ids of a mask whose logits alone are computed


class CpuExecutor(ModelExecutor):
    """A native decoder and its paged KV cache: a step's forward pass is one call."""

    def __init__(
        self,
        batch: Batch,
        decoder: NativeDecoder,
        cache: KvCache,
        *,
        sparse_logits: bool = True,
    ) -> None:
        super().__init__(batch, decoder.config.vocab_size, torch.device("cpu"))
        self.most_sparse = _MOST_SPARSE if sparse_logits else 0
        self._decoder = decoder
        self._cache = cache
        self._forward_s = 0.0
        self._lines = self._sparse_lines = 0

    def logits(self, rows: StepRows, wanted: Wanted) -> Tensor:
        started = time.perf_counter()
        logits = self._decoder.forward(
            self._cache,
            rows.token_ids,
            rows.positions,
            self.layout_of(rows),
            wanted.places,
            wanted.num_sparse,
            wanted.outputs,
        )
        self._lines += len(wanted.places)
        self._sparse_lines += wanted.num_sparse
        self._forward_s += time.perf_counter() - started
        return logits

    def counters(self) -> dict[str, int]:
        """`forward_us`: time spent in the decoder; `logit_rows`, and the sparse ones of them."""
        return {
            "forward_us": int(self._forward_s * 1e6),
            "logit_rows": self._lines,
            "sparse_logit_rows": self._sparse_lines,
        }

    def copy_blocks(self, sources: _I32, targets: _I32) -> None:
        self._cache.copy_blocks(sources, targets)
