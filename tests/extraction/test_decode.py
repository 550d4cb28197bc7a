"""Which encoding a body is read in, and that no body is too broken to read."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagemill.extraction.page import decode
from pagemill.extraction.page.decode import python_codec

RUSSIAN = "Привет, мир. Цена 100 рублей, доставка завтра."
CHINESE = "网站地图 商品价格一百元 欢迎光临本店"
JAPANESE = "こんにちは。価格は千円です。ありがとうございます。"
GERMAN = "Größe: 42, Preis: 5 € – schöne Grüße"


def page(text: str, charset: str | None = None) -> str:
    meta = f'<meta charset="{charset}">' if charset else ""
    return f"<html><head>{meta}<title>{text}</title></head><body><p>{text}</p></body></html>"


@pytest.mark.parametrize(
    ("text", "codec", "declared", "header", "stated", "expected"),
    [
        # Each sign on its own.
        (RUSSIAN, "utf-8-sig", None, None, None, "utf-8"),
        (RUSSIAN, "utf-16", None, None, None, "utf-16-le"),
        (GERMAN, "utf-16-be", None, None, None, "utf-16-be"),
        (RUSSIAN, "koi8_r", None, None, "koi8-r", "koi8-r"),
        (RUSSIAN, "cp1251", None, "text/html; charset=windows-1251", None, "cp1251"),
        (RUSSIAN, "cp1251", "windows-1251", None, None, "cp1251"),
        (RUSSIAN, "utf-8", None, None, None, "utf-8"),
        # Labels that mean a larger encoding.
        ("價格 一百", "gb18030", "gb2312", None, None, "gb18030"),
        (GERMAN, "cp1252", "iso-8859-1", None, None, "cp1252"),
        (JAPANESE, "cp932", "x-sjis", None, None, "cp932"),
        # Signs that contradict each other.
        (RUSSIAN, "utf-8", "windows-1251", None, None, "utf-8"),
        (GERMAN, "utf-8", None, "text/html; charset=iso-8859-15", None, "utf-8"),
        ("“smart” and more", "cp1252", "windows-1252", "text/html; charset=utf-8", None, "cp1252"),
        (RUSSIAN, "cp1251", "windows-1251", "text/html; charset=nonsense", None, "cp1251"),
        # Nobody says anything.
        (CHINESE, "gb18030", None, None, None, "gb18030"),
        (JAPANESE, "cp932", None, None, None, "cp932"),
        (RUSSIAN, "cp1251", None, None, None, "cp1251"),
        ("“Quoted” — plain English, and no more than that.", "cp1252", None, None, None, "cp1252"),
    ],
)
def test_encoding(
    text: str,
    codec: str,
    declared: str | None,
    header: str | None,
    stated: str | None,
    expected: str,
) -> None:
    body = page(text, declared).encode(codec)
    found = decode(body, content_type=header, encoding=stated)
    assert found.text == page(text, declared)
    assert found.encoding == expected
    assert not found.replaced


def test_a_misspelt_meta_tag_still_tells() -> None:
    html = (
        f'<meta httpequiv="ContentType" content="text/html; charset=gbk"><title>{CHINESE}</title>'
    )
    assert CHINESE in decode(html.encode("gbk")).text


def test_utf8_with_a_broken_byte_stays_utf8() -> None:
    body = page(RUSSIAN * 3, "utf-8").encode().replace("мир".encode(), b"\xd0\xbc\xff", 1)
    found = decode(body)
    assert found.encoding == "utf-8"
    assert found.replaced
    assert "Привет" in found.text


def test_text_that_says_utf8_and_is_not() -> None:
    assert decode(page("caf\u00e9 “au lait”", "utf-8").encode("cp1252")).encoding == "cp1252"


@pytest.mark.parametrize("label", ["base64", "rot13", "utf-7", "unicode_escape", "zip", "x" * 99])
def test_labels_that_pages_must_not_choose(label: str) -> None:
    assert python_codec(label) is None


@given(st.binary(max_size=400), st.sampled_from([None, "utf-16", "gb2312", "hex", "\x00"]))
def test_any_bytes_have_a_text(body: bytes, encoding: str | None) -> None:
    found = decode(body, encoding=encoding)
    codecs.lookup(found.encoding)
    assert found.replaced or "\ufffd" not in found.text or b"\xef\xbf\xbd" in body or encoding
