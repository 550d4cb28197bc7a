"""What a decoder of the Llama family is made of, read from a model's own description.

No torch here: the engine's clients may ask for sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the trained length (`kind` as in config.json)."""

    kind: str  # "linear" | "llama3" | "yarn"
    factor: float
    parameters: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and switches of one decoder."""

    architecture: str  # "llama" | "mistral" | "qwen2" | "qwen3"
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tie_word_embeddings: bool = False

    @classmethod
    def from_hf(cls, data: dict[str, Any]) -> ModelConfig:
        """Read the contents of a config.json; EngineError(MODEL_INVALID) says what isn't served."""
        raise NotImplementedError
