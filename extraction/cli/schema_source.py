"""A schema as the command line names it: a registered or library name, or a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import redis
from pagemill import schemas

from ..config import PREFIX, Settings
from ..ledger import connect
from ..reason import Reason, Refused

_MAX_FILE_BYTES = 1_000_000


def is_file(source: str) -> bool:
    """Whether `source` names a file rather than a schema."""
    return source.endswith(".json") or os.sep in source or Path(source).is_file()


def read_file(source: str) -> dict[str, Any]:
    """The schema in a file; Refused and SchemaRefused name the file."""
    try:
        with Path(source).open("rb") as stream:
            data = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise Refused(Reason.INPUT_INVALID, f"{source}: {error.strerror}") from None
    return schemas.load(data)


def catalog(settings: Settings, redis_url: str | None) -> schemas.SchemaCatalog:
    """The registry when a Redis is named by option or environment, else the library alone."""
    if redis_url is None and PREFIX + "REDIS_URL" not in os.environ:
        return schemas.LibraryCatalog()
    return registry(settings)


def registry(settings: Settings) -> schemas.SchemaRegistry:
    """The registry in the Redis of `settings`; redis-py's errors pass through."""
    client: redis.Redis = connect(settings.redis_url, timeout_s=5.0)
    return schemas.SchemaRegistry(client, settings.namespace)
