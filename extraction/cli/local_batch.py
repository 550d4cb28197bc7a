"""One run's pages: into the ledger in groups, their records out as they finish."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from ..finished import batch_result
from ..inputs import BadInput
from ..ledger import Ledger
from ..record import PageInput, Result
from .feeder import Feeder
from .writers import ResultWriter

# Pages that may wait in the ledger before reading goes on.
_AHEAD = 512


@dataclass
class Tally:
    """Pages by outcome."""

    pages: int = 0
    done: int = 0
    failed: int = 0


class LocalBatch:
    """Reads pages no further ahead than needed, and writes a result for each.

    `schema` (name@3) is what a page that can't be read says it was for.
    """

    def __init__(
        self, ledger: Ledger, feeder: Feeder, writer: ResultWriter, *, schema: str
    ) -> None:
        self._ledger = ledger
        self._feeder = feeder
        self._writer = writer
        self._schema = schema
        self._id = uuid.uuid4().hex
        self._cursor = ""
        self._submitted = 0
        self._written = 0
        self.tally = Tally()

    @property
    def pending(self) -> int:
        """Pages that were submitted and have no line yet."""
        return self._submitted - self._written

    def fill(self) -> bool:
        """Submit the next group unless enough are waiting; False once the pages have ended."""
        if self.pending >= _AHEAD:
            return True
        group = self._feeder.next_group()
        self.tally.pages = self._feeder.seen
        for bad in group.bad:
            self._write_bad(bad)
        if group.pages:
            self._ledger.submit(group.pages, batch=self._id)
            status = self._ledger.batch(self._id)
            # A page given twice under one id counts once.
            self._submitted = status.total if status is not None else 0
        return not group.last

    def collect(self) -> None:
        """Write the lines of pages that have finished since."""
        while self._submitted:
            records, self._cursor = self._ledger.records(self._id, self._cursor, 100)
            for record in records:
                self._written += 1
                self._write(batch_result(record))
            if not records:
                return

    def _write_bad(self, bad: BadInput) -> None:
        page = PageInput(id=bad.id, body=b"", url=bad.url)
        self._write(Result.failed(page, bad.reason, bad.message, schema=self._schema))

    def _write(self, result: Result) -> None:
        if result.status == "done":
            self.tally.done += 1
        else:
            self.tally.failed += 1
        self._writer.write(result)
