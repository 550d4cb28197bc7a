"""Schemas that come with a submission instead of being registered: named by content, kept on use.

They stand in no list and have one version. Who keeps the pages that need them decides when one
goes: `idle` tells which haven't been used for long, `forget` drops one unless it was used since.
"""

from __future__ import annotations

import re
import time
from typing import Any

from redis import Redis

from .errors import SchemaReason, SchemaRefused
from .load import content_hash, load
from .lowering import check
from .version import SchemaVersion, decode_version, encode_version

PREFIX = "inline-"
MAX_INLINE = 10_000

_REF = re.compile(rf"{PREFIX}[0-9a-f]{{24}}(@1|@latest)?")

# KEYS[1] holds the schemas, name -> record; KEYS[2] their names by when they were last used, in
# milliseconds of the server's clock. ZREM comes first because it goes through when Redis is at its
# maxmemory, and lets the rest of its script through: pages that wait must find their schema then.
_NOW = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
"""
_PUT = (
    _NOW
    + """
local name, record, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
if redis.call('HEXISTS', KEYS[1], name) == 0 then
  if redis.call('HLEN', KEYS[1]) >= most then return 0 end
  redis.call('HSET', KEYS[1], name, record)
end
redis.call('ZADD', KEYS[2], now, name)
return 1
"""
)
_GET = (
    _NOW
    + """
redis.call('ZREM', KEYS[2], '')
redis.call('ZADD', KEYS[2], 'XX', now, ARGV[1])
return redis.call('HGET', KEYS[1], ARGV[1])
"""
)
_IDLE = (
    _NOW
    + """
return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - tonumber(ARGV[1]), 'LIMIT', 0, ARGV[2])
"""
)
_FORGET = (
    _NOW
    + """
local used = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not used or tonumber(used) > now - tonumber(ARGV[2]) then return 0 end
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
"""
)


def is_inline(ref: str) -> bool:
    """Whether a schema's name or version is that of an inline schema."""
    return ref.startswith(PREFIX)


class InlineSchemas:
    """The inline schemas of a namespace. redis-py's errors pass through."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self._keys = [f"{namespace}:inline_schemas", f"{namespace}:inline_schemas:used"]
        self._put = redis.register_script(_PUT)
        self._get = redis.register_script(_GET)
        self._idle = redis.register_script(_IDLE)
        self._forget = redis.register_script(_FORGET)

    def put(self, schema: object) -> SchemaVersion:
        """Keep `schema` (anything that `load` takes) and return its one version.

        SchemaRefused as by SchemaRegistry.put; SCHEMA_TOO_LARGE when MAX_INLINE are kept already.
        """
        checked = load(schema)
        check(checked)
        name = PREFIX + content_hash(checked)[:24]
        record, version = encode_version(name, 1, checked, time.time(), "inline")
        if not self._put(keys=self._keys, args=[name, record, MAX_INLINE]):
            raise SchemaRefused(
                SchemaReason.SCHEMA_TOO_LARGE,
                f"{MAX_INLINE} schemas that came with submissions are kept already",
                advice="register the schema under a name",
            )
        return version

    def get(self, ref: str) -> SchemaVersion:
        """Return an inline schema, which counts as a use of it; SchemaRefused."""
        name = ref.split("@")[0]
        record: Any = None
        if _REF.fullmatch(ref):
            record = self._get(keys=self._keys, args=[name])
        if record is None:
            raise SchemaRefused(
                SchemaReason.SCHEMA_UNKNOWN,
                f"there is no schema {ref[:80]!r} any more",
                advice="what came with a submission is kept while pages need it: send it again",
            )
        return decode_version(name, 1, record)

    def idle(self, seconds: float, *, limit: int = 200) -> list[str]:
        """Versions that weren't used for so long, the longest first."""
        names = self._idle(keys=self._keys, args=[round(seconds * 1000), limit])
        return [f"{name.decode() if isinstance(name, bytes) else name}@1" for name in names]

    def forget(self, ref: str, *, unused_s: float) -> bool:
        """Drop an inline schema, unless it was used within `unused_s`; whether it was dropped."""
        name = ref.split("@")[0]
        return bool(self._forget(keys=self._keys, args=[name, round(unused_s * 1000)]))
