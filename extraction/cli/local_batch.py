"""One run's pages: into the ledger in groups, their records out as they finish."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pagemill import schemas

from ..finished import batch_result
from ..inputs import BadInput, ReadPage
from ..intake import fix_schema, submission
from ..ledger import Ledger, PageSubmission
from ..reason import Reason, Refused
from ..record import PageInput, Result

_GROUP_PAGES = 32
_GROUP_BYTES = 8 << 20
# Pages that may wait in the ledger before reading goes on.
_AHEAD = 512


@dataclass
class Tally:
    """Pages by outcome."""

    pages: int = 0
    done: int = 0
    failed: int = 0


class LocalBatch:
    """Reads pages no further ahead than needed, and writes a line to `sink` for each."""

    def __init__(
        self,
        ledger: Ledger,
        registry: schemas.SchemaRegistry,
        *,
        schema: str,
        options: bytes,
        model: str,
        sink: BinaryIO,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._id = uuid.uuid4().hex
        self._schema = schema
        self._refs: dict[str, str] = {}
        self._options = options
        self._model = model
        self._sink = sink
        self._cursor = ""
        self._submitted = 0
        self._written = 0
        self.tally = Tally()

    @property
    def pending(self) -> int:
        """Pages that were submitted and have no line yet."""
        return self._submitted - self._written

    def fill(self, pages: Iterator[ReadPage | BadInput], limit: int | None) -> bool:
        """Submit the next group unless enough are waiting; False once the pages have ended."""
        if self.pending >= _AHEAD:
            return True
        group: list[PageSubmission] = []
        size = 0
        more = True
        while len(group) < _GROUP_PAGES and size < _GROUP_BYTES:
            read = next(pages, None) if limit is None or self.tally.pages < limit else None
            if read is None:
                more = False
                break
            self.tally.pages += 1
            if isinstance(read, BadInput):
                self._write_bad(read)
                continue
            try:
                group.append(self._submission(read))
            except schemas.SchemaRefused as error:
                reason = Reason(str(error.reason))
                self._write_bad(BadInput(read.id, read.page.url, reason, str(error)))
                continue
            size += len(read.page.body)
        if group:
            self._ledger.submit(group, batch=self._id)
            status = self._ledger.batch(self._id)
            # A page given twice under one id counts once.
            self._submitted = status.total if status is not None else 0
        return more

    def _submission(self, read: ReadPage) -> PageSubmission:
        return submission(
            read.page.body,
            schema=self._ref(read.schema),
            model=self._model,
            url=read.page.url,
            client_id=read.page.id,
            content_type=read.page.content_type,
            encoding=read.page.encoding,
            options=self._options,
        )

    def _ref(self, named: str | None) -> str:
        """The fixed version of the schema that a line names, of the run's if it names none."""
        if named is None:
            return self._schema
        if named not in self._refs:
            self._refs[named] = fix_schema(self._registry, named)
        return self._refs[named]

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
        try:
            self._sink.write(result.to_json_line() + b"\n")
            self._sink.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Refused(Reason.INPUT_INVALID, f"output: {error.strerror}") from None
