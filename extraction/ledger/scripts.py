"""The Lua scripts beside this file, each one move of the ledger."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

from redis import Redis

from .connection import redis_errors

NAMES = (
    "submit",
    "claim",
    "heartbeat",
    "commit",
    "release",
    "reap",
    "records",
    "depth",
    "retry",
    "drop",
    "cancel",
)


@functools.cache
def source(name: str) -> str:
    """Return the text of a script, with what all scripts share before it."""
    folder = resources.files(__package__) / "lua"
    shared = (folder / "common.lua").read_text(encoding="utf-8")
    return shared + "\n" + (folder / f"{name}.lua").read_text(encoding="utf-8")


class Scripts:
    """The scripts of one connection pool; EVALSHA, with EVAL after a restart of the server."""

    def __init__(self, redis: Redis) -> None:
        self._scripts = {name: redis.register_script(source(name)) for name in NAMES}

    def run(self, name: str, prefix: str, *arguments: Any) -> Any:
        """Run a script on the shard with a key prefix; Refused when Redis can't."""
        with redis_errors():
            return self._scripts[name](keys=[prefix], args=arguments)
