"""API keys: whose a request is, and what it may do. Redis holds hashes of them, never themselves.

A key is `pm_<id>_<secret>` with 192 random bits, so that a plain hash of it can't be guessed back.
Tenants are kept apart by name: their pages, batches and cached prompts.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from typing import Literal

import msgspec
from redis import Redis

from .ledger import redis_errors
from .reason import Reason, Refused

Scope = Literal["submit", "read", "admin"]
SCOPES: tuple[Scope, ...] = ("submit", "read", "admin")

_TENANT = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TOKEN = re.compile(r"pm_([0-9a-f]{12})_([A-Za-z0-9]{1,64})")
_MAX_KEYS = 10_000
# How long a process believes what Redis said of a key: a revoked one ends within that time.
_BELIEVED_S = 5.0
_MAX_BELIEVED = 4096


class ApiKey(msgspec.Struct, frozen=True):
    """What is known of a key. `admin` may do everything; times are Unix seconds, 0: never.

    `pages_per_day` and `calls_per_s` bound what it may submit; 0: no bound.
    """

    id: str
    tenant: str
    scopes: tuple[Scope, ...]
    digest: str
    created_s: float
    expires_s: float = 0.0
    pages_per_day: int = 0
    calls_per_s: int = 0

    def allows(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def expired(self, now: float) -> bool:
        return 0 < self.expires_s <= now


class ApiKeys:
    """The keys of a namespace. Safe to share between threads."""

    def __init__(self, redis: Redis, namespace: str) -> None:
        self.redis = redis
        self.namespace = namespace
        self._name = f"{namespace}:api-keys"
        self._believed: dict[str, tuple[float, ApiKey | None]] = {}

    def create(
        self,
        tenant: str,
        scopes: Iterable[Scope],
        *,
        valid_s: float = 0.0,
        pages_per_day: int = 0,
        calls_per_s: int = 0,
    ) -> tuple[str, ApiKey]:
        """Make a key and return it with what is stored of it: it can't be read again.

        Raises Refused for a bad tenant's name, no scope, or too many keys.
        """
        if not _TENANT.fullmatch(tenant):
            raise Refused(
                Reason.INPUT_INVALID,
                f"{tenant!r:.100} can't be a tenant's name",
                advice="from 1 to 64 of A-Z, a-z, 0-9, _, . and -",
            )
        wanted = tuple(scope for scope in SCOPES if scope in set(scopes))
        if not wanted:
            raise Refused(Reason.INPUT_INVALID, "no scope", advice=f"one of {', '.join(SCOPES)}")
        key_id, secret = secrets.token_hex(6), secrets.token_hex(24)
        now = time.time()
        key = ApiKey(
            id=key_id,
            tenant=tenant,
            scopes=wanted,
            digest=_digest(secret),
            created_s=now,
            expires_s=now + valid_s if valid_s > 0 else 0.0,
            pages_per_day=pages_per_day,
            calls_per_s=calls_per_s,
        )
        with redis_errors():
            if self.redis.hlen(self._name) >= _MAX_KEYS:
                raise Refused(
                    Reason.INPUT_INVALID, f"there are {_MAX_KEYS} keys", advice="revoke some"
                )
            self.redis.hset(self._name, key_id, msgspec.json.encode(key))
        return f"pm_{key_id}_{secret}", key

    def list(self) -> list[ApiKey]:
        """Return all keys, the oldest first."""
        with redis_errors():
            stored = self.redis.hvals(self._name)
        return sorted((_decode(value) for value in stored), key=lambda key: key.created_s)

    def revoke(self, key_id: str) -> bool:
        """Forget a key; False if there is none of that id."""
        with redis_errors():
            return bool(self.redis.hdel(self._name, key_id))

    def find(self, token: str) -> ApiKey | None:
        """Return the key that `token` is, None if it is none, or no longer one.

        Raises Refused(LEDGER_UNAVAILABLE) when Redis can't say.
        """
        read = _TOKEN.fullmatch(token)
        if read is None:
            return None
        key_id, secret = read.groups()
        key = self._known(key_id)
        if key is None or not hmac.compare_digest(key.digest, _digest(secret)):
            return None
        return None if key.expired(time.time()) else key

    def _known(self, key_id: str) -> ApiKey | None:
        now = time.monotonic()
        believed = self._believed.get(key_id)
        if believed is not None and now - believed[0] < _BELIEVED_S:
            return believed[1]
        with redis_errors():
            stored = self.redis.hget(self._name, key_id)
        key = None if stored is None else _decode(stored)
        if len(self._believed) >= _MAX_BELIEVED:
            self._believed.clear()
        self._believed[key_id] = now, key
        return key


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _decode(stored: bytes | str) -> ApiKey:
    try:
        return msgspec.json.decode(stored, type=ApiKey)
    except msgspec.MsgspecError:
        raise Refused(
            Reason.LEDGER_UNAVAILABLE, "an API key is damaged in Redis", advice="make it again"
        ) from None
