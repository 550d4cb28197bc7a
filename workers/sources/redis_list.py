"""Items that a crawler pushes to a Redis list, as scrapy-redis does (`SPIDER:items`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from pagemill.extraction.inputs import UNDECODABLE, BadInput
from pagemill.extraction.ledger import content_hash, redis_errors
from pagemill.extraction.reason import Reason, Refused
from pagemill.extraction.record import PageInput
from redis import Redis

from .decoding import decode_body
from .pump import SourcedPage

_decoder = msgspec.json.Decoder(dict[str, Any])


class FieldMap(msgspec.Struct, frozen=True, kw_only=True):
    """Which fields of an item hold what; of several names the first that is there counts."""

    url: tuple[str, ...] = ("url",)
    html: tuple[str, ...] = ("html", "body", "content")
    id: tuple[str, ...] = ("id",)
    headers: tuple[str, ...] = ("headers", "response_headers")

    @classmethod
    def parse(cls, text: str) -> FieldMap:
        """Read `url=url html=body|html`; Refused names what is no field."""
        fields: dict[str, tuple[str, ...]] = {}
        for part in text.split():
            name, equals, names = part.partition("=")
            if name not in cls.__struct_fields__ or not equals or not names:
                raise Refused(
                    Reason.INPUT_INVALID,
                    f"field map: {part!r}",
                    advice=f"write NAME=A|B with a NAME of {', '.join(cls.__struct_fields__)}",
                )
            fields[name] = tuple(names.split("|"))
        return cls(**fields)


class RedisListSource:
    """Takes items from a list's head by moving each to `KEY:pagemill` until the ledger has it.

    One consumer per list: at its start it takes up what an earlier one left there. Text bodies
    are text; a body that is base64 of something compressed or of bytes is undone when the item's
    `body_encoding` says so ("base64", "base64+br"). Header names count in any case, Scrapy's lists
    of values too.
    """

    def __init__(
        self,
        redis: Redis,
        key: str,
        *,
        max_page_bytes: int,
        fields: FieldMap | None = None,
        follow: bool = False,
        wait_s: float = 1.0,
    ) -> None:
        self._redis = redis
        self._key = key
        self._taken = f"{key}:pagemill"
        self._max_page_bytes = max_page_bytes
        self._fields = fields or FieldMap()
        self._follow = follow
        self._wait_s = wait_s

    def pages(self) -> Iterator[SourcedPage | None]:
        """Yield items; with `follow` for ever, else until the list is empty."""
        with redis_errors():
            left = cast("list[bytes]", self._redis.lrange(self._taken, 0, -1))
        for item in left:
            yield SourcedPage(self._page(item), item)
        while True:
            taken = self._take()
            if taken is not None:
                yield SourcedPage(self._page(taken), taken)
                continue
            yield None
            if not self._follow:
                return
            with redis_errors():
                waited = self._redis.blmove(
                    self._key, self._taken, cast(int, self._wait_s), "LEFT", "RIGHT"
                )
            if isinstance(waited, bytes):
                yield SourcedPage(self._page(waited), waited)

    def kept(self, handles: Sequence[Any]) -> None:
        with redis_errors():
            pipe = self._redis.pipeline(transaction=False)
            for item in handles:
                pipe.lrem(self._taken, 1, item)
            pipe.execute()

    def _take(self) -> bytes | None:
        with redis_errors():
            item = self._redis.lmove(self._key, self._taken, "LEFT", "RIGHT")
        return item if isinstance(item, bytes) else None

    def _page(self, item: bytes) -> PageInput | BadInput:
        name = content_hash(item)[:16]
        url: str | None = None
        try:
            if len(item) > 4 * self._max_page_bytes:
                raise Refused(Reason.PAGE_TOO_LARGE, f"an item of {len(item)} bytes")
            fields = _decoder.decode(item)
            found = self._find(fields, self._fields.id)
            name = str(found)[:512] if found is not None else name
            found = self._find(fields, self._fields.url)
            url = found if isinstance(found, str) else None
            html = self._find(fields, self._fields.html)
            if not isinstance(html, str):
                raise Refused(Reason.BODY_MISSING, f"none of {'|'.join(self._fields.html)}")
            wrapping = fields.get("body_encoding")
            if isinstance(wrapping, str) and wrapping not in ("", "text", "utf-8"):
                # Anything but text travels in JSON as base64.
                if "base64" not in wrapping:
                    wrapping = f"base64+{wrapping}"
                raw = html.encode("ascii", "replace")
                body, encoding = decode_body(raw, self._max_page_bytes, wrapping), None
            else:
                body, encoding = html.encode("utf-8", "replace"), "utf-8"
        except Refused as refused:
            return BadInput(name, url, refused.reason, str(refused))
        except (*UNDECODABLE, ValueError) as error:
            return BadInput(name, url, Reason.INPUT_INVALID, str(error))
        return PageInput(
            id=name,
            url=url,
            body=body,
            encoding=encoding,
            content_type=_content_type(self._find(fields, self._fields.headers)),
        )

    def _find(self, fields: Mapping[str, Any], names: Sequence[str]) -> Any:
        return next((fields[name] for name in names if fields.get(name) is not None), None)


def _content_type(headers: Any) -> str | None:
    if not isinstance(headers, dict):
        return None
    for name, value in headers.items():
        if name.lower() == "content-type":
            first = value[0] if isinstance(value, list) and value else value
            return first if isinstance(first, str) else None
    return None
