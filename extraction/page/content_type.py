"""What kind of document a body is: by its bytes first, then by what the server said."""

from __future__ import annotations

import re
from typing import Literal

from ..reason import Reason, Refused

Kind = Literal["html", "json", "feed", "text"]

# First bytes of formats that hold no page text for us.
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "PDF"),
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"PK\x03\x04", "ZIP archive or office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\xd0\xcf\x11\xe0", "office document"),
    (b"\x7fELF", "executable"),
    (b"\x00asm", "WebAssembly"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"wOFF", "font"),
    (b"wOF2", "font"),
    (b"{\\rtf", "RTF document"),
    (b"%!PS", "PostScript"),
)
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"})
_FEED_START = re.compile(rb"<(?:rss|feed|rdf:RDF)[\s>]", re.IGNORECASE)
_MARKUP_START = re.compile(rb"\s*(?:<\?xml[^>]*\?>\s*)?<(?:[!a-zA-Z]|\?)", re.IGNORECASE)
_HTML_SIGN = re.compile(rb"<(?:!doctype\s+html|html|head|body|title|div|p|table|h1)\b", re.I)
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_REFUSED_TYPE = re.compile(
    r"image/(?!svg)|audio/|video/|font/|application/(?:pdf|octet-stream|zip|gzip|x-gzip|x-tar"
    r"|msword|vnd\.ms-|vnd\.openxmlformats|wasm|java-archive|rtf|postscript|x-shockwave-flash)"
    r"|(?:text|application)/(?:css|(?:x-)?javascript|ecmascript)"
)


def media_type(content_type: str | None) -> str:
    """Return the bare type of a Content-Type value, in lower case; "" when there is none."""
    return (content_type or "").partition(";")[0].strip().lower()


def kind_of(body: bytes, content_type: str | None) -> Kind:
    """Return what `body` is; Refused when it is no kind of document with text for us.

    Markup is recognised by its bytes even when the server calls it plain text or nothing at all;
    a type that plainly names another format is believed.
    """
    stated = media_type(content_type)
    head = body[:2048].lstrip(b"\xef\xbb\xbf \t\r\n")
    for magic, name in _MAGIC:
        if body.startswith(magic):
            raise _unsupported(name)
    if body[4:8] == b"ftyp" or (body[:4] == b"RIFF" and body[8:12] in (b"WEBP", b"WAVE", b"AVI ")):
        raise _unsupported("media file")
    if _REFUSED_TYPE.match(stated):
        raise _unsupported(stated)
    if is_binary(body):
        raise _unsupported("binary data")
    if stated in _HTML_TYPES:
        return "html"
    if stated.endswith(("/json", "+json")):
        return "json"
    if _FEED_START.search(head) and not _HTML_SIGN.search(head[: _first_tag(head)]):
        return "feed"
    if stated.endswith("/xml") or stated.endswith("+xml"):
        return "html" if _HTML_SIGN.search(head) else "feed"
    if _MARKUP_START.match(head) or _HTML_SIGN.search(head):
        return "html"
    if not stated and head[:1] in (b"{", b"["):
        return "json"
    if stated.startswith("text/") or not stated:
        return "text" if stated != "text/html" else "html"
    raise _unsupported(stated)


def is_binary(body: bytes) -> bool:
    """Whether the bytes hold more control characters than any text would (UTF-16 is text)."""
    sample = body[:4096]
    if sample.startswith(_WIDE_BOMS) or wide_codec(sample):
        return False
    return len(_CONTROL.findall(sample)) > max(2, len(sample) // 100)


def wide_codec(sample: bytes) -> str | None:
    """Return the UTF-16 codec of text without a mark, told by where its zero bytes stand."""
    sample = sample[:512]
    pairs = len(sample) // 2
    if pairs < 2:
        return None
    even, odd = sample[0 : 2 * pairs : 2].count(0), sample[1 : 2 * pairs : 2].count(0)
    if odd > 0.7 * pairs and even < 0.05 * pairs:
        return "utf-16-le"
    if even > 0.7 * pairs and odd < 0.05 * pairs:
        return "utf-16-be"
    return None


def _first_tag(head: bytes) -> int:
    found = _FEED_START.search(head)
    return found.start() if found else 0


def _unsupported(what: str) -> Refused:
    return Refused(
        Reason.UNSUPPORTED_CONTENT_TYPE,
        f"the body is {what}, not a page of text",
        advice="submit HTML, XHTML, XML feeds, JSON or plain text",
    )
