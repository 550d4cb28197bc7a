"""Submissions on their way into the ledger: checked, named, compressed."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import msgspec

from ..reason import Reason, Refused
from . import keys
from .bodies import pack
from .rows import PageMeta, encode_meta
from .types import LedgerLimits, PageSubmission

_CHUNK_PAGES = 64
_CHUNK_BYTES = 4 * 1024 * 1024
_MAX_TEXT = 8192


class _OfTenant(msgspec.Struct):
    tenant: str = ""


_of_tenant = msgspec.json.Decoder(_OfTenant)


@functools.lru_cache(maxsize=1024)
def _tenant(options: bytes) -> str:
    """Return whose page it is, by its options; other options don't matter to the ledger."""
    try:
        tenant = _of_tenant.decode(options).tenant
    except (msgspec.MsgspecError, ValueError):
        return ""
    return keys.queue_part(tenant)[:64]


@functools.lru_cache(maxsize=1024)
def _work(schema: str, model: str, options: bytes) -> str:
    """Return what stands for pages that may share a burst."""
    return hashlib.sha256(f"{schema}\0{model}\0".encode() + options).hexdigest()[:16]


@functools.lru_cache(maxsize=256)
def _meta(
    schema: str, content_type: str | None, encoding: str | None, options: bytes, model: str
) -> bytes:
    return encode_meta(PageMeta(schema, content_type, encoding, options, model))


def estimated_tokens(size: int) -> int:
    """Return what a page of `size` bytes is charged: its prompt and its record, roughly.

    The exact number is known when the page has been read, which is too late for its turn. A prompt
    holds at most a few thousand tokens of a page, however long that is.
    """
    return 256 + min(size // 16, 3072)


class Admission(msgspec.Struct, frozen=True):
    """A submission as the script takes it."""

    page_id: str
    client_id: str
    queue: str
    tokens: int
    content: str
    body: bytes
    meta: bytes
    url: str
    schema: str

    @classmethod
    def of(cls, page: PageSubmission, limits: LedgerLimits) -> Admission:
        """Check a submission and give it its id; Refused says what is too large."""
        if len(page.body) > limits.max_page_bytes:
            raise Refused(
                Reason.PAGE_TOO_LARGE,
                f"a page of {len(page.body)} bytes, the limit is {limits.max_page_bytes}",
                advice="leave it out, or raise the limit",
            )
        texts = (page.client_id, page.url or "", page.content_type or "", page.encoding or "")
        if max(map(len, texts)) > _MAX_TEXT or len(page.options) > _MAX_TEXT:
            raise Refused(
                Reason.REQUEST_TOO_LARGE,
                f"a URL, id, header or set of options has more than {_MAX_TEXT} characters",
            )
        if not page.schema:
            raise Refused(Reason.SCHEMA_UNKNOWN, "a page without a schema")
        content = keys.content_hash(page.body)
        page_id = keys.page_id(
            url=page.url,
            content=content,
            schema=page.schema,
            options=page.options,
            model=page.model,
            content_type=page.content_type or "",
            encoding=page.encoding or "",
        )
        work = _work(page.schema, page.model, page.options)
        names = (page.queue_class, _tenant(page.options), work, keys.site_of(page.url))
        return cls(
            page_id=page_id,
            client_id=page.client_id or page_id,
            queue="|".join(names),
            tokens=estimated_tokens(len(page.body)),
            content=content,
            body=pack(page.body),
            meta=_meta(page.schema, page.content_type, page.encoding, page.options, page.model),
            url=page.url or "",
            schema=page.schema,
        )

    def arguments(self) -> list[bytes]:
        """Return the page's arguments of submit.lua."""
        page_id = self.page_id.encode()
        return [
            page_id,
            self.client_id.encode("utf-8", "replace"),
            self.queue.encode(),
            b"%d" % self.tokens,
            self.content.encode(),
            self.body,
            self.meta,
            self.url.encode("utf-8", "replace"),
            page_id[:16] if self.url else b"",
            self.schema.encode(),
        ]


def chunks(places: Sequence[int], entries: Sequence[Admission]) -> list[list[int]]:
    """Cut places of `entries` into runs that one script call takes: a bounded number and size."""
    runs: list[list[int]] = []
    size = 0
    for at in places:
        size += len(entries[at].body)
        if not runs or len(runs[-1]) >= _CHUNK_PAGES or size > _CHUNK_BYTES:
            runs.append([])
            size = len(entries[at].body)
        runs[-1].append(at)
    return runs
