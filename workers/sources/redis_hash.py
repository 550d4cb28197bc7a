"""Pages that a crawler keeps as Redis hashes, one a page (`page:ID` with url and body or html)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from pagemill.extraction.inputs import BadInput
from pagemill.extraction.ledger import redis_errors
from pagemill.extraction.reason import Reason, Refused
from pagemill.extraction.record import PageInput
from redis import Redis

from .decoding import decode_body
from .pump import SourcedPage


class RedisHashSource:
    """One pass over the hashes whose keys match a pattern; they stay where they are.

    The key is the page's id. Bodies may be compressed (gzip, zlib, zstd; brotli or base64
    where the field `body_encoding` says so).
    """

    def __init__(self, redis: Redis, pattern: str, *, max_page_bytes: int) -> None:
        self._redis = redis
        self._pattern = pattern
        self._max_page_bytes = max_page_bytes

    def pages(self) -> Iterator[SourcedPage | None]:
        with redis_errors():
            for key in self._redis.scan_iter(self._pattern, count=500, _type="hash"):
                yield SourcedPage(self._page(cast(bytes, key)))

    def kept(self, handles: Sequence[Any]) -> None:
        """Hashes belong to the crawler."""

    def _page(self, key: bytes) -> PageInput | BadInput:
        name = key.decode("utf-8", "replace")
        for field in ("body", "html"):
            if self._redis.hstrlen(cast(str, key), field) > self._max_page_bytes:
                why = f"{field} has over {self._max_page_bytes} bytes"
                return BadInput(name, None, Reason.PAGE_TOO_LARGE, why)
        values = self._redis.hmget(
            cast(str, key), ["url", "body", "html", "content_type", "encoding", "body_encoding"]
        )
        url, body, html, content_type, encoding, wrapping = cast("list[bytes | None]", values)
        page_url = _text(url)
        content = body if body is not None else html
        if content is None:
            return BadInput(name, page_url, Reason.BODY_MISSING, "a hash without body or html")
        try:
            plain = decode_body(content, self._max_page_bytes, _text(wrapping) or "")
        except Refused as refused:
            return BadInput(name, page_url, refused.reason, str(refused))
        return PageInput(
            id=name,
            url=page_url,
            body=plain,
            content_type=_text(content_type),
            encoding=_text(encoding),
        )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
