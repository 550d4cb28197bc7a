"""What requests and answers of the REST API look like; unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from pagemill.engine.protocol import EngineStats
from pydantic import BaseModel, ConfigDict, Field

from ..inputs import BodyEncoding, PageLine
from ..ledger import QueueDepth
from ..record import ExtractOptions

SchemaRef = Annotated[str, Field(min_length=1, max_length=128)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Options(Strict):
    """How records are made; see `ExtractOptions`. What isn't given has the server's default."""

    max_tokens: int | None = Field(default=None, ge=1, le=32768, description="Budget of a record")
    max_page_tokens: int | None = Field(
        default=None, ge=64, le=131072, description="Share of the page in a prompt"
    )
    max_windows: int | None = Field(
        default=None, ge=1, le=64, description="Prompts that a longer page is split over"
    )
    temperature: float | None = Field(default=None, ge=0, le=5, description="0 is greedy")
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    evidence: bool | None = Field(default=None, description="Say where each value stands")
    text: bool | None = Field(default=None, description="Return the text that evidence counts in")
    metadata: bool | None = Field(default=None, description="Show JSON-LD and such to the model")
    known_values: bool | None = Field(
        default=None, description="Take what metadata states plainly without asking the model"
    )
    site_templates: bool | None = Field(
        default=None, description="Keep what a site's pages share out of prompts (batches only)"
    )
    timeout_s: float | None = Field(default=None, ge=0, le=3600, description="0: none")

    def extract_options(self, *, max_tokens: int) -> ExtractOptions:
        """The options with the server's default budget where none is given."""
        given = {
            name: getattr(self, name)
            for name in Options.model_fields
            if getattr(self, name) is not None
        }
        return msgspec.convert({"max_tokens": max_tokens, **given}, ExtractOptions)


class PageFields(Strict):
    """A page by value: `html`, or `text`, or `body` with its `body_encoding`."""

    id: str | None = Field(default=None, min_length=1, max_length=512, description="Comes back")
    url: str | None = Field(default=None, max_length=8192)
    html: str | None = None
    body: str | None = None
    body_encoding: BodyEncoding | None = None
    content_type: str | None = Field(default=None, max_length=256)
    encoding: str | None = Field(
        default=None, max_length=64, description="Over the header's charset"
    )

    def line(self) -> PageLine:
        names = ("id", "url", "html", "body", "body_encoding", "content_type", "encoding")
        return PageLine(**{name: getattr(self, name) for name in names})


class ExtractRequest(PageFields):
    """One page to extract now."""

    text: str | None = Field(default=None, description="Plain text in place of HTML")
    schema_: SchemaRef | dict[str, Any] = Field(
        alias="schema", description="name, name@version, or a JSON Schema"
    )
    options: Options = Field(default_factory=Options)
    stream: bool = Field(default=False, description="Answer with server-sent events")


class ExtractQuery(Options):
    """The same in the query, for a raw body."""

    stream: bool = False

    schema_: SchemaRef | None = Field(default=None, alias="schema")
    url: str | None = Field(default=None, max_length=8192)
    id: str | None = Field(default=None, min_length=1, max_length=512)
    encoding: str | None = Field(default=None, max_length=64)


class BatchPage(PageFields):
    schema_: SchemaRef | None = Field(
        default=None, alias="schema", description="Instead of the batch's"
    )

    def line(self) -> PageLine:
        return msgspec.structs.replace(super().line(), schema=self.schema_)


class BatchRequest(Strict):
    """Pages for the ledger; workers extract them."""

    schema_: SchemaRef | dict[str, Any] | None = Field(default=None, alias="schema")
    options: Options = Field(default_factory=Options)
    pages: list[BatchPage] = Field(min_length=1)


class BatchQuery(Options):
    """The same in the query, for an NDJSON body."""

    schema_: SchemaRef | None = Field(default=None, alias="schema")


class RejectedPage(Strict):
    """A page of a batch that could not be read; it is no part of the batch."""

    number: int = Field(description="Place in the upload, from 1")
    id: str
    reason: str
    message: str


class BatchAccepted(Strict):
    """The ledger owes a record for each of `accepted` pages; `created` of them are new to it."""

    id: str
    status: str = Field(description="URL of the progress")
    records: str = Field(description="URL of the records")
    accepted: int
    created: int
    rejected: int
    rejections: list[RejectedPage] = Field(description="The first 100 rejected pages")


class BatchProgress(Strict):
    """How far a batch is; `finished` once nothing is pending.

    `cancelled` pages are those for which the batch didn't wait any longer when it was cancelled.
    """

    id: str
    total: int
    pending: int
    done: int
    failed: int
    dead: int
    cancelled: int
    finished: bool
    created_s: float
    finished_s: float


class SchemaSummary(Strict):
    name: str
    version: int
    hash: str
    source: str


class SchemaWarning(Strict):
    code: str
    pointer: str
    message: str


class SchemaCompiled(Strict):
    """What constrained decoding takes: states of the byte automaton, time to make it."""

    states: int
    table_bytes: int
    compile_ms: float


class SchemaDetail(SchemaSummary):
    """A version of a schema with the advice on it."""

    schema_: dict[str, Any] = Field(alias="schema")
    versions: list[int]
    warnings: list[SchemaWarning]


class SchemaRegistered(SchemaDetail):
    created: bool = Field(description="False when this content was the latest version already")
    compiled: SchemaCompiled


class SchemaList(Strict):
    schemas: list[SchemaSummary]


class SchemaChecked(Strict):
    warnings: list[SchemaWarning]
    compiled: SchemaCompiled


class SchemaInferRequest(Strict):
    """Records as they ought to come out; the more unlike, the better the proposal."""

    records: list[Any] = Field(min_length=1, max_length=10_000)


class SchemaInferred(Strict):
    schema_: dict[str, Any] = Field(alias="schema")
    warnings: list[SchemaWarning]


class SchemaChange(Strict):
    effect: str = Field(description="wording, additive, narrowing or breaking")
    pointer: str
    message: str


class SchemaDiff(Strict):
    """`verdict` is the strongest effect, or "identical"; see docs/schemas.md."""

    name: str
    from_version: int
    to_version: int
    verdict: str
    changes: list[SchemaChange]


class EngineStatus(Strict):
    """Shares from 0 to 1; `prefix_hit_rate` of all prompt tokens since the engine's start."""

    running: int
    waiting: int
    credit: int
    kv_cache_usage: float
    prefix_hit_rate: float

    @classmethod
    def of(cls, stats: EngineStats) -> EngineStatus:
        asked = sum(queries for queries, _ in stats.prefix_cache.values())
        found = sum(hits for _, hits in stats.prefix_cache.values())
        return cls(
            running=stats.running,
            waiting=stats.waiting,
            credit=stats.credit,
            kv_cache_usage=1 - stats.free_blocks / stats.total_blocks if stats.total_blocks else 0,
            prefix_hit_rate=found / asked if asked else 0,
        )


class QueueStatus(Strict):
    """Pages queued and leased now; done, failed and dead ever."""

    queued: int
    leased: int
    done: int
    failed: int
    dead: int
    oldest_s: float

    @classmethod
    def of(cls, depth: QueueDepth) -> QueueStatus:
        return cls(**{name: getattr(depth, name) for name in cls.model_fields})


class Status(Strict):
    engine: EngineStatus | None
    queue: QueueStatus | None
