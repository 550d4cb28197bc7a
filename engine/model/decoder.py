"""The decoder of the Llama family: Llama, SmolLM2, Mistral, Qwen2, Qwen3.

Token ids in, logits out, over a flat batch: all rows' tokens stand one after the other, and only
attention knows which belongs where. What differs between the models of the family is in
`ModelConfig`: biases, norms on queries and keys, tied embeddings, rotary scaling.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..store import ModelFiles
from .attention import Attention
from .config import ModelConfig
from .operations import rms_norm, rotate, silu_mul
from .rotary import Rotary
from .weights import load_weights


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size), requires_grad=False)
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        return rms_norm(hidden, self.weight, self.eps)


class SelfAttention(nn.Module):
    """Queries, keys and values from one product, rotary, paged attention, output product."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        self.head_dim = config.head_dim
        query_size, kv_size = config.num_heads * self.head_dim, config.num_kv_heads * self.head_dim
        self.qkv = nn.Linear(config.hidden_size, query_size + 2 * kv_size, bias=config.qkv_bias)
        self.output = nn.Linear(query_size, config.hidden_size, bias=config.output_bias)
        norms = [
            RMSNorm(self.head_dim, config.rms_norm_eps) if config.qk_norm else None
            for _ in range(2)
        ]
        self.query_norm, self.key_norm = norms

    def forward(
        self,
        residual: Tensor,
        hidden: Tensor,
        tables: tuple[Tensor, Tensor],
        attention: Attention,
    ) -> Tensor:
        """Return residual + attention(hidden)."""
        fused: Tensor = self.qkv(hidden).view(
            -1, self.num_heads + 2 * self.num_kv_heads, self.head_dim
        )
        heads, turning_heads = self.num_heads, self.num_heads + self.num_kv_heads
        turning, value = fused[:, :turning_heads], fused[:, turning_heads:]
        if self.query_norm is not None and self.key_norm is not None:
            query, key = turning[:, :heads], turning[:, heads:]
            turning = torch.cat((self.query_norm(query), self.key_norm(key)), dim=1)
        turned = rotate(turning, *tables)
        attended = attention(self.layer, turned[:, :heads], turned[:, heads:], value)
        out: Tensor = residual + self.output(attended)
        return out


class FeedForward(nn.Module):
    """down(silu(gate(x)) * up(x)), gate and up from one product."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(
            config.hidden_size, 2 * config.intermediate_size, bias=config.mlp_bias
        )
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, residual: Tensor, hidden: Tensor) -> Tensor:
        """Return residual + feed_forward(hidden)."""
        out: Tensor = residual + self.down(silu_mul(self.gate_up(hidden)))
        return out


class Layer(nn.Module):
    """One block of the decoder: attention and feed-forward, each behind its norm."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.attention_norm = RMSNorm(size, eps)
        self.attention = SelfAttention(config, index)
        self.feed_forward_norm = RMSNorm(size, eps)
        self.feed_forward = FeedForward(config)

    def forward(
        self, hidden: Tensor, tables: tuple[Tensor, Tensor], attention: Attention
    ) -> Tensor:
        hidden = self.attention(hidden, self.attention_norm(hidden), tables, attention)
        out: Tensor = self.feed_forward(hidden, self.feed_forward_norm(hidden))
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
            hidden = layer(hidden, tables, attention)
        chosen = self.norm(hidden[logits_indices])
        logits: Tensor = self.head(chosen).to(torch.float32)
        return logits


def load_decoder(
    files: ModelFiles, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Decoder:
    """Read a model from disk; EngineError(MODEL_INVALID) where files and decoder don't fit."""
    config = ModelConfig.load(files.directory)
    weights = load_weights(files, config, dtype=dtype, device=device)
    rotary = Rotary(config, device)
    with torch.device("meta"):  # no memory for parameters that are replaced at once
        decoder = Decoder(config, rotary)
    decoder.load_state_dict(weights, strict=True, assign=True)
    return decoder.requires_grad_(False).eval()
