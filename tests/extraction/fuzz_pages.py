"""Mutated pages through a part of reading: fuzz_pages.py decode|metadata|read SECONDS SEED PAGE...

Nothing but Refused may be raised, nothing may take long, and the text that the C++ core makes is
that of the walk in Python. A page on which that fails is written beside where this runs.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pagemill.extraction.page import PageLimits, decode, read
from pagemill.extraction.page.metadata import read_metadata
from pagemill.extraction.page.parse import parse
from pagemill.extraction.reason import Refused

_PIECES = (
    b'<script type=\'application/ld+json\'>|</script>|{"@type":"Product","name":|"|{|[|]}|@graph|'
    b"<meta charset=|gbk|\xff\xfe|\xef\xbb\xbf|<div itemscope itemtype=x itemprop=y>|<svg>|</svg>|"
    b"<table><tr><td>|<select><option>|<p hidden>|&#x1F600;|\x00|<base href='http://['>|<style>|<b>|"
    b'window.__STATE__ = {a:|</p>|<a href="|\x80\x81|<!--|<![CDATA[|<plaintext>|<template>'
).split(b"|")
_TYPES = (
    None,
    "text/html",
    "text/html; charset=gbk",
    "application/json",
    "application/rss+xml",
    "text/plain",
)
_MOST_SECONDS = PageLimits().max_seconds + 2


def mutated(page: bytes, chance: random.Random) -> bytes:
    body = bytearray(page)
    if chance.random() < 0.3:
        at = chance.randrange(len(body) + 1)
        body = body[:at] if chance.random() < 0.5 else body[at:]
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(body) + 1)
        match chance.randrange(5):
            case 0:
                body[at:at] = chance.choice(_PIECES)
            case 1:
                del body[at : at + chance.choice([1, 3, 200])]
            case 2:
                body[at : at + 1] = bytes([chance.randrange(256)])
            case 3:
                start = chance.randrange(len(body) + 1)
                body[at:at] = body[start : start + chance.randint(1, 400)]
            case _:
                body[at:at] = chance.choice(_PIECES) * 50
    return bytes(body)


def decode_one(body: bytes, chance: random.Random) -> None:
    stated = chance.choice([None, None, "utf-16", "nonsense"])
    decode(body, content_type=chance.choice(_TYPES), encoding=stated)


def metadata_one(body: bytes, chance: random.Random) -> None:
    metadata = read_metadata(parse(decode(body).text, PageLimits()).tree, PageLimits())
    metadata.lines()
    for entry in metadata.entries:
        metadata.value_at(entry.path)


def read_one(body: bytes, chance: random.Random) -> None:
    content_type = chance.choice(_TYPES)
    page = read(body, content_type=content_type)
    page.links()
    if page.text:
        start = chance.randrange(len(page.text))
        page.source_pieces(start, start + 20)
    if chance.random() < 0.2:
        assert read(body, content_type=content_type, native=False).content == page.content


PARTS: dict[str, Callable[[bytes, random.Random], None]] = {
    "decode": decode_one,
    "metadata": metadata_one,
    "read": read_one,
}


def main(part: str, seconds: float, seed: int, pages: list[bytes]) -> int:
    chance = random.Random(seed)
    ends = time.monotonic() + seconds
    count = refused = 0
    slowest = 0.0
    while time.monotonic() < ends:
        body = mutated(chance.choice(pages), chance)
        started = time.thread_time()
        count += 1
        try:
            PARTS[part](body, chance)
        except Refused:
            refused += 1
        except BaseException:
            Path(f"fuzz_{part}.failed").write_bytes(body)
            raise
        slowest = max(slowest, time.thread_time() - started)
    print(f"{part}: {count} pages, {refused} of them refused, the slowest in {slowest:.2f} s")
    return int(slowest > _MOST_SECONDS)


if __name__ == "__main__":
    named = [Path(name).read_bytes() for name in sys.argv[4:]]
    sys.exit(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), named))
