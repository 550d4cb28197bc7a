"""`pagemill key create|list|revoke`: keys for the REST API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ..reason import Reason, Refused
from .console import say
from .options import RedisUrl

if TYPE_CHECKING:
    from ..api_keys import ApiKeys

app = typer.Typer(help="Make, list and revoke keys for the REST API.", no_args_is_help=True)


def _keys(redis_url: str | None) -> ApiKeys:
    from ..api_keys import ApiKeys
    from ..assembly import open_ledger
    from ..config import load_settings

    settings = load_settings(redis_url=redis_url)
    return ApiKeys(open_ledger(settings).redis, settings.namespace)


@app.command("create")
def create(
    tenant: Annotated[str, typer.Argument(help="Whose it is; tenants see nothing of each other.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="submit, read or admin; may be given several times.")
    ] = None,
    valid_days: Annotated[float, typer.Option(min=0, help="0: it doesn't expire.")] = 0,
    pages_per_day: Annotated[
        int, typer.Option(min=0, help="Pages it may submit a day (UTC); 0: no bound.")
    ] = 0,
    calls_per_s: Annotated[
        int, typer.Option(min=0, help="Submitting calls a second; 0: no bound.")
    ] = 0,
    redis_url: RedisUrl = None,
) -> None:
    """Make a key and print it, this once: only its hash is kept."""
    from ..api_keys import SCOPES

    chosen = scope or ["submit", "read"]
    for one in chosen:
        if one not in SCOPES:
            raise typer.BadParameter(f"--scope {one}: one of {', '.join(SCOPES)}")
    scopes = [one for one in SCOPES if one in chosen]
    token, key = _keys(redis_url).create(
        tenant,
        scopes,
        valid_s=valid_days * 86_400,
        pages_per_day=pages_per_day,
        calls_per_s=calls_per_s,
    )
    say(f"key {key.id} of {tenant}: {', '.join(key.scopes)}; it won't be shown again")
    typer.echo(token)


@app.command("list")
def list_keys(redis_url: RedisUrl = None) -> None:
    """List keys without their secrets, with what they used today, one JSON object a line."""
    from ..key_usage import KeyUsage

    store = _keys(redis_url)
    keys = store.list()
    used = KeyUsage(store.redis, store.namespace).pages([key.id for key in keys])
    for key, pages in zip(keys, used, strict=True):
        row = {
            "id": key.id,
            "tenant": key.tenant,
            "scopes": list(key.scopes),
            "created_s": key.created_s,
            "expires_s": key.expires_s,
            "pages_per_day": key.pages_per_day,
            "calls_per_s": key.calls_per_s,
            "pages_today": pages,
        }
        typer.echo(json.dumps(row))


@app.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `key list` shows it.")],
    redis_url: RedisUrl = None,
) -> None:
    """Revoke a key; servers refuse it within seconds."""
    if not _keys(redis_url).revoke(key_id):
        raise Refused(Reason.INPUT_INVALID, f"there is no key {key_id!r:.60}")
    say(f"key {key_id} is revoked")
