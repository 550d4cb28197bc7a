"""What an engine answers to the requests of prepared pages, and the records that it means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from pagemill.engine.protocol import Output, Request
from pagemill.engine.tokenizer import Tokenizer

from . import null_words
from .bound_schema import BoundSchema
from .known import Known
from .links import PageLinks
from .page import Page
from .reason import Reason
from .record import ExtractOptions, PageInput, Problem, Timings, TokenUsage
from .windows import Window


@dataclass(frozen=True, eq=False)
class Prepared:
    """A page whose requests are ready for the engine: one for each of its windows."""

    input: PageInput
    page: Page
    schema: BoundSchema
    options: ExtractOptions
    requests: tuple[Request, ...]
    windows: tuple[Window, ...]
    page_cut: bool
    timings: Timings
    known: Known = field(default_factory=Known)
    links: PageLinks | None = None


@dataclass
class Answer:
    """All tokens of a request; `last` is the output that carries `finish`."""

    token_ids: list[int] = field(default_factory=list)
    last: Output = field(default_factory=lambda: Output(""))


class Answers:
    """Collects the outputs for the requests of several pages."""

    def __init__(self, pages: Iterable[Prepared]) -> None:
        self._pages: dict[str, Prepared] = {}
        self._answers: dict[str, Answer] = {}
        for page in pages:
            for request in page.requests:
                self._pages[request.request_id] = page
                self._answers[request.request_id] = Answer()

    def requests(self) -> list[Request]:
        """All requests, window by window: the first windows of all pages come first."""
        pages = list(dict.fromkeys(self._pages.values()))
        most = max((len(page.requests) for page in pages), default=0)
        return [page.requests[i] for i in range(most) for page in pages if i < len(page.requests)]

    def grammars(self) -> dict[str, bytes]:
        """The tables that the requests name, by hash."""
        return {
            page.schema.grammar.hash: page.schema.grammar.table for page in self._pages.values()
        }

    def add(self, output: Output) -> tuple[Prepared, list[Answer]] | None:
        """Take an output; return a page and its answers, by window, when these were all."""
        answer = self._answers.get(output.request_id)
        if answer is None or answer.last.finish is not None:
            return None
        answer.token_ids.extend(output.token_ids)
        if output.finish is None:
            return None
        answer.last = output
        page = self._pages[output.request_id]
        answers = [self._answers[request.request_id] for request in page.requests]
        if any(one.last.finish is None for one in answers):
            return None
        for request in page.requests:
            del self._answers[request.request_id], self._pages[request.request_id]
        return page, answers


def record_of(
    answer: Answer,
    tokenizer: Tokenizer,
    schema: BoundSchema,
    max_tokens: int,
    links: PageLinks | None = None,
) -> tuple[Any, Problem | None]:
    """Return the record that a request's tokens spell, or what is wrong with it."""
    last = answer.last
    if (problem := engine_problem(last)) is not None:
        return None, problem
    eos = tokenizer.eos_ids
    text = tokenizer.decode([token for token in answer.token_ids if token not in eos])
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError:
        if last.finish == "length":
            return None, Problem(
                Reason.RECORD_TRUNCATED,
                f"the record did not end within {max_tokens} tokens: raise max_tokens, or give "
                "the schema's strings and arrays smaller bounds",
            )
        return None, Problem(Reason.RECORD_INVALID, "the engine's answer is not JSON")
    if links is not None:
        record = links.resolved(schema.schema, record)
    cleaned = null_words.without(record, schema.null_words)
    if cleaned != record and not schema.validator.errors(cleaned):
        return cleaned, None
    errors = schema.validator.errors(record)
    if errors:
        return None, Problem(
            Reason.RECORD_INVALID, "the record breaks its schema: " + "; ".join(errors[:3])
        )
    return record, None


def engine_problem(last: Output) -> Problem | None:
    """Why the engine ended a request without an answer; None if it didn't."""
    if last.finish not in ("cancelled", "deadline", "error"):
        return None
    default = {"cancelled": Reason.CANCELLED, "deadline": Reason.DEADLINE}
    try:
        reason = Reason(last.reason)
    except ValueError:
        reason = default.get(last.finish or "", Reason.ENGINE_ERROR)
    return Problem(reason, last.message or f"the engine ended the request: {reason.value}")


def was_cut(last: Output) -> bool:
    """Whether max_tokens made a record shorter than it would have been."""
    return last.finish == "length" or (last.usage is not None and last.usage.closed_early)


def usage_of(answers: Sequence[Answer]) -> TokenUsage:
    """The tokens of all answers together."""
    total = dict.fromkeys(TokenUsage.__struct_fields__, 0)
    for answer in answers:
        usage = answer.last.usage
        if usage is None:
            total["completion_tokens"] += len(answer.token_ids)
            continue
        for name in total:
            total[name] += getattr(usage, name)
    return TokenUsage(**total)
