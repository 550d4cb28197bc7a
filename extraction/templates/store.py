"""What is known of sites, in Redis: a hash of bounded size for each site, tenant and schema."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from importlib import resources
from typing import cast
from urllib.parse import urlsplit

import structlog
from redis import Redis
from redis.exceptions import RedisError

from ..record import Evidence
from .template import MIN_PAGES, NOTHING, SHARE, Template, held_lines, line_digest

_log = structlog.get_logger(__name__)

_MAX_PAGES = 64
_MAX_LINES = 4096
_MAX_PAGE_LINES = 1500
# From the first page on; after that a site is learnt anew, as sites change.
_LIFE_S = 7 * 86400
_MAX_KEPT = 256


class SiteTemplates:
    """Learns the lines that a site's pages share, and gives them to be cut. Thread-safe.

    Tenants and schemas learn apart: what holds no value for one schema may for another. Redis that
    doesn't answer means that nothing is cut and nothing learnt; pages don't fail for it. Redis is
    asked again for a site after `kept_s` seconds.
    """

    def __init__(self, redis: Redis, namespace: str = "pagemill", *, kept_s: float = 5.0) -> None:
        self._kept_s = kept_s
        self._redis = redis
        self._namespace = namespace
        source = resources.files(__package__).joinpath("learn.lua").read_text(encoding="utf-8")
        self._learn = redis.register_script(source)
        self._kept: OrderedDict[str, tuple[float, Template]] = OrderedDict()
        self._lock = threading.Lock()

    def template(self, url: str | None, *, tenant: str, schema: str) -> Template:
        """Return what the pages of the address's site share; `schema` is the schema's hash."""
        key = self._key(url, tenant, schema)
        if key is None:
            return NOTHING
        now = time.monotonic()
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and now - kept[0] < self._kept_s:
            return kept[1]
        try:
            found = _template(cast("dict[bytes, bytes]", self._redis.hgetall(key)))
        except RedisError as error:
            _log.warning("site_template_unread", error=type(error).__name__)
            return NOTHING
        with self._lock:
            self._kept[key] = now, found
            self._kept.move_to_end(key)
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return found

    def learn(
        self,
        url: str | None,
        text: str,
        evidence: Sequence[Evidence],
        *,
        tenant: str,
        schema: str,
    ) -> None:
        """Count a page's visible text for its site; lines in which evidence stands are never cut.

        An address counts once.
        """
        key = self._key(url, tenant, schema)
        if key is None or url is None:
            return
        spans = [(each.start, each.end) for each in evidence if each.source == "text"]
        held = [line_digest(line) for line in held_lines(text, spans)]
        lines = list({line_digest(line) for line in text.split("\n")[:_MAX_PAGE_LINES]})
        bounds = (_LIFE_S, _MAX_PAGES, _MAX_LINES, len(lines))
        try:
            self._learn(keys=[key], args=[line_digest(url), *bounds, *lines, *held])
        except RedisError as error:
            _log.warning("site_template_not_learnt", error=type(error).__name__)

    def _key(self, url: str | None, tenant: str, schema: str) -> str | None:
        try:
            host = urlsplit(url or "").hostname
        except ValueError:
            host = None
        if not host:
            return None
        named = "\0".join((tenant, schema, host)).encode("utf-8", "surrogatepass")
        return f"{self._namespace}:site:{hashlib.sha256(named).hexdigest()[:24]}"


def _template(fields: dict[bytes, bytes]) -> Template:
    pages = int(fields.get(b"pages", b"0"))
    if pages < MIN_PAGES:
        return NOTHING
    return Template(
        frozenset(
            field[1:]
            for field, count in fields.items()
            if field[:1] == b"l" and count != b"h" and int(count) >= SHARE * pages
        )
    )
