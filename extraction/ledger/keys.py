"""Identity of pages, and the names of the ledger's keys."""

from __future__ import annotations

import functools
import hashlib
import re
import struct
from urllib.parse import urlsplit, urlunsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
# URLs that are their own normal form, which most are.
_NORMAL = re.compile(r"https?://[a-z0-9-]+(?:\.[a-z0-9-]+)*/(?:[!-\"$->@-~]*)(?:\?[!-\"$-~]+)?")
# What stands between the parts of a queue's name, or marks a page as lost before.
_AUTHORITY_END = re.compile(r"[/?#]")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.:-]")


def normalise_url(url: str | None) -> str:
    """Return the form of a URL under which its pages are one: RFC 3986 section 6.2.2-6.2.3.

    Scheme and host in lower case, no default port, no fragment, no empty path. What isn't a URL
    of a web page stays as it is.
    """
    if not url:
        return ""
    if _NORMAL.fullmatch(url):
        return url
    url = url.strip()
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS or not parts.hostname:
        return url
    host = parts.hostname.rstrip(".")
    if ":" in host:
        host = f"[{host}]"
    if port is not None and port != _DEFAULT_PORTS[scheme]:
        host = f"{host}:{port}"
    return urlunsplit((scheme, host, parts.path or "/", parts.query, ""))


def _host(netloc: str) -> str:
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return netloc


def site_of(url: str | None) -> str:
    """Return the host of a URL, "" without one: pages of a host share its turns and its cap."""
    if not url:
        return ""
    rest = url.partition("://")[2] or url
    return _site(_AUTHORITY_END.split(rest, maxsplit=1)[0])


@functools.lru_cache(maxsize=4096)
def _site(netloc: str) -> str:
    return queue_part(_host(netloc).lower()[:253])


def queue_part(text: str) -> str:
    """Return `text` as it may stand in the name of a queue."""
    return _NOT_IN_NAMES.sub("_", text)


def content_hash(body: bytes) -> str:
    """Return the SHA-256 of a body in hexadecimal."""
    return hashlib.sha256(body).hexdigest()


def url_digest(url: str) -> str:
    """Return the 16 hexadecimal digits that stand for a normalised URL."""
    return hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def page_id(
    *,
    url: str | None,
    content: str,
    schema: str,
    options: bytes,
    model: str,
    content_type: str = "",
    encoding: str = "",
) -> str:
    """Return the id of a page: equal inputs give equal records, so they are one page.

    What the submitter says of the body's type and encoding is an input too: it decides how the
    body is read. 64 hexadecimal digits. The first 16 stand for the URL alone (for the content
    where there is no URL), so that all versions of a URL live in one shard.
    """
    normal = normalise_url(url)
    parts = (
        normal.encode("utf-8", "surrogatepass"),
        content.encode(),
        schema.encode(),
        options,
        model.encode(),
        content_type.encode("utf-8", "surrogatepass"),
        encoding.encode("utf-8", "surrogatepass"),
    )
    framed = b"".join([piece for part in parts for piece in (_size(len(part)), part)])
    digest = hashlib.sha256(framed).hexdigest()
    return (url_digest(normal) if normal else content[:16]) + digest[:48]


_size = struct.Struct("<Q").pack


def shard_of(page: str, shards: int) -> int:
    """Return the shard that holds a page."""
    return int(page[:8], 16) % shards


def shard_prefix(namespace: str, shard: int) -> str:
    """Return the prefix of a shard's keys; the braces keep a shard in one Redis Cluster slot."""
    return f"{{{namespace}:{shard}}}"
