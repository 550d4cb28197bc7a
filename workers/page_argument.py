"""A page as a Celery message or a Redis key carries it, read into bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from pagemill.extraction.inputs import BadInput, PageLine, ReadPage, page_of_line
from pagemill.extraction.ledger import redis_errors
from pagemill.extraction.reason import Reason, Refused
from pagemill.extraction.record import PageInput
from redis import Redis


def read_page(
    fields: Mapping[str, Any], redis: Redis, *, default_id: str, max_page_bytes: int
) -> ReadPage:
    """Return the page that `fields` describe; Refused says what is wrong with it.

    Fields as in NDJSON (`id`, `url`, `html`, or `body` with `body_encoding`, `content_type`,
    `encoding`, `schema`), or `body_base64`, or `page_key`: the name of a Redis string that holds
    the body, or of a hash with `url` and `body` or `html`.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if "body_base64" in given:
        given["body"] = given.pop("body_base64")
        given.setdefault("body_encoding", "base64")
    key = given.pop("page_key", None)
    stored = None
    if key is not None:
        if "html" in given or "body" in given:
            raise Refused(Reason.INPUT_INVALID, "give the page or its page_key, not both")
        stored = _stored(redis, key, max_page_bytes)
        given["body"], given["body_encoding"] = "", "utf-8"
    try:
        line = msgspec.convert(given, PageLine)
    except msgspec.ValidationError as error:
        raise Refused(Reason.INPUT_INVALID, f"page: {error}") from None
    read = page_of_line(line, default_id=default_id, max_page_bytes=max_page_bytes)
    if isinstance(read, BadInput):
        raise Refused(read.reason, read.message)
    if stored is None:
        return read
    url, body = stored
    page = PageInput(
        id=read.page.id,
        url=read.page.url or url,
        body=body,
        content_type=line.content_type,
        encoding=line.encoding,
    )
    return ReadPage(page, read.schema)


def _stored(redis: Redis, key: object, max_page_bytes: int) -> tuple[str | None, bytes]:
    """Return URL and body that a crawler has put under a key of its own."""
    if not isinstance(key, str) or not 0 < len(key) <= 1024:
        raise Refused(Reason.INPUT_INVALID, "page_key: from 1 to 1024 characters")
    with redis_errors():
        kind = cast(bytes, redis.type(key))
        if kind == b"string":
            if redis.strlen(key) > max_page_bytes:
                raise Refused(Reason.PAGE_TOO_LARGE, f"page_key {key!r}: over {max_page_bytes}")
            return None, cast("bytes | None", redis.get(key)) or b""
        if kind == b"hash":
            for field in ("body", "html"):
                if redis.hstrlen(key, field) > max_page_bytes:
                    raise Refused(Reason.PAGE_TOO_LARGE, f"page_key {key!r}: over {max_page_bytes}")
            values = redis.hmget(key, ["url", "body", "html"])
            url, body, html = cast("list[bytes | None]", values)
            content = body if body is not None else html
            if content is not None:
                return (None if url is None else url.decode("utf-8", "replace")), content
    raise Refused(
        Reason.BODY_MISSING,
        f"page_key {key!r} names no page",
        advice="store a string, or a hash with url and body",
    )
