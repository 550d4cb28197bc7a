"""Reason codes of the engine, and the exception that carries one.

The product's one list of codes is `pagemill.extraction.reason.Reason`; a test keeps these a
part of it.
"""

from __future__ import annotations

import enum
from typing import Any


class EngineReason(enum.StrEnum):
    """Why the engine refused or ended a request."""

    BUDGET_TOO_SMALL = "budget_too_small"
    CANCELLED = "cancelled"
    CONFIG_INVALID = "config_invalid"
    DEADLINE = "deadline"
    ENGINE_ERROR = "engine_error"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    GRAMMAR_INVALID = "grammar_invalid"
    GRAMMAR_MISSING = "grammar_missing"
    MESSAGE_INVALID = "message_invalid"
    MODEL_INVALID = "model_invalid"
    OVERLOADED = "overloaded"
    PROMPT_EMPTY = "prompt_empty"
    PROMPT_TOO_LONG = "prompt_too_long"
    TOKENIZER_MISMATCH = "tokenizer_mismatch"
    VERSION_MISMATCH = "version_mismatch"


class EngineError(Exception):
    """The engine can't do what was asked; `str()` is a sentence that says what to do."""

    def __init__(self, reason: EngineReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, str(self))
