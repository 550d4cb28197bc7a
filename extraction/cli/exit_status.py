"""What `pagemill` exits with, and which error means which."""

from __future__ import annotations

import enum

from ..reason import Reason, Refused


class ExitStatus(enum.IntEnum):
    """Exit statuses of all commands; docs/cli.md has the table for users."""

    OK = 0
    SOME_FAILED = 1  # the run went through, some pages have no record; or a check found something
    USAGE = 2  # an option, a file, a schema or a setting is wrong
    ENGINE = 3  # the engine or its model can't be had
    LEDGER = 4  # Redis can't be had, or is full
    INTERNAL = 5
    INTERRUPTED = 130
    PIPE_CLOSED = 141  # as a shell reports a program that SIGPIPE has ended


_ENGINE_REASONS = frozenset(
    {
        Reason.ENGINE_UNAVAILABLE,
        Reason.ENGINE_ERROR,
        Reason.MODEL_INVALID,
        Reason.TOKENIZER_MISMATCH,
        Reason.VERSION_MISMATCH,
        Reason.OVERLOADED,
    }
)
_LEDGER_REASONS = frozenset({Reason.LEDGER_UNAVAILABLE, Reason.LEDGER_FULL, Reason.RATE_LIMITED})


def classify(error: Exception) -> tuple[ExitStatus, Reason, str]:
    """Exit status, reason and sentence of an error; whatever isn't ours is INTERNAL."""
    # Imported when something has gone wrong: `--help` shall not wait for them.
    import redis
    from pagemill.engine.errors import EngineError
    from pagemill.schemas.errors import SchemaRefused

    from ..ledger import refusal_of

    if isinstance(error, redis.exceptions.RedisError):
        error = refusal_of(error)
    if isinstance(error, Refused | SchemaRefused | EngineError):
        reason = Reason(str(error.reason))
        return _status(reason), reason, str(error)
    return ExitStatus.INTERNAL, Reason.INTERNAL_ERROR, f"{type(error).__name__}: {error}"


def _status(reason: Reason) -> ExitStatus:
    if reason in _ENGINE_REASONS:
        return ExitStatus.ENGINE
    if reason in _LEDGER_REASONS:
        return ExitStatus.LEDGER
    if reason == Reason.INTERNAL_ERROR:
        return ExitStatus.INTERNAL
    return ExitStatus.USAGE
