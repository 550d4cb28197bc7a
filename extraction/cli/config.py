"""`pagemill config show`: the settings as this process would have them, and where from."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from .console import stdout

app = typer.Typer(help="Look at the settings.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Makes `show` a command of its own, where Typer would fold a single one into the group."""


@app.command("show")
def show(
    redact: Annotated[
        bool, typer.Option("--redact/--no-redact", help="Hide the passwords of URLs.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show each setting with its value and its source: environment, file or default."""
    from ..config import load_settings, redact_url

    settings = load_settings()
    sources = _sources(settings.model_fields_set)
    rows: dict[str, dict[str, Any]] = {}
    for name, value in settings.model_dump(mode="json").items():
        shown = redact_url(value) if redact and isinstance(value, str) and "://" in value else value
        rows[name] = {"value": shown, "source": sources.get(name, "default")}
    if as_json or not stdout.is_terminal:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    table = Table("setting", "value", "source", "", box=None)
    for name, row in rows.items():
        description = type(settings).model_fields[name].description or ""
        value = "" if row["value"] is None else str(row["value"])
        table.add_row(*(Text(cell) for cell in (name, value, row["source"], description)))
    stdout.print(table)


def _sources(given: set[str]) -> dict[str, str]:
    """Where the settings that are given come from; the environment goes before the file."""
    from ..config import CONFIG_VARIABLE, PREFIX

    path = os.environ.get(CONFIG_VARIABLE)
    in_file = tomllib.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    return {
        name: PREFIX + name.upper() if PREFIX + name.upper() in os.environ else str(path)
        for name in given
        if PREFIX + name.upper() in os.environ or name in in_file
    }
