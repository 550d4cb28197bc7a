"""The one list of reason codes: API, ledger, command line and metrics show these words.

The engine and the schema package raise their own parts of it (they import nothing from here);
a test keeps the parts equal.
"""

from __future__ import annotations

import enum
import functools
from typing import Any


class Reason(enum.StrEnum):
    # Pages.
    PAGE_EMPTY = "page_empty"
    PAGE_TOO_LARGE = "page_too_large"
    PAGE_TOO_DEEP = "page_too_deep"
    PAGE_CAPTCHA = "page_captcha"
    PAGE_CONSENT = "page_consent"
    PAGE_LOGIN = "page_login"
    PAGE_NOT_FOUND = "page_not_found"
    PAGE_PARKED = "page_parked"
    PAGE_SHELL = "page_shell"
    PAGE_UNREADABLE = "page_unreadable"
    UNSUPPORTED_CONTENT_TYPE = "unsupported_content_type"
    BODY_MISSING = "body_missing"
    BODY_ENCODING_INVALID = "body_encoding_invalid"
    # Schemas (schemas.errors.SchemaReason).
    KEYWORD_UNSUPPORTED = "keyword_unsupported"
    SCHEMA_COMPILE_TIMEOUT = "schema_compile_timeout"
    SCHEMA_INVALID = "schema_invalid"
    SCHEMA_TOO_LARGE = "schema_too_large"
    SCHEMA_UNKNOWN = "schema_unknown"
    SCHEMA_UNSATISFIABLE = "schema_unsatisfiable"
    # Engine (engine.errors.EngineReason).
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
    # Records.
    RECORD_TRUNCATED = "record_truncated"
    RECORD_INVALID = "record_invalid"
    # Pipeline and doors.
    API_KEY_INVALID = "api_key_invalid"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    BATCH_UNKNOWN = "batch_unknown"
    INPUT_INVALID = "input_invalid"
    LEASE_EXPIRED = "lease_expired"
    LEDGER_FULL = "ledger_full"
    LEDGER_UNAVAILABLE = "ledger_unavailable"
    MODEL_UNKNOWN = "model_unknown"
    RATE_LIMITED = "rate_limited"
    RECORD_EXPIRED = "record_expired"
    REQUEST_INVALID = "request_invalid"
    REQUEST_TOO_LARGE = "request_too_large"
    SCOPE_MISSING = "scope_missing"
    INTERNAL_ERROR = "internal_error"


class Refused(Exception):
    """Something asked of pagemill that it can't do: a code, a sentence, and what to do instead."""

    def __init__(self, reason: Reason, message: str, *, at: str = "", advice: str = "") -> None:
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
