"""Files, folders, globs and NDJSON, as `pagemill extract` reads them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pagemill.extraction.inputs import BadInput, read_pages
from pagemill.extraction.reason import Reason

from .pump import SourcedPage


class FileSource:
    """Pages of files, once each. A line that names a schema is refused: one goes for all."""

    def __init__(self, paths: Sequence[str], *, max_page_bytes: int) -> None:
        self._paths = paths
        self._max_page_bytes = max_page_bytes

    def pages(self) -> Iterator[SourcedPage | None]:
        found = read_pages(self._paths, stdin=sys.stdin.buffer, max_page_bytes=self._max_page_bytes)
        for item in found:
            if isinstance(item, BadInput):
                yield SourcedPage(item)
            elif item.schema is not None:
                message = "a source's pages have one schema: leave the line's out"
                yield SourcedPage(BadInput(item.id, item.page.url, Reason.INPUT_INVALID, message))
            else:
                yield SourcedPage(item.page)

    def kept(self, handles: Sequence[Any]) -> None:
        """Files stay as they are; reading them again changes nothing."""
