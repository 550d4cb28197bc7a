"""The page ledger: every accepted page ends in exactly one of done, failed, dead.

Pages live in Redis; each move between states is one Lua script that checks the old state and the
lease's fencing token. `Ledger` is the only door.
"""

from .connection import connect, redis_errors, refusal_of
from .keys import content_hash, normalise_url, page_id
from .ledger import Ledger
from .types import (
    TERMINAL,
    BatchRecord,
    BatchStatus,
    Commit,
    LastError,
    Lease,
    LedgerLimits,
    PageStatus,
    PageSubmission,
    QueueClass,
    QueueDepth,
    ReapReport,
    Release,
    State,
    Submitted,
)

__all__ = [
    "TERMINAL",
    "BatchRecord",
    "BatchStatus",
    "Commit",
    "LastError",
    "Lease",
    "Ledger",
    "LedgerLimits",
    "PageStatus",
    "PageSubmission",
    "QueueClass",
    "QueueDepth",
    "ReapReport",
    "Release",
    "State",
    "Submitted",
    "connect",
    "content_hash",
    "normalise_url",
    "page_id",
    "redis_errors",
    "refusal_of",
]
