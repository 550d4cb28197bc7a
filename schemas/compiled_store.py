"""Where outcomes of compilations are kept besides memory: a folder, and Redis.

Both are best effort: a full or read-only disk, or a Redis that doesn't answer, costs a
compilation, not the request. Refusals are outcomes like tables.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import zlib
from pathlib import Path
from typing import Protocol

import redis

# Stores between two looks at what the folder holds.
_SWEEP_EVERY = 64
MAX_FOLDER_BYTES = 1024 * 1024 * 1024
MAX_SHARED_BYTES = 256 * 1024
MAX_SHARED = 256
_MAX_UNPACKED = 64 * 1024 * 1024

# KEYS: entries by last use, the entry. ARGV: key, value, time, most entries, prefix of entries.
_PUT = """
redis.call('SET', KEYS[2], ARGV[2])
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
while redis.call('ZCARD', KEYS[1]) > tonumber(ARGV[4]) do
  redis.call('DEL', ARGV[5] .. redis.call('ZPOPMIN', KEYS[1])[1])
end
"""


class Store(Protocol):
    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, entry: bytes) -> None: ...


class Folder:
    """One file an entry; those stored longest ago make room."""

    def __init__(self, path: Path | None = None) -> None:
        self._given = path
        self._stores = 0

    @property
    def path(self) -> Path:
        return self._given or cache_directory()

    def get(self, key: str) -> bytes | None:
        try:
            return (self.path / f"{key}.pmdf").read_bytes()
        except OSError:
            return None

    def put(self, key: str, entry: bytes) -> None:
        folder = self.path
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(entry)
            os.replace(file.name, folder / f"{key}.pmdf")
            self._stores += 1
            if self._stores % _SWEEP_EVERY == 1:
                self._sweep(folder)

    def _sweep(self, folder: Path) -> None:
        files = [(path.stat(), path) for path in folder.glob("*.pmdf")]
        kept = 0
        for stat, path in sorted(files, key=lambda file: file[0].st_mtime, reverse=True):
            kept += stat.st_size
            if kept > MAX_FOLDER_BYTES:
                path.unlink(missing_ok=True)


class Shared:
    """Entries in Redis for all processes of a namespace: the latest MAX_SHARED, small ones only.

    The ledger lives in the same Redis, and anyone may submit a schema, so both are bounded.
    """

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self._redis = client
        self._prefix = f"{namespace}:grammar:"
        self._used = f"{namespace}:grammars"
        self._put = client.register_script(_PUT)

    def get(self, key: str) -> bytes | None:
        try:
            packed = self._redis.get(self._prefix + key)
            if not isinstance(packed, bytes):
                return None
            return zlib.decompressobj().decompress(packed, _MAX_UNPACKED)
        except (redis.RedisError, zlib.error):
            return None

    def put(self, key: str, entry: bytes) -> None:
        packed = zlib.compress(entry, 1)
        if len(packed) > MAX_SHARED_BYTES:
            return
        with contextlib.suppress(redis.RedisError):
            self._put(
                keys=[self._used, self._prefix + key],
                args=[key, packed, time.time(), MAX_SHARED, self._prefix],
            )


def cache_directory() -> Path:
    """Where tables are kept: below $PAGEMILL_CACHE, else the user's cache directory."""
    root = os.environ.get("PAGEMILL_CACHE")
    if root:
        return Path(root).expanduser() / "grammars"
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "pagemill" / "grammars"
