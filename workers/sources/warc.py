"""WARC files, Common Crawl's segments among them: the pages of their HTTP responses.

Read with FastWARC (Apache-2.0), which the extra `pagemill[warc]` brings.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pagemill.extraction.inputs import BadInput
from pagemill.extraction.reason import Reason, Refused
from pagemill.extraction.record import PageInput

from .pump import SourcedPage

_PAGE_TYPES = ("text/html", "application/xhtml+xml", "text/plain", "application/json", "")


class WarcSource:
    """The responses with status 200 that hold text, of .warc, .warc.gz and .warc.zst files.

    Chunks and content encodings (gzip, deflate, brotli) are undone, never past the limit of a page.
    The record's id is the page's, its target URI the page's URL. What isn't a page (images,
    redirects, requests) is left out without a word; a damaged file is rejected from there on.
    """

    def __init__(self, paths: Sequence[str], *, max_page_bytes: int) -> None:
        try:
            import fastwarc
        except ImportError:
            raise Refused(
                Reason.INPUT_INVALID,
                "WARC files need the package fastwarc",
                advice="pip install 'pagemill[warc]'",
            ) from None
        self._fastwarc: Any = fastwarc
        self._files = [file for path in paths for file in _files(path)]
        self._max_page_bytes = max_page_bytes

    def pages(self) -> Iterator[SourcedPage | None]:
        for file in self._files:
            try:
                for page in self._pages(file):
                    yield SourcedPage(page)
            except Exception as error:
                # FastWARC raises whatever it met: OSError, ValueError, EOFError, its own.
                message = f"no WARC file, or a damaged one: {error}"
                yield SourcedPage(BadInput(file, None, Reason.INPUT_INVALID, message[:500]))

    def kept(self, handles: Sequence[Any]) -> None:
        """Files stay as they are; reading them again changes nothing."""

    def _pages(self, file: str) -> Iterator[PageInput | BadInput]:
        with open(file, "rb") as stream:
            records = self._fastwarc.ArchiveIterator(
                stream,
                record_types=self._fastwarc.WarcRecordType.response,
                parse_http=True,
                auto_decode="all",
            )
            any_record = False
            for record in records:
                any_record = True
                page = self._page(record)
                if page is not None:
                    yield page
            if not any_record and Path(file).stat().st_size:
                yield BadInput(file, None, Reason.INPUT_INVALID, "no response in this file")

    def _page(self, record: Any) -> PageInput | BadInput | None:
        http = record.http_headers
        if http is None or http.status_code != 200:
            return None
        content_type = http.get("Content-Type")
        if (content_type or "").partition(";")[0].strip().lower() not in _PAGE_TYPES:
            return None
        name = str(record.record_id).strip("<>")[:512]
        url = record.headers.get("WARC-Target-URI")
        url = url.strip("<>") if url else None
        body = record.reader.read(self._max_page_bytes + 1)
        if len(body) > self._max_page_bytes:
            return BadInput(
                name, url, Reason.PAGE_TOO_LARGE, f"a body of over {self._max_page_bytes} bytes"
            )
        return PageInput(id=name, url=url, body=body, content_type=content_type)


def _files(path: str) -> list[str]:
    found = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else [path]
    files = [name for name in found if Path(name).is_file()]
    if not files:
        raise Refused(Reason.INPUT_INVALID, f"{path}: no such file")
    return files
