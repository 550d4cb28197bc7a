"""`pagemill dead list|show|retry|drop`: pages that were given up, and what to do with them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..reason import Reason, Refused
from .console import say
from .exit_status import ExitStatus
from .options import RedisUrl

if TYPE_CHECKING:
    from ..ledger import Ledger, PageStatus

app = typer.Typer(
    help="Look at pages that were given up, and try them again.", no_args_is_help=True
)

Pages = Annotated[
    list[str] | None, typer.Argument(metavar="PAGE...", help="Page ids, as `dead list` shows them.")
]
All = Annotated[bool, typer.Option("--all", help="All dead pages of this moment.")]


def _ledger(redis_url: str | None) -> Ledger:
    from ..assembly import open_ledger
    from ..config import load_settings

    return open_ledger(load_settings(redis_url=redis_url))


def _row(page: PageStatus) -> dict[str, Any]:
    error = page.error
    return {
        "page": page.page_id,
        "url": page.url,
        "schema": page.schema,
        "attempts": page.attempts,
        "reason": error.reason if error is not None else "",
        "message": error.message if error is not None else "",
        "submitted_s": page.submitted_s,
        "dead_s": page.finished_s,
    }


@app.command("list")
def list_dead(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 100,
    redis_url: RedisUrl = None,
) -> None:
    """List dead pages, the oldest first, one JSON object a line."""
    for page in _ledger(redis_url).dead_letters(count=limit):
        typer.echo(json.dumps(_row(page), ensure_ascii=False))


@app.command("show")
def show(
    page: Annotated[str, typer.Argument(metavar="PAGE", help="A page's id.")],
    body: Annotated[
        bool, typer.Option("--body", help="Write the page's body as it was crawled, nothing else.")
    ] = False,
    redis_url: RedisUrl = None,
) -> None:
    """Show a dead page: where it came from, why it was given up; or its body."""
    ledger = _ledger(redis_url)
    status = ledger.page(page)
    if status is None or status.state != "dead":
        state = "unknown" if status is None else status.state
        raise Refused(Reason.INPUT_INVALID, f"{page}: not a dead page, it is {state}")
    content = ledger.body(page)
    if not body:
        size = None if content is None else len(content)
        typer.echo(json.dumps({**_row(status), "body_bytes": size}, ensure_ascii=False, indent=2))
        return
    if content is None:
        raise Refused(Reason.BODY_MISSING, f"{page}: its body is gone from Redis")
    sys.stdout.buffer.write(content)


@app.command("retry")
def retry(pages: Pages = None, every: All = False, redis_url: RedisUrl = None) -> None:
    """Put dead pages back into the queue, each with all its attempts before it again."""
    ledger = _ledger(redis_url)
    chosen = _chosen(ledger, pages, every)
    _report("retried", chosen, ledger.retry(chosen))


@app.command("drop")
def drop(pages: Pages = None, every: All = False, redis_url: RedisUrl = None) -> None:
    """Forget dead pages for good, with their bodies."""
    ledger = _ledger(redis_url)
    chosen = _chosen(ledger, pages, every)
    _report("dropped", chosen, ledger.drop(chosen))


def _chosen(ledger: Ledger, pages: list[str] | None, every: bool) -> list[str]:
    if bool(pages) == every:
        raise typer.BadParameter("name pages, or give --all")
    return ledger.dead_ids() if every else list(dict.fromkeys(pages or []))


def _report(what: str, chosen: list[str], moved: list[str]) -> None:
    """Count on stdout; on stderr what was named and isn't dead, or can't be tried any more."""
    left = sorted(set(chosen) - set(moved))
    for page in left[:20]:
        say(f"{page}: not {what}, it isn't dead, or its body is gone")
    typer.echo(json.dumps({what: len(moved), "left": len(left)}))
    raise typer.Exit(ExitStatus.SOME_FAILED if left else ExitStatus.OK)
