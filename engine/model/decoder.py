"""The decoder of the Llama family: Llama, SmolLM2, Mistral, Qwen2, Qwen3.

Token ids in, logits out, over a flat batch: all rows' tokens stand one after the other, and only
attention knows which belongs where. What differs between the models of the family is in
`ModelConfig`: biases, norms on queries and keys, tied embeddings, rotary scaling.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..store import ModelFiles
from .attention import Attention
from .config import ModelConfig
from .rotary import Rotary
from .weights import load_weights


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size), requires_grad=False)
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        wide = hidden.to(torch.float32)
        inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * inverse).to(hidden.dtype) * self.weight


class SelfAttention(nn.Module):
    """Queries, keys and values from one product, rotary, paged attention, output product."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        self.head_dim = config.head_dim
        self.query_size = config.num_heads * config.head_dim
        self.kv_size = config.num_kv_heads * config.head_dim
        self.qkv = nn.Linear(
            config.hidden_size, self.query_size + 2 * self.kv_size, bias=config.qkv_bias
        )
        self.output = nn.Linear(self.query_size, config.hidden_size, bias=config.output_bias)
        self.query_norm = RMSNorm(self.head_dim, config.rms_norm_eps) if config.qk_norm else None
        self.key_norm = RMSNorm(self.head_dim, config.rms_norm_eps) if config.qk_norm else None

    def forward(
        self, hidden: Tensor, rotary: Rotary, tables: tuple[Tensor, Tensor], attention: Attention
    ) -> Tensor:
        fused = self.qkv(hidden)
        query, key, value = fused.split((self.query_size, self.kv_size, self.kv_size), dim=-1)
        query = query.view(-1, self.num_heads, self.head_dim)
        key = key.view(-1, self.num_kv_heads, self.head_dim)
        value = value.view(-1, self.num_kv_heads, self.head_dim)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        query, key = rotary.rotate(query, tables), rotary.rotate(key, tables)
        attended: Tensor = self.output(attention(self.layer, query, key, value))
        return attended


class FeedForward(nn.Module):
    """down(silu(gate(x)) * up(x)), gate and up from one product."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(
            config.hidden_size, 2 * config.intermediate_size, bias=config.mlp_bias
        )
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, hidden: Tensor) -> Tensor:
        gate, up = self.gate_up(hidden).chunk(2, dim=-1)
        out: Tensor = self.down(F.silu(gate) * up)
        return out


class Layer(nn.Module):
    """One block of the decoder: attention and feed-forward, each behind its norm."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attention = SelfAttention(config, index)
        self.feed_forward_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(
        self, hidden: Tensor, rotary: Rotary, tables: tuple[Tensor, Tensor], attention: Attention
    ) -> Tensor:
        attended = self.attention(self.attention_norm(hidden), rotary, tables, attention)
        hidden = hidden + attended
        out: Tensor = hidden + self.feed_forward(self.feed_forward_norm(hidden))
        return out


class Decoder(nn.Module):
    """A whole model. Build it with `load_decoder`; its parameters never want gradients."""

    def __init__(self, config: ModelConfig, rotary: Rotary) -> None:
        super().__init__()
        self.config = config
        self.rotary = rotary
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    @torch.inference_mode()
    def forward(
        self, token_ids: Tensor, positions: Tensor, attention: Attention, logits_indices: Tensor
    ) -> Tensor:
        """Return float32 logits [len(logits_indices), vocab_size] of the chosen tokens.

        token_ids, positions: [tokens], the flat batch whose layout `attention` was given by
        `begin`. Tokens without a place in `logits_indices` only leave their K/V in the cache.
        """
        hidden = self.embedding(token_ids)
        tables = self.rotary.tables(positions)
        for layer in self.layers:
            hidden = layer(hidden, self.rotary, tables, attention)
        chosen = self.norm(hidden[logits_indices])
        logits: Tensor = self.head(chosen).to(torch.float32)
        return logits


def load_decoder(
    files: ModelFiles,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Decoder:
    """Read a model from disk; EngineError(MODEL_INVALID) where files and decoder don't fit."""
    config = ModelConfig.load(files.directory)
    weights = load_weights(files, config, dtype=dtype, device=device)
    rotary = Rotary(config, device)
    with torch.device("meta"):  # no memory for parameters that are replaced at once
        decoder = Decoder(config, rotary)
    decoder.load_state_dict(weights, strict=True, assign=True)
    return decoder.requires_grad_(False).eval()
