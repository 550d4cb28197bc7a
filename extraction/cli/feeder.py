"""Pages as they are read, as groups of submissions to the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pagemill import schemas

from ..inputs import BadInput, ReadPage
from ..intake import fix_schema, submission
from ..ledger import PageSubmission, QueueClass
from ..reason import Reason

_GROUP_PAGES = 32
_GROUP_BYTES = 8 << 20


@dataclass
class Group:
    """Pages for one call of the ledger, and those that can't go there; `last`: none follow."""

    pages: list[PageSubmission] = field(default_factory=list)
    bad: list[BadInput] = field(default_factory=list)
    last: bool = False


class Feeder:
    """Reads at most `limit` pages, and no further ahead than a group.

    `schema` is the fixed version (name@3) for pages whose line names none.
    """

    def __init__(
        self,
        pages: Iterator[ReadPage | BadInput],
        registry: schemas.SchemaRegistry,
        *,
        schema: str,
        options: bytes,
        model: str,
        limit: int | None = None,
        queue_class: QueueClass = "bulk",
    ) -> None:
        self._pages = pages
        self._registry = registry
        self._schema = schema
        self._refs: dict[str, str] = {}
        self._options = options
        self._model = model
        self._limit = limit
        self._class: QueueClass = queue_class
        self.seen = 0

    def next_group(self) -> Group:
        """The next pages, as many as the ledger takes at once."""
        group = Group()
        size = 0
        while len(group.pages) < _GROUP_PAGES and size < _GROUP_BYTES:
            read = None
            if self._limit is None or self.seen < self._limit:
                read = next(self._pages, None)
            if read is None:
                group.last = True
                break
            self.seen += 1
            if isinstance(read, BadInput):
                group.bad.append(read)
                continue
            try:
                group.pages.append(self._submission(read))
            except schemas.SchemaRefused as error:
                reason = Reason(str(error.reason))
                group.bad.append(BadInput(read.id, read.page.url, reason, str(error)))
                continue
            size += len(read.page.body)
        return group

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
            queue_class=self._class,
        )

    def _ref(self, named: str | None) -> str:
        """The fixed version of the schema that a line names, of the run's if it names none."""
        if named is None:
            return self._schema
        if named not in self._refs:
            self._refs[named] = fix_schema(self._registry, named)
        return self._refs[named]
