"""What a decoder of the Llama family is made of, read from a model's own description.

No torch here: the engine's clients may ask for sizes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import EngineError, EngineReason

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
ROPE_KINDS = ("linear", "llama3", "yarn")


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the trained length (`kind` as in config.json)."""

    kind: str  # one of ROPE_KINDS
    factor: float
    parameters: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and switches of one decoder."""

    architecture: str  # one of ARCHITECTURES
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

    def __post_init__(self) -> None:
        sizes = (
            self.vocab_size, self.hidden_size, self.intermediate_size, self.num_layers,
            self.num_heads, self.num_kv_heads, self.head_dim, self.max_position,
        )  # fmt: skip
        if min(sizes) < 1:
            raise _refused("a size in the model's configuration is below one")
        if self.num_heads % self.num_kv_heads:
            raise _refused(f"{self.num_heads} heads don't divide over {self.num_kv_heads} KV heads")
        if self.head_dim % 2:
            raise _refused(f"head_dim {self.head_dim} is odd")

    @classmethod
    def load(cls, directory: Path) -> ModelConfig:
        """Read `config.json` in a model's directory."""
        path = directory / "config.json"
        try:
            data = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise _refused(f"{path} can't be read: {error}") from None
        if not isinstance(data, dict):
            raise _refused(f"{path} holds no JSON object")
        return cls.from_hf(data)

    @classmethod
    def from_hf(cls, data: dict[str, Any]) -> ModelConfig:
        """Read the contents of a config.json; EngineError(MODEL_INVALID) says what isn't served."""
        architecture = data.get("model_type")
        if architecture not in ARCHITECTURES:
            raise _refused(
                f"model type {architecture!r} isn't served; {', '.join(ARCHITECTURES)} are"
            )
        if data.get("hidden_act", "silu") != "silu":
            raise _refused(f"activation {data['hidden_act']!r} isn't served, only silu is")
        if data.get("quantization_config"):
            raise _refused("quantised safetensors aren't served: use the plain weights or a GGUF")
        try:
            return cls(
                architecture=architecture,
                vocab_size=int(data["vocab_size"]),
                hidden_size=int(data["hidden_size"]),
                intermediate_size=int(data["intermediate_size"]),
                num_layers=int(data["num_hidden_layers"]),
                num_heads=int(data["num_attention_heads"]),
                num_kv_heads=int(data.get("num_key_value_heads") or data["num_attention_heads"]),
                head_dim=int(
                    data.get("head_dim") or data["hidden_size"] // data["num_attention_heads"]
                ),
                max_position=_max_position(data),
                rms_norm_eps=float(data.get("rms_norm_eps", 1e-6)),
                rope_theta=_rope_theta(data),
                rope_scaling=_rope_scaling(data),
                qkv_bias=architecture == "qwen2" or bool(data.get("attention_bias")),
                output_bias=architecture != "qwen2" and bool(data.get("attention_bias")),
                mlp_bias=bool(data.get("mlp_bias")),
                qk_norm=architecture == "qwen3",
                tie_word_embeddings=bool(data.get("tie_word_embeddings")),
            )
        except KeyError as missing:
            raise _refused(f"config.json lacks {missing}") from None
        except (TypeError, ValueError) as error:
            raise _refused(f"config.json has a wrong value: {error}") from None


def _refused(message: str) -> EngineError:
    return EngineError(EngineReason.MODEL_INVALID, message)


def _max_position(data: dict[str, Any]) -> int:
    """The longest context that plain causal attention serves.

    Within its window a sliding-window model attends to everything, so its window is its limit
    here.
    """
    limit = int(data["max_position_embeddings"])
    window = data.get("sliding_window")
    windowed = data.get("use_sliding_window", data["model_type"] == "mistral")
    return min(limit, int(window)) if window and windowed else limit


def _rope(data: dict[str, Any]) -> dict[str, Any]:
    """The rotary settings: `rope_parameters` of newer files, `rope_scaling` of older ones."""
    rope = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise _refused("the rotary settings of config.json aren't an object")
    if float(rope.get("partial_rotary_factor", data.get("partial_rotary_factor", 1.0))) != 1.0:
        raise _refused("partial rotary embeddings aren't served")
    return rope


def _rope_theta(data: dict[str, Any]) -> float:
    return float(_rope(data).get("rope_theta") or data.get("rope_theta") or 10000.0)


def _rope_scaling(data: dict[str, Any]) -> RopeScaling | None:
    rope = _rope(data)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind not in ROPE_KINDS:
        raise _refused(f"rope scaling {kind!r} isn't served; {', '.join(ROPE_KINDS)} are")
    numbers = {
        key: float(value)
        for key, value in rope.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    if kind != "linear":
        numbers.setdefault(
            "original_max_position_embeddings", float(data["max_position_embeddings"])
        )
    if kind == "yarn" and rope.get("truncate") is False:
        raise _refused("yarn without truncation isn't served")
    return RopeScaling(kind, float(rope["factor"]), numbers)
