"""What runs a plan: the model and its KV cache, and the batch that persists between steps.

`base` and `fake` import no torch; `torch` and `cpu` do.
"""

from .base import Executor
from .rows import Drafts, SlotStart, StepResult, StepRows

__all__ = ["Drafts", "Executor", "SlotStart", "StepResult", "StepRows"]
