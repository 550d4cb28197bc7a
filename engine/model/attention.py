"""Attention over a paged KV cache: the face that the decoder calls, and the torch reference.

An attention object is made once for a cache. Before each forward pass `begin` gives it the
layout of the batch; then the decoder calls it once a layer. Each call first writes the K and V
of the *whole* batch into the cache and only then attends, so that rows of one step may share
blocks that one of them fills in that very step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .config import ModelConfig


@dataclass(frozen=True)
class BatchLayout:
    """Where the tokens of one step stand. A row is one request's share; all arrays are int32.

    The fields are those of the scheduler's `Plan`, so a plan's views can be handed on as they
    are; `block_tables` is the executor's persistent table.
    """

    slot_mapping: NDArray[np.int32]  # [tokens] block * block_size + offset of each token's K/V
    query_start: NDArray[np.int32]  # [rows + 1] first token of each row in the flat batch
    context_lens: NDArray[np.int32]  # [rows] tokens with K/V once this step has written its own
    slots: NDArray[np.int32]  # [rows] the row's line in block_tables
    block_tables: NDArray[np.int32]  # [slots, blocks per request]


@dataclass(frozen=True)
class KVCache:
    """K and V of all layers, each [layers, blocks, block_size, kv_heads, head_dim]."""

    key: Tensor
    value: Tensor

    @classmethod
    def allocate(
        cls,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> KVCache:
        """Return an empty cache. On the CPU its pages are touched as they are first written."""
        shape = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        return cls(
            torch.zeros(shape, dtype=dtype, device=device),
            torch.zeros(shape, dtype=dtype, device=device),
        )

    @staticmethod
    def bytes_per_block(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
        """Bytes that one block takes over all layers, K and V together."""
        per_token = config.num_layers * config.num_kv_heads * config.head_dim * dtype.itemsize
        return 2 * block_size * per_token


class Attention(Protocol):
    """What the decoder asks of an attention: see the module's docstring."""

    def begin(self, layout: BatchLayout) -> None:
        """Take the layout of the next forward pass; it must stay unchanged until that ends."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Write K/V of the batch, attend causally, and return [tokens, heads * head_dim].

        query [tokens, heads, head_dim] and key, value [tokens, kv_heads, head_dim] carry their
        rotary embedding already.
        """


class PagedAttention:
    """The reference: plain torch on any device, row after row."""

    def __init__(self, config: ModelConfig, cache: KVCache) -> None:
        self._key, self._value = cache.key, cache.value
        self._block_size = cache.key.shape[2]
        self._group = config.num_heads // config.num_kv_heads
        self._scale = config.head_dim**-0.5
        self._slot_mapping = torch.empty(0, dtype=torch.int64)
        self._rows: list[tuple[int, int, int, Tensor]] = []

    def begin(self, layout: BatchLayout) -> None:
        """Take the layout of the next forward pass."""
        device = self._key.device
        self._slot_mapping = torch.from_numpy(layout.slot_mapping.astype(np.int64)).to(device)
        self._rows = []
        for row, slot in enumerate(layout.slots):
            start, end = int(layout.query_start[row]), int(layout.query_start[row + 1])
            context = int(layout.context_lens[row])
            num_blocks = -(-context // self._block_size)
            blocks = torch.from_numpy(layout.block_tables[slot, :num_blocks].astype(np.int64))
            self._rows.append((start, end, context, blocks.to(device)))

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Write K/V of the batch, attend causally, and return [tokens, heads * head_dim]."""
        keys, values = self._key[layer], self._value[layer]
        keys.view(-1, *keys.shape[2:])[self._slot_mapping] = key.to(keys.dtype)
        values.view(-1, *values.shape[2:])[self._slot_mapping] = value.to(values.dtype)
        out = torch.empty_like(query)
        for start, end, context, blocks in self._rows:
            # [context, kv_heads, dim] -> [heads, context, dim]
            row_keys = self._gather(keys, blocks, context, query.dtype)
            row_values = self._gather(values, blocks, context, query.dtype)
            scores = query[start:end].transpose(0, 1) @ row_keys.transpose(1, 2) * self._scale
            # The row's last query stands at position context - 1.
            last_seen = torch.arange(context - (end - start), context, device=query.device)
            hidden = torch.arange(context, device=query.device)[None, :] > last_seen[:, None]
            weights = scores.float().masked_fill(hidden, float("-inf")).softmax(-1)
            out[start:end] = (weights.to(query.dtype) @ row_values).transpose(0, 1)
        return out.flatten(1)

    def _gather(self, cache: Tensor, blocks: Tensor, context: int, dtype: torch.dtype) -> Tensor:
        rows = cache[blocks].flatten(0, 1)[:context].to(dtype)
        return rows.transpose(0, 1).repeat_interleave(self._group, dim=0)
