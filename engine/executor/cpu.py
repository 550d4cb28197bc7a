"""Runs plans on the CPU with the C++ attention kernel."""

from __future__ import annotations

from .torch import TorchExecutor


class CpuExecutor(TorchExecutor):
    """The torch executor with `_core.paged_attention` in the place of torch's attention."""

    native_attention = True
