"""Progress of a run on stderr, when that is a terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.status import Status

from .console import stderr
from .local_batch import Tally


class Progress:
    """A live line `12/20 pages, 1 failed, 2.1 pages/s`; silent when quiet or not a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._status: Status | None = None
        if not quiet and stderr.is_terminal:
            self._status = stderr.status("starting")
        self._started = time.monotonic()

    def update(self, tally: Tally) -> None:
        if self._status is None:
            return
        finished = tally.done + tally.failed
        rate = finished / max(1e-3, time.monotonic() - self._started)
        text = f"{finished}/{tally.pages} pages, {tally.failed} failed, {rate:.1f} pages/s"
        self._status.update(text)

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()
