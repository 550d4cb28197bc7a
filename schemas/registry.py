"""Named schemas in immutable versions: in Redis, or just the library's.

`product` is a name, `product@3` one version for ever, `product@latest` the newest. What was put
last is the latest: putting the latest content again changes nothing, and going back to an older
content is a new version (with the older one's hash).
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Iterable
from typing import Any, NoReturn, Protocol

from redis import Redis
from redis.commands.core import Script

from . import library
from .errors import SchemaReason, SchemaRefused
from .inline import PREFIX, InlineSchemas, is_inline
from .load import content_hash, load
from .lowering import check
from .version import SchemaVersion, decode_version, encode_version

MAX_NAMES = 10_000
MAX_VERSIONS = 1_000
_LISTED_AT_ONCE = 500

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_REF = re.compile(rf"({_NAME.pattern})(?:@(latest|[1-9][0-9]{{0,5}}))?")

# Both scripts: KEYS[1] is the index, name -> "version:source:hash" of the latest version;
# KEYS[2] holds the versions of one name, number -> record, and "seen:HASH" for every content.
# Each returns the number of the latest version, or 0 if the registry is full.
_APPEND = """
local function append(name, version, source, hash, record)
  redis.call('HSET', KEYS[2], version, record, 'seen:' .. hash, version)
  redis.call('HSET', KEYS[1], name, version .. ':' .. source .. ':' .. hash)
  return version
end
local name, source, hash, record = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local latest = redis.call('HGET', KEYS[1], name)
local version, latest_source, latest_hash = 0, nil, nil
if latest then
  version, latest_source, latest_hash = string.match(latest, '^(%d+):(%a+):(%x+)$')
  version = tonumber(version)
end
if latest_hash == hash then return version end
"""
_PUT = (
    _APPEND
    + """
if not latest and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[5]) then return 0 end
if version >= tonumber(ARGV[6]) then return 0 end
return append(name, version + 1, source, hash, record)
"""
)
# A newer release's library adds a version, unless the name is the user's by now, or an older
# release still at work beside it would add its own again.
_SEED = (
    _APPEND
    + """
if latest_source == 'registered' or redis.call('HEXISTS', KEYS[2], 'seen:' .. hash) == 1 then
  return version
end
return append(name, version + 1, source, hash, record)
"""
)


class SchemaCatalog(Protocol):
    """Where schemas are looked up: a SchemaRegistry, or the library alone."""

    def get(self, ref: str) -> SchemaVersion:
        """The version that `name`, `name@N` or `name@latest` names. Raises SchemaRefused."""
        ...

    def list(self) -> tuple[SchemaVersion, ...]:
        """The latest version of every name, sorted by name."""
        ...

    def versions(self, name: str) -> tuple[SchemaVersion, ...]:
        """All versions of a name, oldest first. Raises SchemaRefused if there are none."""
        ...


class LibraryCatalog:
    """The library's schemas as version 1 of their names; needs no Redis."""

    def get(self, ref: str) -> SchemaVersion:
        """See SchemaCatalog."""
        name, version = _parse_ref(ref)
        if name not in library.names():
            _unknown(ref, library.names())
        if version not in (None, 1):
            _no_version(name, version, 1)
        schema = library.get(name)
        return SchemaVersion(name, 1, content_hash(schema), schema, 0.0, "library")

    def list(self) -> tuple[SchemaVersion, ...]:
        """See SchemaCatalog."""
        return tuple(self.get(name) for name in library.names())

    def versions(self, name: str) -> tuple[SchemaVersion, ...]:
        """See SchemaCatalog."""
        return (self.get(_only_name(name)),)


class SchemaRegistry:
    """Schemas registered in Redis, over the library's.

    A library schema is version 1 of its name; a schema that a user registers under that name is
    the next version. Versions are appended by a script inside Redis, so concurrent puts neither
    lose a version nor make two of one content. Holds no state of its own that could go stale:
    any number of processes may share a namespace. redis-py's errors pass through.

    `inline` keeps the schemas that came with submissions; `get` and `versions` know them too.
    """

    def __init__(self, redis: Redis, namespace: str = "pagemill") -> None:
        """`redis` may be bytes- or str-valued (`decode_responses`); Redis >= 6.2 or Valkey."""
        self._redis = redis
        self._index = f"{namespace}:schemas"
        self._put = redis.register_script(_PUT)
        self._seed = redis.register_script(_SEED)
        self._seeded: set[str] = set()
        self.inline = InlineSchemas(redis, namespace)

    def put(self, name: str, schema: object) -> SchemaVersion:
        """Make `schema` (anything that `load` takes) the latest version of `name`.

        Returns that version: a new one, or the present latest if its content is the same.
        Raises SchemaRefused if the name, the schema or one of its keywords can't be used; whether
        it compiles within limits is not tried here.
        """
        if not _NAME.fullmatch(name):
            raise SchemaRefused(
                SchemaReason.SCHEMA_INVALID,
                f"{name!r:.100} can't be a schema's name",
                advice="use a-z, 0-9, _ and -, at most 64, beginning with a letter",
            )
        if is_inline(name):
            raise SchemaRefused(
                SchemaReason.SCHEMA_INVALID,
                f"names that begin with {PREFIX} are given to schemas that come with submissions",
                advice="use another name",
            )
        checked = load(schema)
        check(checked)
        self._seed_library(name)
        version = self._append(self._put, name, "registered", checked)
        if version == 0:
            raise SchemaRefused(
                SchemaReason.SCHEMA_TOO_LARGE,
                f"the registry is full ({MAX_NAMES} names, {MAX_VERSIONS} versions of each)",
                advice="use another namespace",
            )
        (stored,) = self._read(name, [version])
        return stored

    def get(self, ref: str) -> SchemaVersion:
        """See SchemaCatalog."""
        if is_inline(ref):
            return self.inline.get(ref)
        name, version = _parse_ref(ref)
        latest = self._latest(name)
        if latest == 0:
            _unknown(ref, self._names())
        if version is not None and version > latest:
            _no_version(name, version, latest)
        (found,) = self._read(name, [version or latest])
        return found

    def list(self) -> tuple[SchemaVersion, ...]:
        """See SchemaCatalog. Two round trips, one more for each 500 names."""
        latest = self._index_of()
        missing = [name for name in library.names() if name not in latest]
        if missing or not self._seeded.issuperset(library.names()):
            for name in library.names():
                self._seed_library(name)
            latest = self._index_of()
        names = sorted(latest)
        found: list[SchemaVersion] = []
        for at in range(0, len(names), _LISTED_AT_ONCE):
            chunk = names[at : at + _LISTED_AT_ONCE]
            pipeline = self._redis.pipeline(transaction=False)
            for name in chunk:
                pipeline.hget(self._versions_key(name), str(latest[name]))
            found += [
                decode_version(name, latest[name], record)
                for name, record in zip(chunk, pipeline.execute(), strict=True)
            ]
        return tuple(found)

    def versions(self, name: str) -> tuple[SchemaVersion, ...]:
        """See SchemaCatalog."""
        if is_inline(name):
            return (self.inline.get(name),)
        latest = self._latest(_only_name(name))
        if latest == 0:
            _unknown(name, self._names())
        return self._read(name, range(1, latest + 1))

    def _names(self) -> set[str]:
        return {_text(name) for name in self._redis.hkeys(self._index)} | set(library.names())

    def _index_of(self) -> dict[str, int]:
        """The number of the latest version of each name that the store knows."""
        entries = self._redis.hgetall(self._index)
        return {_text(name): int(_text(entry).split(":", 1)[0]) for name, entry in entries.items()}

    def _latest(self, name: str) -> int:
        """The number of the latest version; 0 if the name is unknown."""
        if name not in self._seeded:
            self._seed_library(name)
        entry = self._redis.hget(self._index, name)
        if entry is None:
            # The store was emptied since this object seeded it.
            return self._seed_library(name)
        return int(_text(entry).split(":", 1)[0])

    def _seed_library(self, name: str) -> int:
        """See that a library schema has its version; 0 if the library has none of that name."""
        if name not in library.names():
            return 0
        version = self._append(self._seed, name, "library", library.get(name))
        self._seeded.add(name)
        return version

    def _append(self, script: Script, name: str, source: str, schema: dict[str, Any]) -> int:
        record, version = encode_version(name, 0, schema, time.time(), source)
        return int(
            script(
                keys=[self._index, self._versions_key(name)],
                args=[name, source, version.hash, record, MAX_NAMES, MAX_VERSIONS],
            )
        )

    def _read(self, name: str, numbers: Iterable[int]) -> tuple[SchemaVersion, ...]:
        wanted = [*numbers]
        stored = self._redis.hmget(self._versions_key(name), [str(number) for number in wanted])
        return tuple(decode_version(name, n, text) for n, text in zip(wanted, stored, strict=True))

    def _versions_key(self, name: str) -> str:
        return f"{self._index}:{name}"


def _parse_ref(ref: str) -> tuple[str, int | None]:
    """Name and version (None for the latest); the name is "" if `ref` can't name a schema."""
    match = _REF.fullmatch(ref)
    if match is None:
        return "", None
    version = match[2]
    return match[1], int(version) if version and version != "latest" else None


def _only_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else ""


def _unknown(ref: str, names: Iterable[str]) -> NoReturn:
    wanted = ref[:80].split("@")[0].lower()
    near = difflib.get_close_matches(wanted, sorted(names), n=3, cutoff=0.5)
    raise SchemaRefused(
        SchemaReason.SCHEMA_UNKNOWN,
        f"there is no schema {ref[:80]!r}",
        advice=f"did you mean {' or '.join(near)}?" if near else "`pagemill schema list` shows all",
    )


def _no_version(name: str, version: int, latest: int) -> NoReturn:
    raise SchemaRefused(
        SchemaReason.SCHEMA_UNKNOWN,
        f"{name} has no version {version}",
        advice=f"its latest is {name}@{latest}",
    )


def _text(reply: bytes | str) -> str:
    return reply.decode() if isinstance(reply, bytes) else reply
