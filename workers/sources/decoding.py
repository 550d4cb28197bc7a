"""Bodies as crawlers store them: plain, gzip, zlib or zstd, told by their first bytes."""

from __future__ import annotations

import zlib

import zstandard
from pagemill.extraction.reason import Reason, Refused

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def decode_body(data: bytes, max_bytes: int) -> bytes:
    """Return a body without its compression; never inflates past `max_bytes`.

    Raises Refused: PAGE_TOO_LARGE, or BODY_ENCODING_INVALID for a damaged one.
    """
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
