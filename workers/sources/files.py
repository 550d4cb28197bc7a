"""Files, folders, globs and NDJSON, as `pagemill extract` reads them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pagemill.extraction.inputs import ReadPage, read_pages

from .pump import SourcedPage


class FileSource:
    """Pages of files, once each. What a file's line says of a schema is not looked at."""

    def __init__(self, paths: Sequence[str], *, max_page_bytes: int) -> None:
        self._paths = paths
        self._max_page_bytes = max_page_bytes

    def pages(self) -> Iterator[SourcedPage | None]:
        found = read_pages(self._paths, stdin=sys.stdin.buffer, max_page_bytes=self._max_page_bytes)
        for item in found:
            yield SourcedPage(item.page if isinstance(item, ReadPage) else item)

    def kept(self, handles: Sequence[Any]) -> None:
        """Files stay as they are; reading them again changes nothing."""
