"""`pagemill schema list|show|register|lint|compile|diff|infer`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from ..reason import Reason, Refused
from .console import say, stdout
from .exit_status import ExitStatus
from .options import RedisUrl

app = typer.Typer(help="Look up, check and register schemas.", no_args_is_help=True)

Source = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A schema's name or a JSON file.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def _load(source: str, redis_url: str | None) -> dict[str, Any]:
    from ..config import load_settings
    from . import schema_source

    if schema_source.is_file(source):
        return schema_source.read_file(source)
    settings = load_settings(redis_url=redis_url)
    return schema_source.catalog(settings, redis_url).get(source).schema


def _print_json(value: object, *, indent: bool = False) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2 if indent else None))


@app.command("list")
def list_schemas(redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """List the latest version of every schema: of the registry, or of the library alone."""
    from ..config import load_settings
    from . import schema_source

    found = schema_source.catalog(load_settings(redis_url=redis_url), redis_url).list()
    rows = [
        {"name": v.name, "version": v.version, "hash": v.hash, "source": v.source} for v in found
    ]
    if as_json or not stdout.is_terminal:
        for row in rows:
            _print_json(row)
        return
    table = Table("name", "version", "source", "description", box=None)
    for version in found:
        text = str(version.schema.get("description") or version.schema.get("title") or "")
        table.add_row(version.name, str(version.version), version.source, text)
    stdout.print(table)


@app.command("show")
def show(source: Source, redis_url: RedisUrl = None) -> None:
    """Print a schema: NAME is the latest version, NAME@2 a fixed one."""
    _print_json(_load(source, redis_url), indent=True)


@app.command("register")
def register(
    name: Annotated[str, typer.Argument(help="a-z, 0-9, _ and -")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="A JSON Schema.")],
    redis_url: RedisUrl = None,
) -> None:
    """Register FILE as the latest version of NAME, after trying that it compiles."""
    from pagemill import schemas

    from ..config import load_settings
    from . import schema_source

    schema = schema_source.read_file(file)
    schemas.compile(schema)
    version = schema_source.registry(load_settings(redis_url=redis_url)).put(name, schema)
    _warn(schema)
    _print_json({"name": version.name, "version": version.version, "hash": version.hash})


@app.command("lint")
def lint(source: Source, redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Say what makes records of a schema worse, slower or cut off; exits 1 if there is anything."""
    from pagemill import schemas

    found = schemas.lint(_load(source, redis_url))
    for warning in found:
        row = {"code": warning.code, "pointer": warning.pointer, "message": warning.message}
        if as_json:
            _print_json(row)
        else:
            typer.echo(f"{warning.pointer or '/'}: {warning.message} [{warning.code}]")
    if found:
        raise typer.Exit(ExitStatus.SOME_FAILED)


@app.command("compile")
def compile_schema(
    source: Source,
    redis_url: RedisUrl = None,
    out: Annotated[str | None, typer.Option(help="Write the automaton's table here.")] = None,
) -> None:
    """Compile a schema to its automaton and print what that took."""
    from pathlib import Path

    from pagemill import schemas

    compiled = schemas.compile(_load(source, redis_url))
    if out is not None:
        try:
            Path(out).write_bytes(compiled.table)
        except OSError as error:
            raise Refused(Reason.INPUT_INVALID, f"{out}: {error.strerror}") from None
    _print_json(
        {
            "hash": compiled.hash,
            "states": compiled.num_states,
            "table_bytes": len(compiled.table),
            "compile_ms": round(compiled.compile_ms, 1),
        }
    )


@app.command("diff")
def diff(old: Source, new: Source, redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Say what NEW means for those who read OLD's records; exits 1 if it is breaking."""
    from pagemill import schemas

    changes = schemas.diff(_load(old, redis_url), _load(new, redis_url))
    for change in changes:
        if as_json:
            _print_json(
                {"effect": change.effect, "pointer": change.pointer, "message": change.message}
            )
        else:
            typer.echo(f"{change.effect:9} {change.pointer or '/'}: {change.message}")
    verdict = schemas.verdict(changes)
    say(verdict)
    if verdict == "breaking":
        raise typer.Exit(ExitStatus.SOME_FAILED)


@app.command("infer")
def infer(
    files: Annotated[
        list[str], typer.Argument(metavar="FILES...", help="Records: NDJSON, JSON, or - .")
    ],
) -> None:
    """Propose a schema from example records, or from results of `pagemill extract`."""
    from pagemill import schemas

    from .example_records import read_records

    schema = schemas.infer(read_records(files))
    _print_json(schema, indent=True)
    _warn(schema)


def _warn(schema: dict[str, Any]) -> None:
    from pagemill import schemas

    for warning in schemas.lint(schema):
        say(f"{warning.pointer or '/'}: {warning.message} [{warning.code}]")
