"""Bytes to text: which encoding a page is in, and the text without ever failing.

The order is the byte-order mark, the encoding that the submitter states, the charset of the HTTP
header, strict UTF-8, the page's own declaration, statistics. Strict UTF-8 stands before the
declaration, unlike in browsers: a stored page that decodes as UTF-8 is UTF-8 nearly always,
whatever a template's meta tag says.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

import charset_normalizer

from .content_type import wide_codec

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Labels whose pages hold the characters of a larger encoding (as browsers read them).
_WIDER = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "latin-1": "cp1252",
    "latin1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "hz": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
_LABEL_ALIASES = {
    "x-sjis": "shift_jis",
    "windows-31j": "cp932",
    "x-gbk": "gbk",
    "x-x-big5": "big5",
    "ks_c_5601-1987": "euc_kr",
    "x-euc-jp": "euc_jp",
    "windows-874": "cp874",
    "unicode": "utf-8",
    "utf8mb4": "utf-8",
    "x-user-defined": "cp1252",
}
# Codecs of Python that are no text encodings of pages, or that pages must not choose.
_NO_PAGE_CODECS = re.compile(
    r"base64|bz2|hex|quopri|rot|uu|zlib|zip|idna|punycode|unicode_|raw_|mbcs|oem|undefined|utf.?7"
)
_HEADER_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
# Any tag before the body that says charset=: also misspelt meta tags, and XML declarations.
_META_CHARSET = re.compile(rb"<meta[^>]{0,512}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"^\s*<\?xml[^>]{0,256}?encoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE)
_META_WINDOW = 16 * 1024
_STATISTICS_WINDOW = 256 * 1024
_STATISTICS_SAMPLE = 24 * 1024
_MARKUP = re.compile(rb"<(script|style)\b.*?</\1\s*>|<[^>]{0,2000}>", re.IGNORECASE | re.DOTALL)
_HIGH = re.compile(rb"[\x80-\xff]")
_ASCII_LETTER = re.compile(rb"[a-zA-Z]")
_HIGH_RUN = re.compile(rb"[^\n]{0,60}[\x80-\xff][^\n]{0,200}")
# Letters and signs that western texts are written with: no other alphabet maps to these alone.
_WESTERN = frozenset(
    "àâäáãåæçéèêëíìîïñóòôöõøœßúùûüÿÀÂÄÁÅÆÇÉÈÊËÍÎÑÓÔÖØŒÚÜ“”‘’‚„–—…•€£©®™°«»¿¡·§´\xa0½¼²³×ªº"
)
_WESTERN_SHARE = 0.03
_ALPHABET_SHARE = 0.2
_ALPHABETS = ["cp1252", "cp1250", "cp1254", "cp1257"]
_SCRIPTS = (
    "cp1251 koi8_r cp1253 cp1255 cp1256 cp866 cp874 cp932 euc_jp gb18030 big5hkscs cp949 iso8859_5"
).split()
# Mostly UTF-8 with a few broken bytes (cut strings, foreign comments) stays UTF-8.
_BROKEN_PER_VALID = 0.34
_BROKEN_PER_VALID_TOLD = 1.5  # the page or its header says UTF-8
_VALID_RUN = re.compile(r"[^\x00-\x7f\ufffd]+")
_CJK_CODECS = frozenset({"gb18030", "big5hkscs", "cp932", "cp949", "euc_jp", "iso2022_jp"})


@dataclass(frozen=True)
class Decoded:
    """The text of a body; `encoding` is the Python codec's name, `evidence` what told it.

    `replaced` says that bytes didn't fit and became U+FFFD.
    """

    text: str
    encoding: str
    evidence: str
    replaced: bool = False


def python_codec(label: str | None) -> str | None:
    """Return the codec for an encoding label as pages write it; None when there is none."""
    if not label:
        return None
    name = label.strip().strip("\"'").lower()
    name = _LABEL_ALIASES.get(name, name)
    if len(name) > 40 or _NO_PAGE_CODECS.match(name):
        return None
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    if _NO_PAGE_CODECS.match(found):
        return None
    if found in ("utf-16", "utf-32"):
        # Told inside of ASCII-compatible bytes, this can't be true.
        return None
    return _WIDER.get(found, found)


def decode(body: bytes, *, content_type: str | None = None, encoding: str | None = None) -> Decoded:
    """Return the text of `body`; never fails, bytes that fit nowhere are replaced."""
    for mark, codec in _BOMS:
        if body.startswith(mark):
            found = _lenient(body[len(mark) :], codec, "byte-order mark")
            if codec != "utf-8" or not found.replaced or _mostly_utf8(found.text):
                return found
            body = body[len(mark) :]
            break
    if stated := _stated_codec(encoding):
        return _lenient(body, stated, "stated")
    if wide := wide_codec(body):
        return _lenient(body, wide, "zero bytes")
    utf8 = _lenient(body, "utf-8", "valid UTF-8")
    header = _HEADER_CHARSET.search(content_type or "")
    label = python_codec(header[1]) if header else None
    # Text that is valid UTF-8 beyond ASCII is no accident of a single-byte encoding; short texts
    # of the CJK encodings may be.
    if label and (utf8.replaced or label in _CJK_CODECS) and label != "utf-8":
        text = _strict(body, label)
        if text is not None and not (utf8.replaced and _mostly_utf8(utf8.text)):
            return Decoded(text, label, "header")
    if not utf8.replaced:
        return utf8
    declared = declared_codec(body)
    if _mostly_utf8(utf8.text, told="utf-8" in (declared, label)):
        return Decoded(utf8.text, "utf-8", "mostly UTF-8", replaced=True)
    if declared and declared != "utf-8":
        near = _lenient(body, declared, "declared")
        if near.text.count("\ufffd") * 200 <= len(near.text):
            return near
    return _by_statistics(body)


def declared_codec(body: bytes) -> str | None:
    """Return the codec that the page itself names, in a meta tag or an XML declaration."""
    head = body[:_META_WINDOW]
    for pattern in (_XML_ENCODING, _META_CHARSET):
        found = pattern.search(head)
        if found and (codec := python_codec(found[1].decode("ascii", "ignore"))):
            return codec
    return None


def _stated_codec(encoding: str | None) -> str | None:
    if encoding and encoding.strip().lower().replace("_", "-") in ("utf-16", "utf16"):
        return "utf-16-le"
    return python_codec(encoding)


def _strict(body: bytes, codec: str) -> str | None:
    try:
        return body.decode(codec)
    except (UnicodeDecodeError, LookupError, ValueError):
        return None


def _lenient(body: bytes, codec: str, evidence: str) -> Decoded:
    text = _strict(body, codec)
    if text is not None:
        return Decoded(text, codec, evidence)
    return Decoded(body.decode(codec, "replace"), codec, evidence, replaced=True)


def _mostly_utf8(text: str, *, told: bool = False) -> bool:
    """Whether text decoded leniently as UTF-8 is UTF-8 with a few broken bytes."""
    broken = text.count("\ufffd")
    valid = sum(1 for _ in _VALID_RUN.finditer(text))
    return broken <= valid * (_BROKEN_PER_VALID_TOLD if told else _BROKEN_PER_VALID)


def _by_statistics(body: bytes) -> Decoded:
    """Tell the encoding by which characters the bytes would be.

    A few bytes over 127 among plain letters are the quotes and accents of a western text, whatever
    else they could be; only where they are many is there something to count.
    """
    sample, share = _dense_sample(body)
    if share < _WESTERN_SHARE or _is_western(sample):
        return _lenient(body, "cp1252", "statistics")
    candidates = _ALPHABETS if share < _ALPHABET_SHARE else _ALPHABETS + _SCRIPTS
    best = charset_normalizer.from_bytes(sample, cp_isolation=list(candidates)).best()
    codec = python_codec(best.encoding) if best is not None else None
    return _lenient(body, codec or "cp1252", "statistics")


def _is_western(sample: bytes) -> bool:
    text = sample.decode("cp1252", "replace")
    return all(char in _WESTERN for char in text if char > "\x7f")


def _dense_sample(body: bytes) -> tuple[bytes, float]:
    """The text around bytes over 127, and their share of all letters outside of tags."""
    text = _MARKUP.sub(b" ", body[:_STATISTICS_WINDOW])
    high = len(_HIGH.findall(text))
    share = high / max(1, high + len(_ASCII_LETTER.findall(text)))
    runs: list[bytes] = []
    size = 0
    for found in _HIGH_RUN.finditer(text):
        runs.append(found[0])
        size += len(found[0])
        if size > _STATISTICS_SAMPLE:
            break
    return b"\n".join(runs) or text[:_STATISTICS_SAMPLE], share
