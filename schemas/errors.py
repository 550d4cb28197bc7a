"""Reason codes of schema handling, and the exception that carries one with its place."""

from __future__ import annotations

import enum
import functools
from typing import Any


class SchemaReason(enum.StrEnum):
    """Why a schema was refused. A part of `pagemill.extraction.reason.Reason`."""

    KEYWORD_UNSUPPORTED = "keyword_unsupported"
    SCHEMA_COMPILE_TIMEOUT = "schema_compile_timeout"
    SCHEMA_INVALID = "schema_invalid"
    SCHEMA_TOO_LARGE = "schema_too_large"
    SCHEMA_UNKNOWN = "schema_unknown"
    SCHEMA_UNSATISFIABLE = "schema_unsatisfiable"


class SchemaRefused(Exception):
    """A schema that can't be served: why, where (JSON pointer), and what to do instead."""

    def __init__(
        self, reason: SchemaReason, message: str, *, at: str = "", advice: str = ""
    ) -> None:
        where = f" at {at}" if at else ""
        hint = f": {advice}" if advice else ""
        super().__init__(f"{message}{where}{hint}")
        self.reason = reason
        self.message = message
        self.at = at
        self.advice = advice

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild = functools.partial(type(self), at=self.at, advice=self.advice)
        return rebuild, (self.reason, self.message)
