"""`pagemill doctor`: checks what operators get wrong, and says what to do."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .console import stdout
from .exit_status import ExitStatus
from .options import EngineEndpoint, Model, RedisUrl

_MARKS = {"ok": "ok  ", "warning": "warn", "failed": "FAIL", "skipped": "-   "}


def doctor(
    redis_url: RedisUrl = None,
    engine: EngineEndpoint = None,
    model: Model = None,
    only: Annotated[
        str | None, typer.Option(metavar="PART", help="installation, model, redis or engine")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a check.")] = False,
) -> None:
    """Check versions, model, Redis and engine; exits 1 if something has failed.

    Redis and the engine are checked where they are named by option or environment, or answer at
    their default places.
    """
    from ..config import load_settings
    from .checks import PARTS, run_checks

    if only is not None and only not in PARTS:
        raise typer.BadParameter(f"--only: one of {', '.join(PARTS)}")

    settings = load_settings(redis_url=redis_url, engine_endpoint=engine, model=model)
    failed = False
    for check in run_checks(settings, [only] if only else PARTS):
        failed = failed or check.outcome == "failed"
        if as_json:
            row = {"name": check.name, "outcome": check.outcome, "detail": check.detail}
            typer.echo(json.dumps({**row, "advice": check.advice}))
            continue
        stdout.print(f"{_MARKS[check.outcome]} {check.name}: {check.detail}", markup=False)
        if check.advice:
            stdout.print(f"     -> {check.advice}", markup=False)
    raise typer.Exit(ExitStatus.SOME_FAILED if failed else ExitStatus.OK)
