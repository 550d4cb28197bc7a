"""What the torch decoder does between its matrix products, on any device and in any dtype."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x / rms(x) * weight over the last dimension, computed in float32."""
    wide = x.to(torch.float32)
    inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * inverse).to(x.dtype) * weight


def silu_mul(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up; gate and up are the halves of the last dimension."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs (x[d], x[d + dim / 2]) of `heads` [tokens, heads, dim].

    cos, sin: float32 [tokens, 1, dim / 2].
    """
    low, high = heads.to(torch.float32).chunk(2, dim=-1)
    turned = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
    return turned.to(heads.dtype)
