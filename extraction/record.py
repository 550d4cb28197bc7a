"""What goes into an extraction and what comes out: page inputs, options, results.

All of it is plain data that encodes as JSON; nothing here reads a page or asks an engine.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .reason import Reason

JsonValue = None | bool | int | float | str | list[Any] | dict[str, Any]
Status = Literal["done", "failed"]

# Failures that say something about the moment, not about the page: worth another try.
TRANSIENT_REASONS = frozenset(
    {
        Reason.CANCELLED,
        Reason.DEADLINE,
        Reason.ENGINE_ERROR,
        Reason.ENGINE_UNAVAILABLE,
        Reason.OVERLOADED,
        Reason.INTERNAL_ERROR,
    }
)


class PageInput(msgspec.Struct, frozen=True, kw_only=True):
    """A crawled page as the crawler has it: the body's bytes, untouched.

    `content_type` is the HTTP header's value, charset included. `encoding` overrides every other
    sign of the encoding: crawlers that store a rendered DOM know better than the header.
    """

    id: str
    body: bytes
    url: str | None = None
    content_type: str | None = None
    encoding: str | None = None


class ExtractOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a record is made. `max_page_tokens` bounds the page's part of a prompt.

    A page that is longer is read in up to `max_windows` windows of that size that overlap, each
    with a prompt of its own, and their records become one.
    `text` returns the page's visible text with the record, in which evidence has its offsets.
    `timeout_s` counts from arrival at the engine, 0 means none; `salt` keeps a tenant's cached
    page blocks apart; `metadata` puts JSON-LD, microdata and OpenGraph values into the prompt;
    `known_values` takes what they answer plainly as it is, without asking the model;
    `site_templates` learns what the pages of a site share and keeps it out of prompts (a worker's
    pages only, and records then depend on the pages before; needs `evidence`).
    """

    max_tokens: int = 768
    max_page_tokens: int = 3072
    max_windows: int = 4
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    evidence: bool = True
    text: bool = False
    metadata: bool = True
    known_values: bool = True
    site_templates: bool = False
    timeout_s: float = 0.0
    priority: int = 0
    tenant: str = ""
    salt: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.max_tokens <= 32768:
            raise ValueError("max_tokens: from 1 to 32768")
        if not 64 <= self.max_page_tokens <= 131072:
            raise ValueError("max_page_tokens: from 64 to 131072")
        if not 1 <= self.max_windows <= 64:
            raise ValueError("max_windows: from 1 to 64")
        if not 0.0 <= self.temperature <= 5.0:
            raise ValueError("temperature: from 0 to 5")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError("top_p: over 0, at most 1")
        if self.timeout_s < 0:
            raise ValueError("timeout_s: 0 or more")


class Problem(msgspec.Struct, frozen=True):
    """Why there is no record: a code of `Reason`, and a sentence that says what to do."""

    reason: Reason
    message: str

    @property
    def transient(self) -> bool:
        """Whether the same page may well succeed later."""
        return self.reason in TRANSIENT_REASONS


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Where a value of the record stands on the page.

    `source` "text": half-open offsets in characters (code points) of the page's visible text;
    `exact` says that text[start:end] is the value, else both are equal once white space, case
    and typographic variants are levelled. `source` "metadata": `path` names the metadata entry,
    and the offsets count in that entry's value. "link": `path` is the number of a link ("L12") of
    the visible text, in order, and the offsets count in its address as the page writes it.
    `ambiguous`: the value stands elsewhere too.
    """

    pointer: str
    source: Literal["text", "metadata", "link"] = "text"
    start: int
    end: int
    exact: bool
    ambiguous: bool = False
    path: str = ""


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that a record took; `cached` of the prompt came from the prefix cache.

    `loops_closed`: strings and numbers that repeated without end and were closed.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    forced_tokens: int = 0
    drafted_tokens: int = 0
    loops_closed: int = 0


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: reading the page, making the prompt, in the engine (its own clock), afterwards."""

    read_s: float = 0.0
    prompt_s: float = 0.0
    first_token_s: float = 0.0
    engine_s: float = 0.0
    finish_s: float = 0.0


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one page: a valid record (`done`) or the reason why there is none.

    `schema` is name@version, or the schema's hash when it has no name. `page_cut` says that the
    page was longer than its windows, and that some of it was left out; `windows` is how many there
    were. `truncated` says that the record is whole and valid, but max_tokens made it shorter than
    it would have been.
    `text` is the page's visible text where the options ask for it.
    `known` are JSON pointers of values that the page states plainly: the model didn't choose them.
    """

    id: str
    url: str | None
    status: Status
    record: JsonValue = None
    error: Problem | None = None
    evidence: list[Evidence] = []
    schema: str = ""
    model: str = ""
    prompt_version: int = 0
    page_cut: bool = False
    truncated: bool = False
    windows: int = 0
    known: list[str] = []
    text: str | None = None
    usage: TokenUsage = TokenUsage()
    timings: Timings = Timings()

    def to_json_line(self) -> bytes:
        """Return the result as one line of JSON, without the line's end."""
        return _encoder.encode(self)

    @classmethod
    def from_json_line(cls, line: bytes) -> Result:
        """Read what `to_json_line` wrote; msgspec.ValidationError when it is something else."""
        return _decoder.decode(line)

    @classmethod
    def failed(
        cls,
        page: PageInput,
        reason: Reason,
        message: str,
        *,
        schema: str = "",
        model: str = "",
        timings: Timings | None = None,
    ) -> Result:
        """Return the result of a page that got no record."""
        return cls(
            id=page.id,
            url=page.url,
            status="failed",
            error=Problem(reason, message),
            schema=schema,
            model=model,
            timings=timings or Timings(),
        )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Result)
