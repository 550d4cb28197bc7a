"""The arithmetic of a decoder: plain torch on any device, or the C++ kernels on the CPU.

A decoder is built with one of the two. They agree up to rounding; the plain one is the reference.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from pagemill import _core
from torch import Tensor, nn

WeightKind = Literal["fp32", "bf16", "int8"]


class Linear(nn.Linear):
    """A linear layer that can also add its result to a residual."""

    def add_to(self, residual: Tensor, inputs: Tensor) -> Tensor:
        """Return residual + layer(inputs)."""
        out: Tensor = residual + self(inputs)
        return out


class PackedLinear(nn.Module):
    """A linear layer over weights packed for the C++ kernels; float32 in and out."""

    def __init__(self, layer: nn.Linear, kind: WeightKind) -> None:
        super().__init__()
        weight = layer.weight.detach().to("cpu", torch.float32).contiguous()
        self._outputs, inputs = weight.shape
        self._matrix = _core.PackedMatrix(weight.data_ptr(), self._outputs, inputs, kind)
        self._bias = None if layer.bias is None else layer.bias.detach().float().contiguous()

    def forward(self, inputs: Tensor) -> Tensor:
        out = torch.empty((inputs.shape[0], self._outputs))
        self._multiply(inputs, out, accumulate=False)
        return out

    def add_to(self, residual: Tensor, inputs: Tensor) -> Tensor:
        """Add layer(inputs) to `residual` in place, and return it."""
        self._multiply(inputs, residual, accumulate=True)
        return residual

    def _multiply(self, inputs: Tensor, out: Tensor, *, accumulate: bool) -> None:
        if not (inputs.is_contiguous() and out.is_contiguous()):
            raise ValueError("a packed layer wants contiguous tensors")
        bias = 0 if self._bias is None else self._bias.data_ptr()
        self._matrix.multiply(inputs.data_ptr(), inputs.shape[0], out.data_ptr(), bias, accumulate)


class Operations(Protocol):
    """What a decoder layer does beside its matrix products."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return x / rms(x) * weight over the last dimension, computed in float32."""

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """Return silu(gate) * up; gate and up are the halves of the last dimension."""

    def rotate(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Turn pairs (x[d], x[d + dim / 2]) of `heads` [tokens, heads, dim]; may do it in place.

        cos, sin: float32 [tokens, 1, dim / 2].
        """


class TorchOperations:
    """Plain torch, on any device and in any dtype."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return x / rms(x) * weight over the last dimension."""
        wide = x.to(torch.float32)
        inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return (wide * inverse).to(x.dtype) * weight

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """Return silu(gate) * up."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def rotate(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return `heads` turned by their positions."""
        low, high = heads.to(torch.float32).chunk(2, dim=-1)
        turned = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
        return turned.to(heads.dtype)


class NativeOperations:
    """The C++ kernels (csrc/cpu/elementwise.h): float32 on the CPU, each in one pass."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return x / rms(x) * weight over the last dimension."""
        x = x.contiguous()
        out = torch.empty_like(x)
        size = x.shape[-1]
        _core.rms_norm(
            x.data_ptr(), weight.data_ptr(), eps, x.numel() // size, size, out.data_ptr()
        )
        return out

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """Return silu(gate) * up."""
        rows, size = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty((rows, size))
        _core.silu_mul(gate_up.contiguous().data_ptr(), rows, size, out.data_ptr())
        return out

    def rotate(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Turn `heads` in place, and return them."""
        tokens, num_heads, head_dim = heads.shape
        if heads.stride()[1:] != (head_dim, 1):
            heads = heads.contiguous()
        _core.rotate(
            heads.data_ptr(),
            heads.stride(0) if tokens > 1 else num_heads * head_dim,
            cos.data_ptr(),
            sin.data_ptr(),
            tokens,
            num_heads,
            head_dim,
        )
        return heads
