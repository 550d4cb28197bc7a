"""Bodies as crawlers store them: gzip, zlib, zstd are told by their first bytes, others named."""

from __future__ import annotations

import base64
import zlib

import zstandard
from pagemill.extraction.reason import Reason, Refused

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def decode_body(data: bytes, max_bytes: int, encoding: str = "") -> bytes:
    """Return a body without its compression; never inflates past `max_bytes`.

    `encoding` says how the body was wrapped, outermost first, joined by +: "base64", "br" (or
    "brotli", which has no mark of its own), "base64+br". Raises Refused: PAGE_TOO_LARGE, or
    BODY_ENCODING_INVALID for a damaged one.
    """
    for wrapping in filter(None, encoding.lower().replace(",", "+").replace(" ", "").split("+")):
        if wrapping == "base64":
            try:
                data = base64.b64decode(data, validate=True)
            except ValueError as error:
                raise Refused(Reason.BODY_ENCODING_INVALID, f"no base64: {error}") from None
        elif wrapping in ("br", "brotli"):
            return _unbrotli(data, max_bytes)
        elif wrapping not in ("gzip", "deflate", "zlib", "zstd", "identity", "utf-8", "text"):
            raise Refused(
                Reason.BODY_ENCODING_INVALID,
                f"body_encoding {wrapping[:40]!r}",
                advice="known are base64, gzip, zlib, zstd, br and text",
            )
    try:
        if data.startswith(_GZIP):
            body = _inflate(data, 31, max_bytes)
        elif data.startswith(_ZSTD):
            body = _unpack(data, max_bytes)
        elif data.startswith(_ZLIB):
            body = _inflate(data, 15, max_bytes)
        else:
            body = data
    except (zlib.error, zstandard.ZstdError) as error:
        raise Refused(Reason.BODY_ENCODING_INVALID, f"a damaged body: {error}") from None
    if len(body) > max_bytes:
        raise Refused(Reason.PAGE_TOO_LARGE, f"a body of over {max_bytes} bytes")
    return body


def _unbrotli(data: bytes, max_bytes: int) -> bytes:
    try:
        import brotli
    except ImportError:
        raise Refused(
            Reason.BODY_ENCODING_INVALID,
            "brotli bodies need the package brotli",
            advice="pip install 'pagemill[warc]'",
        ) from None
    inflater = brotli.Decompressor()
    pieces, size, given = [], 0, data
    try:
        while size <= max_bytes and not inflater.is_finished():
            piece = inflater.process(given, output_buffer_limit=max_bytes + 1)
            given = b""
            if not piece and inflater.can_accept_more_data():
                raise Refused(Reason.BODY_ENCODING_INVALID, "a damaged body: it is cut off")
            pieces.append(piece)
            size += len(piece)
    except brotli.error as error:
        raise Refused(Reason.BODY_ENCODING_INVALID, f"a damaged body: {error}") from None
    if size > max_bytes:
        raise Refused(Reason.PAGE_TOO_LARGE, f"a body of over {max_bytes} bytes")
    return b"".join(pieces)


def _inflate(data: bytes, wbits: int, max_bytes: int) -> bytes:
    inflater = zlib.decompressobj(wbits)
    body = inflater.decompress(data, max_bytes + 1)
    if len(body) <= max_bytes and not inflater.eof:
        raise zlib.error("it is cut off")
    return body


def _unpack(data: bytes, max_bytes: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        body = reader.read(max_bytes + 1)
    size = zstandard.frame_content_size(data)
    if len(body) <= max_bytes and len(body) < size:
        raise zstandard.ZstdError("it is cut off")
    return body
