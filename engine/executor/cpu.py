"""Runs plans on the CPU with the C++ kernels."""

from __future__ import annotations

from .torch import TorchExecutor


class CpuExecutor(TorchExecutor):
    """The torch executor with `_core.paged_attention` in the place of torch's attention.

    Its decoder may hold packed layers (`load_decoder(packed=...)`); the cache is float32.
    """

    native_attention = True
