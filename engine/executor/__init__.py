"""What runs a plan: the model and its KV cache, and the batch that persists between steps.

`base` and `fake` import no torch; `torch` and `cpu` do.
"""

from .base import Executor, SlotStart, StepResult, StepRows

__all__ = ["Executor", "SlotStart", "StepResult", "StepRows"]
