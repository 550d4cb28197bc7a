"""An LLM engine for bursts of constrained requests: core process, clients, messages.

Importing this package imports neither torch nor the model; `pagemill.engine.core` and
`python -m pagemill.engine` are the parts that do.
"""

from .client import Engine, EngineClient
from .client_async import AsyncEngineClient
from .config import EngineConfig
from .errors import EngineError, EngineReason
from .protocol import EngineStats, Output, Request, SamplingParams, Usage, Welcome

__all__ = [
    "AsyncEngineClient",
    "Engine",
    "EngineClient",
    "EngineConfig",
    "EngineError",
    "EngineReason",
    "EngineStats",
    "Output",
    "Request",
    "SamplingParams",
    "Usage",
    "Welcome",
]
