"""`pagemill extract`: pages in, one line of NDJSON a page out; runs all it needs by itself."""

from __future__ import annotations

import contextlib
import enum
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ..reason import Reason, Refused
from . import console
from .console import say
from .exit_status import ExitStatus
from .options import EngineEndpoint, Kind, Model, Out, RedisUrl
from .output import Format, chosen_format, keep_answered, open_sink


class KnownValues(enum.StrEnum):
    ON = "on"
    OFF = "off"


def extract(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUTS...",
            help="Files, folders, globs, *.ndjson, or - for standard input.",
        ),
    ],
    schema: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="A schema's name, or a JSON Schema file.")
    ],
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N pages.")] = None,
    out: Out = None,
    kind: Kind = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in --out: skip pages that have a line there.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(help="Keep the ledger here; another run goes on where this one ended."),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Budget of a record.")] = None,
    max_windows: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Read long pages in up to so many overlapping parts."),
    ] = None,
    evidence: Annotated[bool, typer.Option(help="Say where each value stands.")] = True,
    known_values: Annotated[
        KnownValues,
        typer.Option(help="Take what the page's metadata states plainly without asking the model."),
    ] = KnownValues.ON,
    site_templates: Annotated[
        bool, typer.Option(help="Learn what a site's pages share; keep it out of prompts.")
    ] = False,
    redis_url: RedisUrl = None,
    engine: EngineEndpoint = None,
    model: Model = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
) -> None:
    """Extract a record from each page; one JSON line a page, as they are finished.

    Where neither option nor environment names a Redis and an engine, an embedded server and an
    engine are started, and end with the command.
    """
    from .. import logs
    from ..config import load_settings
    from ..inputs import read_pages
    from ..record import ExtractOptions
    from . import schema_source
    from .local_run import LocalRun

    if redis_url is not None and state is not None:
        raise typer.BadParameter("--state is for the embedded server, leave --redis-url out")
    if "stdin" in console.closed and "-" in inputs:
        raise Refused(Reason.INPUT_INVALID, "standard input is closed")
    form = chosen_format(kind, out)
    if resume and (out is None or form is not Format.NDJSON):
        raise typer.BadParameter("--resume goes on in a file of NDJSON: give --out FILE")
    if out is None and form is Format.PARQUET and sys.stdout.isatty():
        raise typer.BadParameter("Parquet is no text: give --out FILE")
    settings = load_settings(
        redis_url=redis_url, engine_endpoint=engine, model=model, max_tokens=max_tokens
    )
    source = schema_source.read_file(schema) if schema_source.is_file(schema) else schema
    pages = read_pages(inputs, stdin=sys.stdin.buffer, max_page_bytes=settings.max_page_bytes)
    if resume and out is not None:
        answered = keep_answered(Path(out))
        pages = (page for page in pages if page.id not in answered)
    logs.configure("error", "console")
    options = ExtractOptions(
        max_tokens=settings.max_tokens,
        max_windows=max_windows or ExtractOptions().max_windows,
        evidence=evidence,
        known_values=known_values is KnownValues.ON,
        site_templates=site_templates,
    )
    started = time.monotonic()
    with open_sink(out, append=resume) as sink, contextlib.ExitStack() as stack:
        run = LocalRun(
            settings,
            stack,
            state=state,
            own_redis=state is not None or "redis_url" not in settings.model_fields_set,
            own_engine="engine_endpoint" not in settings.model_fields_set,
            quiet=quiet,
        )
        tally = run.extract(pages, source, options, limit=limit, sink=sink, kind=form)
    if not quiet:
        seconds = time.monotonic() - started
        say(f"{tally.pages} pages, {tally.done} done, {tally.failed} failed, {seconds:.1f} s")
    raise typer.Exit(ExitStatus.SOME_FAILED if tally.failed else ExitStatus.OK)
