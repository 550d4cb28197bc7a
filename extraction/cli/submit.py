"""`pagemill submit|batch|results`: pages into the ledger of a running stack, records out of it."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..reason import Reason, Refused
from .console import say, stderr
from .exit_status import ExitStatus
from .options import Kind, Model, Out, RedisUrl
from .output import Format, chosen_format, open_sink

if TYPE_CHECKING:
    from ..config import Settings
    from ..ledger import BatchStatus, Ledger

_POLL_S = 0.5
_RECORDS_AT_ONCE = 200
_SHOWN_REJECTIONS = 20

BatchId = Annotated[str, typer.Argument(metavar="BATCH", help="A batch's id, as `submit` said it.")]


def submit(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUTS...", help="Files, folders, globs, *.ndjson, or -."),
    ],
    schema: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="A schema's name, or a JSON Schema file.")
    ],
    batch: Annotated[
        str | None,
        typer.Option(help="The batch's id; the same again adds to it, and doubles nothing."),
    ] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Somebody waits: go before bulk pages.")
    ] = False,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Budget of a record.")] = None,
    redis_url: RedisUrl = None,
    model: Model = None,
) -> None:
    """Hand pages to the workers of a running stack; prints the batch as a line of JSON.

    A page that can't be read is told on stderr and costs only itself.
    """
    from pagemill import schemas

    from ..assembly import open_ledger
    from ..bell import Bell
    from ..config import load_settings
    from ..inputs import read_pages
    from ..intake import fix_schema, parse_options
    from ..record import ExtractOptions
    from . import schema_source
    from .feeder import Feeder

    settings = load_settings(redis_url=redis_url, model=model, max_tokens=max_tokens)
    source = schema_source.read_file(schema) if schema_source.is_file(schema) else schema
    pages = read_pages(inputs, stdin=sys.stdin.buffer, max_page_bytes=settings.max_page_bytes)
    ledger = open_ledger(settings)
    ledger.ping()
    registry = schemas.SchemaRegistry(ledger.redis, settings.namespace)
    feeder = Feeder(
        pages,
        registry,
        schema=fix_schema(registry, source),
        options=parse_options(ExtractOptions(max_tokens=settings.max_tokens)),
        model=settings.model,
        queue_class="interactive" if interactive else "bulk",
    )
    batch_id = batch or uuid.uuid4().hex
    accepted = created = rejected = 0
    with contextlib.closing(Bell(settings, ledger.redis)) as bell:
        more = True
        while more:
            group = feeder.next_group()
            for bad in group.bad:
                rejected += 1
                if rejected <= _SHOWN_REJECTIONS:
                    say(f"{bad.id}: {bad.reason}: {bad.message}")
            if group.pages:
                answers = ledger.submit(group.pages, batch=batch_id)
                accepted += len(answers)
                created += sum(answer.created for answer in answers)
                bell.ring()
            more = not group.last
    if accepted == 0:
        raise Refused(Reason.INPUT_INVALID, f"none of {rejected} pages can be read")
    _print({"batch": batch_id, "accepted": accepted, "created": created, "rejected": rejected})
    raise typer.Exit(ExitStatus.SOME_FAILED if rejected else ExitStatus.OK)


def batch(
    batch_id: BatchId,
    wait: Annotated[bool, typer.Option("--wait", help="Until no page is pending.")] = False,
    redis_url: RedisUrl = None,
) -> None:
    """Tell how far a batch is, as a line of JSON; exits with 1 if pages have no record."""
    ledger = _open(redis_url)[0]
    status = _status(ledger, batch_id)
    if wait:
        with contextlib.ExitStack() as stack:
            live = stack.enter_context(stderr.status("")) if stderr.is_terminal else None
            while not status.finished:
                if live is not None:
                    live.update(_line(status))
                time.sleep(_POLL_S)
                status = _status(ledger, batch_id)
    _print(
        {
            "batch": status.batch_id,
            "total": status.total,
            "pending": status.pending,
            "done": status.done,
            "failed": status.failed,
            "dead": status.dead,
            "created_s": status.created_s,
            "finished_s": status.finished_s,
        }
    )
    without = status.failed + status.dead
    raise typer.Exit(ExitStatus.SOME_FAILED if without else ExitStatus.OK)


def results(
    batch_id: BatchId,
    out: Out = None,
    kind: Kind = None,
    schema: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Gives a table its columns; else the first page's."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the whole batch has finished.")
    ] = False,
    cursor: Annotated[
        str, typer.Option(metavar="CURSOR", help="Begin after this; stderr tells the next one.")
    ] = "",
    redis_url: RedisUrl = None,
) -> None:
    """Write the finished pages of a batch, in the order of finishing."""
    from ..finished import batch_result
    from .writers import ResultWriter, make_writer

    form = chosen_format(kind, out)
    if out is None and form is Format.PARQUET and sys.stdout.isatty():
        raise typer.BadParameter("Parquet is no text: give --out FILE")
    ledger, settings = _open(redis_url)
    written = failed = 0
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(open_sink(out))
        writer: ResultWriter | None = None
        while True:
            # Asked first: what has finished by then is among the records read next.
            finished = _status(ledger, batch_id).finished
            records, cursor = ledger.records(batch_id, cursor, _RECORDS_AT_ONCE)
            for record in records:
                result = batch_result(record)
                if writer is None:
                    named = schema or record.schema
                    table = form is not Format.NDJSON
                    columns = _columns_of(settings, ledger, named) if table else {}
                    writer = make_writer(form, sink, columns)
                    stack.callback(writer.close)
                writer.write(result)
                written += 1
                failed += result.status != "done"
            if not records:
                if finished or not follow:
                    break
                time.sleep(_POLL_S)
    say(f"{written} pages, {failed} of them without a record; next cursor {cursor}")
    raise typer.Exit(ExitStatus.SOME_FAILED if failed else ExitStatus.OK)


def _columns_of(settings: Settings, ledger: Ledger, source: str) -> dict[str, Any]:
    from pagemill import schemas

    from . import schema_source

    if schema_source.is_file(source):
        return schema_source.read_file(source)
    return schemas.SchemaRegistry(ledger.redis, settings.namespace).get(source).schema


def _open(redis_url: str | None) -> tuple[Ledger, Settings]:
    from ..assembly import open_ledger
    from ..config import load_settings

    settings = load_settings(redis_url=redis_url)
    return open_ledger(settings), settings


def _status(ledger: Ledger, batch_id: str) -> BatchStatus:
    status = ledger.batch(batch_id)
    if status is None:
        raise Refused(
            Reason.BATCH_UNKNOWN,
            f"no batch {batch_id[:128]!r}",
            advice="batches are kept for a week after their last page",
        )
    return status


def _line(status: BatchStatus) -> str:
    finished = status.total - status.pending
    return f"{finished}/{status.total} pages, {status.failed + status.dead} failed"


def _print(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value))
