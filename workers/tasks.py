"""The tasks, known to crawlers by name: pagemill.extract, pagemill.submit, pagemill.drain."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog
from pagemill.engine.errors import EngineError
from pagemill.extraction.doorbell import messages_waiting, ring
from pagemill.extraction.finished import batch_result
from pagemill.extraction.intake import fix_schema, parse_options, submission
from pagemill.extraction.ledger import TERMINAL, BatchRecord, PageStatus, Submitted
from pagemill.extraction.reason import Reason, Refused
from pagemill.extraction.record import PageInput, Result
from pagemill.schemas import SchemaRefused

from .app import app
from .config import SOFT_TIME_LIMIT_S
from .page_argument import read_page
from .runtime import Runtime, current

_log = structlog.get_logger(__name__)

# Longest time that `extract` stays with its page, and that `drain` keeps its slot of the pool.
_EXTRACT_S = SOFT_TIME_LIMIT_S - 60
_DRAIN_S = 10.0
_MAX_PAGES = 10_000


class TaskRefused(Exception):
    """What a caller of a task gets when it is refused: `reason: sentence`, in one string.

    Results are JSON, so that a caller without this package gets a class of this name that Celery
    makes up for it; nothing but `args` travels.
    """


@app.task(name="pagemill.extract", ignore_result=False)
def extract(
    url: str | None = None,
    html: str | None = None,
    body_base64: str | None = None,
    page_key: str | None = None,
    schema: str | Mapping[str, Any] | None = None,
    *,
    id: str | None = None,
    content_type: str | None = None,
    encoding: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Extract one page and return its result: {"id", "url", "status", "record", "error", ...}.

    The page comes as `html` (text), `body_base64` (bytes) or `page_key` (a Redis key that holds
    it). `schema` is a registered name or a JSON Schema; `options` are those of an extraction
    (`max_tokens`, `temperature`, ...). Input that can't be used gives a failed result. The task
    runs the burst that holds its page itself, so it waits for no other task.
    """
    runtime = current()
    fields = {
        "id": id,
        "url": url,
        "html": html,
        "body_base64": body_base64,
        "page_key": page_key,
        "content_type": content_type,
        "encoding": encoding,
    }
    try:
        [accepted] = _submit(runtime, [fields], schema, None, options, interactive=True)
        return _result(_work_on(runtime, accepted))
    except (Refused, SchemaRefused, EngineError) as refused:
        page = PageInput(id=_text(id) or _text(url) or "page", url=_text(url), body=b"")
        return _result(Result.failed(page, Reason(refused.reason.value), str(refused)))
    finally:
        _ring_if_needed(runtime)


@app.task(name="pagemill.submit", ignore_result=False, throws=(TaskRefused,))
def submit(
    pages: Sequence[Mapping[str, Any]],
    schema: str | Mapping[str, Any] | None = None,
    batch: str | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Hand many pages to the ledger and return {"id", "page_id", "state"} for each.

    A page has the fields of `pagemill.extract`, and may name a schema of its own. Either all
    pages are accepted or TaskRefused is raised; submitting again is harmless.
    """
    runtime = current()
    try:
        if isinstance(pages, str | Mapping) or not isinstance(pages, Sequence):
            raise Refused(Reason.INPUT_INVALID, "pages: a list of objects")
        if len(pages) > _MAX_PAGES:
            raise Refused(Reason.REQUEST_TOO_LARGE, f"{len(pages)} pages, at most {_MAX_PAGES}")
        accepted = _submit(runtime, pages, schema, batch, options, interactive=False)
    except (Refused, SchemaRefused) as refused:
        raise TaskRefused(f"{refused.reason}: {refused}") from None
    _ring_if_needed(runtime)
    return [
        {"id": answer.client_id, "page_id": answer.page_id, "state": answer.state}
        for answer in accepted
    ]


@app.task(name="pagemill.drain")
def drain() -> None:
    """Run bursts until no page waits, the time is up, or other messages want the slot."""
    runtime = current()
    end = time.monotonic() + _DRAIN_S
    pause = 0.01
    try:
        while time.monotonic() < end:
            waiting = runtime.ledger.waiting()
            if not waiting:
                return
            if waiting > 1:
                # A burst is of one schema, so another slot of the pool may find work too; it
                # rings the next one itself.
                ring(app, runtime.redis, runtime.settings.queue)
            if runtime.runner().run_once():
                pause = 0.01
                if messages_waiting(runtime.redis, runtime.settings.queue):
                    return
            else:
                # No credit: the engine is full with the bursts of others.
                time.sleep(pause)
                pause = min(0.5, pause * 2)
    except EngineError as error:
        # No ring: the reconciler's next round is soon enough to ask the engine again.
        _log.warning("engine_failed", reason=str(error.reason), error=str(error))
        return
    _ring_if_needed(runtime)


def _submit(
    runtime: Runtime,
    pages: Sequence[Mapping[str, Any]],
    schema: str | Mapping[str, Any] | None,
    batch: str | None,
    options: Mapping[str, Any],
    *,
    interactive: bool,
) -> list[Submitted]:
    limit = runtime.settings.max_page_bytes
    encoded = parse_options({"max_tokens": runtime.settings.max_tokens, **options})
    fixed: dict[str, str] = {}

    def version(own: str | None) -> str:
        chosen = own if own is not None else schema
        if not isinstance(chosen, str | Mapping):
            what = "no schema" if chosen is None else f"a {type(chosen).__name__} as schema"
            raise Refused(Reason.INPUT_INVALID, what, advice="give schema=NAME or a JSON Schema")
        key = chosen if isinstance(chosen, str) else ""
        if key not in fixed:
            fixed[key] = fix_schema(runtime.registry, chosen)
        return fixed[key]

    submissions = []
    for number, fields in enumerate(pages):
        if not isinstance(fields, Mapping):
            raise Refused(Reason.INPUT_INVALID, f"page {number + 1} is no object")
        name = str(fields.get("url") or f"page {number + 1}")[:512]
        read = read_page(fields, runtime.redis, default_id=name, max_page_bytes=limit)
        submissions.append(
            submission(
                read.page.body,
                schema=version(read.schema),
                model=runtime.settings.model,
                url=read.page.url,
                client_id=read.page.id,
                content_type=read.page.content_type,
                encoding=read.page.encoding,
                options=encoded,
                queue_class="interactive" if interactive else "bulk",
            )
        )
    return runtime.ledger.submit(submissions, batch=batch)


def _work_on(runtime: Runtime, accepted: Submitted) -> Result:
    """Run bursts that hold the page until it is terminal; wait while another worker has it."""
    end = time.monotonic() + _EXTRACT_S
    pause = 0.02
    last: EngineError | None = None
    while True:
        status = runtime.ledger.page(accepted.page_id)
        if status is None:
            raise Refused(Reason.RECORD_EXPIRED, "the record has passed its retention")
        if status.state in TERMINAL:
            return _finished(runtime, accepted, status)
        try:
            worked = runtime.runner().run_once(want=accepted.page_id)
        except EngineError as error:
            worked, last = 0, error
        if worked:
            pause = 0.02
            continue
        if time.monotonic() > end:
            raise last or Refused(
                Reason.DEADLINE,
                f"the page has no record after {_EXTRACT_S} s",
                advice="it stays accepted: ask again later",
            )
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(1.0, pause * 1.5)
        runtime.ledger.reap()


def _finished(runtime: Runtime, accepted: Submitted, status: PageStatus) -> Result:
    return batch_result(
        BatchRecord(
            client_id=accepted.client_id,
            page_id=accepted.page_id,
            state=status.state,
            url=status.url,
            schema=status.schema,
            model=status.model,
            result=runtime.ledger.result(accepted.page_id),
            error=status.error,
        )
    )


def _text(value: object) -> str | None:
    """What may be shown of an argument that may be anything."""
    return value.encode("utf-8", "replace").decode()[:512] if isinstance(value, str) else None


def _result(result: Result) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(result.to_json_line())
    return decoded


def _ring_if_needed(runtime: Runtime) -> None:
    """Ring when pages wait and no message is on its way to a worker."""
    try:
        if runtime.ledger.waiting():
            ring(app, runtime.redis, runtime.settings.queue)
    except Refused as refused:
        _log.warning("ring_failed", reason=str(refused.reason))
