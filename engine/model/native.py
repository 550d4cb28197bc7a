"""The decoder on the C++ kernels (csrc/cpu/decoder.h): weights packed once, a step in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pagemill import _core
from torch import Tensor

from ..store import ModelFiles
from .attention import BatchLayout
from .config import ModelConfig
from .rotary import Rotary
from .weights import iterate_weights

WeightKind = Literal["fp32", "bf16", "int8"]
KvKind = Literal["fp32", "int8"]

_I32 = NDArray[np.int32]
_NONE: _I32 = np.zeros(0, dtype=np.int32)


class NativeDecoder:
    """A model on the CPU kernels; the same answers as `Decoder`'s up to rounding.

    `change` may give another tensor for a parameter, by its name: for experiments with weights.
    EngineError(MODEL_INVALID) where files and decoder don't fit.
    """

    def __init__(
        self,
        files: ModelFiles,
        kind: WeightKind,
        change: Callable[[str, Tensor], Tensor] | None = None,
    ) -> None:
        self.config = config = ModelConfig.load(files.directory)
        self._decoder = _core.CpuDecoder(
            num_layers=config.num_layers,
            hidden_size=config.hidden_size,
            inner_size=config.intermediate_size,
            vocab_size=config.vocab_size,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            rms_norm_eps=config.rms_norm_eps,
            kind=kind,
        )

        def take(name: str, weight: Tensor) -> None:
            if change is not None:
                weight = change(name, weight)
            rows, columns = weight.shape if weight.dim() == 2 else (1, len(weight))
            self._decoder.set(name, weight.data_ptr(), rows, columns)

        tied = True
        for name, weight in iterate_weights(files, config):
            take(name, weight)
            tied = tied and name != "head.weight"
        if tied:
            self._decoder.tie_head()
        cos, sin = Rotary(config).tables(torch.arange(config.max_position))
        cos, sin = cos.contiguous(), sin.contiguous()
        self._decoder.set_rotary(cos.data_ptr(), sin.data_ptr(), config.max_position)
        self._logits = torch.empty((0, config.vocab_size))

    @property
    def num_bytes(self) -> int:
        """Bytes of the packed weights."""
        return self._decoder.num_bytes

    def share_prefixes(self, on: bool) -> None:
        """Whether rows that share leading blocks of an int8 cache read them together."""
        self._decoder.share_prefixes(on)

    def allocate_cache(self, num_blocks: int, block_size: int, kind: KvKind) -> _core.KvCache:
        """Return an empty KV cache; memory is taken as its blocks are first written."""
        config = self.config
        return _core.KvCache(
            config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim, kind
        )

    def forward(
        self,
        cache: _core.KvCache,
        token_ids: _I32,
        positions: _I32,
        layout: BatchLayout,
        logits_indices: _I32,
        num_sparse: int = 0,
        outputs: _I32 = _NONE,
    ) -> torch.Tensor:
        """Return float32 logits [len(logits_indices), vocab_size] of the chosen tokens.

        Of the last `num_sparse` only those of the ids in `outputs` mean anything. They stand in
        memory that the next call overwrites. ValueError where an index is out of its range;
        nothing is computed then.
        """
        count = len(logits_indices)
        if len(self._logits) < count:
            self._logits = torch.empty((count, self.config.vocab_size))
        self._decoder.forward(
            cache,
            token_ids,
            positions,
            layout.slot_mapping,
            layout.block_tables,
            layout.slots,
            layout.query_start,
            layout.context_lens,
            logits_indices,
            self._logits.data_ptr(),
            num_sparse,
            outputs,
        )
        return self._logits[:count]
