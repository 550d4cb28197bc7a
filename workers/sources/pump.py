"""Moves pages from a source into the ledger, no faster than the ledger takes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
import structlog
from pagemill.extraction.inputs import BadInput
from pagemill.extraction.intake import submission
from pagemill.extraction.ledger import Ledger
from pagemill.extraction.reason import Reason, Refused
from pagemill.extraction.record import PageInput

_log = structlog.get_logger(__name__)


class SourcedPage(msgspec.Struct, frozen=True):
    """A page, or why there is none, with the source's own handle for it."""

    page: PageInput | BadInput
    handle: Any = None


class Source(Protocol):
    """Gives each page at least once; a page that was given and not kept comes again."""

    def pages(self) -> Iterator[SourcedPage | None]:
        """Yield pages; None says that nothing waits at the moment."""

    def kept(self, handles: Sequence[Any]) -> None:
        """The ledger has these pages now (or refused them for good)."""


class PumpReport(msgspec.Struct, frozen=True):
    """Pages handed to the ledger, how many of them it knew already, and pages that were no use."""

    submitted: int = 0
    known: int = 0
    rejected: int = 0


def pump(
    source: Source,
    ledger: Ledger,
    *,
    schema: str,
    model: str,
    options: bytes = b"",
    batch: str | None = None,
    group_size: int = 64,
    ring: Callable[[], object] = lambda: None,
    stop: Callable[[], bool] = lambda: False,
    full_pause_s: float = 0.5,
) -> PumpReport:
    """Submit a source's pages in groups until it ends or `stop()`.

    `schema` is a fixed version. A full ledger is waited for; other refusals are raised, and the
    pages of that group stay with the source.
    """
    submitted = known = rejected = 0
    group: list[SourcedPage] = []

    def flush() -> None:
        nonlocal submitted, known
        if not group:
            return
        pages = [
            submission(
                item.page.body,
                schema=schema,
                model=model,
                url=item.page.url,
                client_id=item.page.id,
                content_type=item.page.content_type,
                encoding=item.page.encoding,
                options=options,
            )
            for item in group
            if isinstance(item.page, PageInput)
        ]
        while True:
            try:
                answers = ledger.submit(pages, batch=batch)
                break
            except Refused as refused:
                if refused.reason not in (Reason.LEDGER_FULL, Reason.RATE_LIMITED) or stop():
                    raise
                ring()
                time.sleep(full_pause_s)
        submitted += len(answers)
        known += sum(not answer.created for answer in answers)
        source.kept([item.handle for item in group])
        group.clear()
        ring()

    for item in source.pages():
        if item is None:
            flush()
        elif isinstance(item.page, BadInput):
            rejected += 1
            _log.warning("page_rejected", page=item.page.id, reason=str(item.page.reason))
            source.kept([item.handle])
        else:
            group.append(item)
            if len(group) >= group_size:
                flush()
        if stop():
            break
    flush()
    return PumpReport(submitted, known, rejected)
