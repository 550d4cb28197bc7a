"""Pages to records, given an engine: prepare, generate, finish. No ledger, no queue.

A page's failure is a failed `Result` of that page alone. Only what ends a whole burst (the
engine is gone, another tokenizer) is raised, as `EngineError`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from pagemill.engine.client import Engine
from pagemill.engine.protocol import Output, Request, SamplingParams
from pagemill.engine.tokenizer import Tokenizer

from . import grounding, prompt
from .answers import Answer, Answers, Prepared, engine_problem, record_of, usage_of, was_cut
from .bound_schema import BoundSchema
from .known import Known, find, put
from .links import PageLinks
from .merge import merge
from .page import Page, PageLimits, barrier, read
from .reason import Refused
from .record import (
    Evidence,
    ExtractOptions,
    PageInput,
    Problem,
    Result,
    Timings,
)
from .remote_engine import RemoteEngine
from .templates import SiteTemplates
from .verbatim import verbatim_values

# Pages of a burst that go to the engine together.
_READ_AT_ONCE = 16


class Extractor:
    """Turns pages into requests and outputs into results. Thread-safe; holds no page.

    `model` is the name that results carry; `max_model_len` bounds prompt and record together
    (both as the engine's Welcome says). `sites` learns what a site's pages share, for pages whose
    options ask for that.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        model: str = "",
        max_model_len: int = 8192,
        limits: PageLimits | None = None,
        sites: SiteTemplates | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.model = model
        self._max_model_len = max_model_len
        self._limits = limits or PageLimits()
        self._sites = sites

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
                return self._known_result(page, content, schema, options, known, whole, started)
            links = PageLinks(content) if schema.links else None
            own_text = self._own_text(page, content, schema, options)
            built = prompt.build(
                self.tokenizer,
                schema.prompt,
                content,
                budget=self._max_model_len - options.max_tokens,
                max_page_tokens=options.max_page_tokens,
                metadata=options.metadata,
                known=known.fields(),
                max_windows=options.max_windows,
                text=links.marked(own_text) if links else own_text,
                links=links,
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
        requests = tuple(self._request(one, schema, options) for one in built)
        return Prepared(
            input=page,
            page=content,
            schema=schema,
            options=options,
            requests=requests,
            windows=tuple(one.window for one in built),
            page_cut=built[0].page_cut,
            timings=Timings(read_s=read_done - started, prompt_s=_since(read_done)),
            known=known,
            links=links,
        )

    def _own_text(
        self, page: PageInput, content: Page, schema: BoundSchema, options: ExtractOptions
    ) -> str:
        """The page's text without what its site's pages share."""
        if self._sites is None or not options.site_templates:
            return content.text
        site = self._sites.template(page.url, tenant=options.tenant, schema=schema.hash)
        return site.cut(content.text)

    def _learn_site(self, prepared: Prepared, evidence: Sequence[Evidence]) -> None:
        options = prepared.options
        if self._sites is not None and options.site_templates:
            self._sites.learn(
                prepared.input.url,
                prepared.page.text,
                evidence,
                tenant=options.tenant,
                schema=prepared.schema.hash,
            )

    def _request(
        self, built: prompt.Prompt, schema: BoundSchema, options: ExtractOptions
    ) -> Request:
        return Request(
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

    def _known_result(
        self,
        page: PageInput,
        content: Page,
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
            text=content.text if options.text else None,
            timings=Timings(read_s=_since(started)),
        )

    def finish(self, prepared: Prepared, answers: Sequence[Answer]) -> Result:
        """Make the result of the page's answers, one for each window: parse, validate, merge, look
        up the evidence.
        """
        started = time.perf_counter()
        record, problem = self._record(prepared, answers)
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
            linked = (
                prepared.links.evidence(prepared.schema.schema, record) if prepared.links else []
            )
            linked = [each for each in linked if each.pointer not in known.values]
            told = {*known.values, *(each.pointer for each in linked)}
            evidence = [*known.evidence(), *linked]
            evidence += grounding.locate(
                record, page.text, page.metadata.entries, known=told, verbatim=copied
            )
            self._learn_site(prepared, evidence)
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
            truncated=problem is None and any(was_cut(answer.last) for answer in answers),
            windows=len(answers),
            known=list(known.values),
            text=prepared.page.text if prepared.options.text else None,
            usage=usage_of(answers),
            timings=Timings(
                read_s=prepared.timings.read_s,
                prompt_s=prepared.timings.prompt_s,
                first_token_s=min(answer.last.first_token_s for answer in answers),
                engine_s=max(answer.last.finished_s for answer in answers),
                finish_s=_since(started),
            ),
        )

    def run(
        self,
        engine: Engine,
        pages: Sequence[tuple[PageInput, BoundSchema]],
        options: ExtractOptions | None = None,
    ) -> Iterator[Result]:
        """Yield a result for each page as it is finished; refused ones as soon as they are read.

        The engine works on the first pages while others are read. Raises EngineError when the
        burst as a whole fails; pages without a result by then may be tried again.
        """
        running: list[tuple[Answers, Iterator[Output]]] = []
        for first in range(0, len(pages), _READ_AT_ONCE):
            waiting: list[Prepared] = []
            for page, schema in pages[first : first + _READ_AT_ONCE]:
                prepared = self.prepare(page, schema, options)
                if isinstance(prepared, Result):
                    yield prepared
                else:
                    waiting.append(prepared)
            if waiting:
                answers = Answers(waiting)
                running.append((answers, self._ask(engine, waiting, answers)))
        for answers, outputs in running:
            for output in outputs:
                if (whole := answers.add(output)) is not None:
                    yield self.finish(*whole)

    def _ask(
        self, engine: Engine, waiting: Sequence[Prepared], answers: Answers
    ) -> Iterator[Output]:
        if isinstance(engine, RemoteEngine):
            return engine.answer(waiting)
        return engine.generate(
            answers.requests(), tokenizer_hash=self.tokenizer.hash, grammars=answers.grammars()
        )

    def _record(self, prepared: Prepared, answers: Sequence[Answer]) -> tuple[Any, Problem | None]:
        """The page's record. Where the engine gave up on a window, there is none; a window whose
        record came to nothing is passed by, if another has one.
        """
        problems = [problem for answer in answers if (problem := engine_problem(answer.last))]
        if problems:
            return None, problems[0]
        schema, max_tokens = prepared.schema, prepared.options.max_tokens
        read = [
            record_of(answer, self.tokenizer, schema, max_tokens, prepared.links)
            for answer in answers
        ]
        good = [i for i, (_, problem) in enumerate(read) if problem is None]
        if not good:
            return read[0]
        windows = [prepared.windows[i] for i in good]
        return merge([read[i][0] for i in good], windows, schema.validator), None


def _since(started: float) -> float:
    return time.perf_counter() - started
