"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from .output import Format

Out = Annotated[str | None, typer.Option(metavar="FILE", help="Write here instead of stdout.")]
Kind = Annotated[
    Format | None,
    typer.Option("--format", help="Else by the suffix of --out; ndjson has all there is."),
]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        metavar="URL",
        help="redis://host:port/db or unix:///path; PAGEMILL_REDIS_URL does the same.",
    ),
]
EngineEndpoint = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="ENDPOINT",
        help="A running engine, e.g. ipc:///run/pagemill/engine.sock.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="Name, folder, GGUF file or repository id."),
]
