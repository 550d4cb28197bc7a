"""Pages to records, given an engine: prepare, generate, finish. No ledger, no queue.

A page's failure is a failed `Result` of that page alone. Only what ends a whole burst (the
engine is gone, another tokenizer) is raised, as `EngineError`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from pagemill.engine.client import Engine
from pagemill.engine.protocol import Output, Request, SamplingParams
from pagemill.engine.tokenizer import Tokenizer

from . import grounding, null_words, prompt
from .bound_schema import BoundSchema
from .known import Known, find, put
from .page import Page, PageLimits, barrier, read
from .reason import Reason, Refused
from .record import (
    ExtractOptions,
    PageInput,
    Problem,
    Result,
    Timings,
    TokenUsage,
)
from .verbatim import verbatim_values


@dataclass(frozen=True, eq=False)
class Prepared:
    """A page whose request is ready for the engine; `request.request_id` finds it again."""

    input: PageInput
    page: Page
    schema: BoundSchema
    options: ExtractOptions
    request: Request
    page_cut: bool
    timings: Timings
    known: Known = field(default_factory=Known)


class Extractor:
    """Turns pages into requests and outputs into results. Thread-safe; holds no page.

    `model` is the name that results carry; `max_model_len` bounds prompt and record together
    (both as the engine's Welcome says).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        model: str = "",
        max_model_len: int = 8192,
        limits: PageLimits | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.model = model
        self._max_model_len = max_model_len
        self._limits = limits or PageLimits()

    def prepare(
        self, page: PageInput, schema: BoundSchema, options: ExtractOptions | None = None
    ) -> Prepared | Result:
        """Read the page and make its request (CPU only); a Result says why that's impossible.

        A page whose metadata answers all that the schema asks needs no engine: its Result is done.
        """
        options = options or ExtractOptions()
        started = time.perf_counter()
        try:
            content = read(
                page.body,
                url=page.url,
                content_type=page.content_type,
                encoding=page.encoding,
                limits=self._limits,
            )
            barrier.check(content)
            known = (
                find(content, schema.known_sources)
                if options.metadata and options.known_values
                else Known()
            )
            read_done = time.perf_counter()
            whole = known.whole_record(schema.schema)
            if whole is not None and not schema.validator.errors(whole):
                return self._known_result(page, schema, options, known, whole, started)
            built = prompt.build(
                self.tokenizer,
                schema.prompt,
                content,
                budget=self._max_model_len - options.max_tokens,
                max_page_tokens=options.max_page_tokens,
                metadata=options.metadata,
                known=known.fields(),
            )
        except Refused as refusal:
            return Result.failed(
                page,
                refusal.reason,
                str(refusal),
                schema=schema.ref,
                model=self.model,
                timings=Timings(read_s=_since(started)),
            )
        request = Request(
            request_id=uuid.uuid4().hex,
            token_ids=built.token_ids.astype("<i4").tobytes(),
            sampling=SamplingParams(
                max_tokens=options.max_tokens,
                temperature=options.temperature,
                top_p=options.top_p,
                seed=options.seed,
                stop_token_ids=tuple(self.tokenizer.eos_ids),
            ),
            grammar=schema.grammar.hash,
            salt=options.salt,
            salt_from=built.salt_from,
            priority=options.priority,
            timeout_s=options.timeout_s,
            tenant=options.tenant,
            tag=schema.ref,
            page=built.page_text.encode("utf-8", "replace"),
            verbatim=built.verbatim.encode("utf-8", "replace") if schema.verbatim else b"",
        )
        timings = Timings(read_s=read_done - started, prompt_s=_since(read_done))
        return Prepared(page, content, schema, options, request, built.page_cut, timings, known)

    def _known_result(
        self,
        page: PageInput,
        schema: BoundSchema,
        options: ExtractOptions,
        known: Known,
        record: Any,
        started: float,
    ) -> Result:
        return Result(
            id=page.id,
            url=page.url,
            status="done",
            record=record,
            evidence=known.evidence() if options.evidence else [],
            schema=schema.ref,
            model=self.model,
            prompt_version=prompt.PROMPT_VERSION,
            known=list(known.values),
            timings=Timings(read_s=_since(started)),
        )

    def finish(self, prepared: Prepared, output_ids: Sequence[int], last: Output) -> Result:
        """Make the result: parse, validate, look up the evidence.

        `output_ids` are all tokens of the request, `last` is the Output that carries `finish`.
        """
        started = time.perf_counter()
        record, problem = self._record(prepared, output_ids, last)
        known = prepared.known if problem is None else Known()
        if known.values:
            with_known = put(record, known)
            if prepared.schema.validator.errors(with_known):
                known = Known()
            else:
                record = with_known
        evidence = []
        if problem is None and prepared.options.evidence:
            page = prepared.page
            copied = verbatim_values(prepared.schema.schema, record)
            evidence = known.evidence() + grounding.locate(
                record, page.text, page.metadata.entries, known=known.values, verbatim=copied
            )
        usage = last.usage
        return Result(
            id=prepared.input.id,
            url=prepared.input.url,
            status="done" if problem is None else "failed",
            record=record if problem is None else None,
            error=problem,
            evidence=evidence,
            schema=prepared.schema.ref,
            model=self.model,
            prompt_version=prompt.PROMPT_VERSION,
            page_cut=prepared.page_cut,
            truncated=problem is None and _was_cut(last),
            known=list(known.values),
            usage=TokenUsage(
                prompt_tokens=usage.prompt_tokens,
                cached_tokens=usage.cached_tokens,
                completion_tokens=usage.completion_tokens,
                forced_tokens=usage.forced_tokens,
                drafted_tokens=usage.drafted_tokens,
                loops_closed=usage.loops_closed,
            )
            if usage is not None
            else TokenUsage(completion_tokens=len(output_ids)),
            timings=Timings(
                read_s=prepared.timings.read_s,
                prompt_s=prepared.timings.prompt_s,
                first_token_s=last.first_token_s,
                engine_s=last.finished_s,
                finish_s=_since(started),
            ),
        )

    def run(
        self,
        engine: Engine,
        pages: Sequence[tuple[PageInput, BoundSchema]],
        options: ExtractOptions | None = None,
    ) -> Iterator[Result]:
        """Yield a result for each page as it is finished, from one call of the engine.

        Refused pages come first. Raises EngineError when the burst as a whole fails; pages
        without a result by then may be tried again.
        """
        waiting: dict[str, Prepared] = {}
        for page, schema in pages:
            prepared = self.prepare(page, schema, options)
            if isinstance(prepared, Result):
                yield prepared
            else:
                waiting[prepared.request.request_id] = prepared
        if not waiting:
            return
        tokens: dict[str, list[int]] = {request_id: [] for request_id in waiting}
        outputs = engine.generate(
            [prepared.request for prepared in waiting.values()],
            tokenizer_hash=self.tokenizer.hash,
            grammars=grammars(waiting.values()),
        )
        for output in outputs:
            if output.request_id not in waiting:
                continue
            tokens[output.request_id].extend(output.token_ids)
            if output.finish is not None:
                prepared = waiting.pop(output.request_id)
                yield self.finish(prepared, tokens.pop(output.request_id), output)

    def _record(
        self, prepared: Prepared, output_ids: Sequence[int], last: Output
    ) -> tuple[Any, Problem | None]:
        if last.finish in ("cancelled", "deadline", "error"):
            return None, _engine_problem(last)
        eos = self.tokenizer.eos_ids
        text = self.tokenizer.decode([token for token in output_ids if token not in eos])
        try:
            record = orjson.loads(text)
        except orjson.JSONDecodeError:
            if last.finish == "length":
                limit = prepared.options.max_tokens
                return None, Problem(
                    Reason.RECORD_TRUNCATED,
                    f"the record did not end within {limit} tokens: raise max_tokens, or give "
                    "the schema's strings and arrays smaller bounds",
                )
            return None, Problem(Reason.RECORD_INVALID, "the engine's answer is not JSON")
        validator = prepared.schema.validator
        cleaned = null_words.without(record, prepared.schema.null_words)
        if cleaned != record and not validator.errors(cleaned):
            return cleaned, None
        errors = validator.errors(record)
        if errors:
            return None, Problem(
                Reason.RECORD_INVALID, "the record breaks its schema: " + "; ".join(errors[:3])
            )
        return record, None


def grammars(prepared: Iterable[Prepared]) -> dict[str, bytes]:
    """Return the tables that a burst's requests name, by hash."""
    return {item.schema.grammar.hash: item.schema.grammar.table for item in prepared}


def _was_cut(last: Output) -> bool:
    return last.finish == "length" or (last.usage is not None and last.usage.closed_early)


def _engine_problem(last: Output) -> Problem:
    default = {"cancelled": Reason.CANCELLED, "deadline": Reason.DEADLINE}
    try:
        reason = Reason(last.reason)
    except ValueError:
        reason = default.get(last.finish or "", Reason.ENGINE_ERROR)
    return Problem(reason, last.message or f"the engine ended the request: {reason.value}")


def _since(started: float) -> float:
    return time.perf_counter() - started
