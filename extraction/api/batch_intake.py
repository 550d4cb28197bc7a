"""Takes the pages of an upload in groups into the ledger, and rings the workers early."""

from __future__ import annotations

from typing import Any

from pagemill.schemas.errors import SchemaRefused

from ..inputs import BadInput, ReadPage
from ..intake import fix_schema, parse_options, submission
from ..ledger import PageSubmission
from ..reason import Reason, Refused
from ..record import ExtractOptions
from .models import BatchAccepted, RejectedPage
from .services import Services, in_thread

_GROUP_PAGES = 64
_GROUP_BYTES = 4 << 20
_SHOWN_REJECTIONS = 100


class BatchIntake:
    """One upload on its way into the ledger; at most a group of pages is held here."""

    def __init__(
        self,
        services: Services,
        batch_id: str,
        schema: str | dict[str, Any] | None,
        options: ExtractOptions,
    ) -> None:
        self._services = services
        self._batch_id = batch_id
        self._schema = schema
        self._options = parse_options(options)
        self._refs: dict[str, str] = {}
        self._group: list[PageSubmission] = []
        self._group_bytes = 0
        self._seen = 0
        self.accepted = 0
        self.created = 0
        self._rejected: list[RejectedPage] = []
        self._rejections = 0

    async def take(self, read: ReadPage | BadInput) -> None:
        """Add a page; Refused when the batch as a whole can't go on."""
        limit = self._services.settings.max_batch_pages
        self._seen += 1
        if self._seen > limit:
            raise Refused(
                Reason.REQUEST_TOO_LARGE, f"over {limit} pages", advice="send several batches"
            )
        if isinstance(read, BadInput):
            self._reject(read.id, read.reason, read.message)
            return
        try:
            ref = await self._ref(read.schema)
        except SchemaRefused as error:
            if read.schema is None:
                raise
            self._reject(read.id, Reason(str(error.reason)), str(error))
            return
        self._group.append(
            submission(
                read.page.body,
                schema=ref,
                model=self._services.settings.model,
                url=read.page.url,
                client_id=read.page.id,
                content_type=read.page.content_type,
                encoding=read.page.encoding,
                options=self._options,
            )
        )
        self._group_bytes += len(read.page.body)
        if len(self._group) >= _GROUP_PAGES or self._group_bytes >= _GROUP_BYTES:
            await self._flush()

    async def finish(self) -> None:
        """Hand over what is left; a batch without one readable page is refused."""
        await self._flush()
        if self.accepted == 0:
            first = self._rejected[0] if self._rejected else None
            detail = f"; page {first.number}: {first.message}" if first else ""
            reason = Reason(first.reason) if first else Reason.REQUEST_INVALID
            raise Refused(reason, f"the batch holds no page that can be read{detail}")

    def answer(self) -> BatchAccepted:
        return BatchAccepted(
            id=self._batch_id,
            status=f"/v1/batches/{self._batch_id}",
            records=f"/v1/batches/{self._batch_id}/records",
            accepted=self.accepted,
            created=self.created,
            rejected=self._rejections,
            rejections=self._rejected,
        )

    def _reject(self, page_id: str, reason: Reason, message: str) -> None:
        self._rejections += 1
        self._services.metrics.rejected.labels(str(reason)).inc()
        if len(self._rejected) < _SHOWN_REJECTIONS:
            self._rejected.append(
                RejectedPage(number=self._seen, id=page_id, reason=reason, message=message)
            )

    async def _ref(self, named: str | None) -> str:
        """The fixed version that a page is extracted with, looked up once a batch."""
        source = named if named is not None else self._schema
        if source is None:
            raise Refused(
                Reason.REQUEST_INVALID,
                f"page {self._seen} names no schema and neither does the batch",
                advice='give "schema" with the batch, or with each page',
            )
        key = source if isinstance(source, str) else ""
        if key not in self._refs:
            self._refs[key] = await in_thread(fix_schema, self._services.registry, source)
        return self._refs[key]

    async def _flush(self) -> None:
        if not self._group:
            return
        group, self._group, self._group_bytes = self._group, [], 0
        answers = await in_thread(self._services.ledger.submit, group, batch=self._batch_id)
        created = sum(answer.created for answer in answers)
        self.accepted += len(answers)
        self.created += created
        submitted = self._services.metrics.submitted
        submitted.labels("true").inc(created)
        submitted.labels("false").inc(len(answers) - created)
        await in_thread(self._services.bell.ring)
