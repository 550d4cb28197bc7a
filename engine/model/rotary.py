"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864) and its stretched forms."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .config import ModelConfig, RopeScaling


class Rotary(nn.Module):
    """Turns positions into cosines and sines.

    The two halves of a head form the pairs (x[d], x[d + dim / 2]), as the published weights of
    this family have it.
    """

    def __init__(self, config: ModelConfig, device: torch.device | str = "cpu") -> None:
        super().__init__()
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        frequencies = 1.0 / config.rope_theta**exponents
        self.magnitude = 1.0
        scaling = config.rope_scaling
        if scaling is not None:
            if scaling.kind == "linear":
                frequencies = frequencies / scaling.factor
            elif scaling.kind == "llama3":
                frequencies = _llama3(frequencies, scaling)
            else:
                frequencies = _yarn(frequencies, scaling, config)
                self.magnitude = _yarn_magnitude(scaling)
        self.frequencies = frequencies.to(device)

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return float32 cosines and sines, each [tokens, 1, head_dim / 2]."""
        angles = positions.to(torch.float32)[:, None, None] * self.frequencies
        return angles.cos() * self.magnitude, angles.sin() * self.magnitude


def _llama3(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """Llama 3.1: long waves are stretched, short ones kept, those between blended."""
    numbers = scaling.parameters
    low, high = numbers["low_freq_factor"], numbers["high_freq_factor"]
    turns = numbers["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - kept) * frequencies / scaling.factor + kept * frequencies


def _yarn(frequencies: Tensor, scaling: RopeScaling, config: ModelConfig) -> Tensor:
    """YaRN (Peng et al. 2023, arXiv:2309.00071), section 3.2: interpolation by parts."""
    numbers = scaling.parameters
    original = numbers["original_max_position_embeddings"]
    dim, base = config.head_dim, config.rope_theta

    def dimension(turns: float) -> float:
        """The pair that makes that many turns over the original context."""
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    first = max(math.floor(dimension(numbers.get("beta_fast", 32.0))), 0)
    last = min(math.ceil(dimension(numbers.get("beta_slow", 1.0))), dim - 1)
    span = max(last - first, 1e-3)
    pairs = torch.arange(dim // 2, dtype=torch.float32)
    stretched = ((pairs - first) / span).clamp(0.0, 1.0)
    return frequencies / scaling.factor * stretched + frequencies * (1 - stretched)


def _yarn_magnitude(scaling: RopeScaling) -> float:
    """The factor on cosines and sines that stands for YaRN's attention temperature."""
    numbers = scaling.parameters
    if "attention_factor" in numbers:
        return numbers["attention_factor"]

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0

    if numbers.get("mscale") and numbers.get("mscale_all_dim"):
        return scale(numbers["mscale"]) / scale(numbers["mscale_all_dim"])
    return scale(1.0)
