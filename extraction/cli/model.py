"""`pagemill model pull|list`."""

from __future__ import annotations

from typing import Annotated

import typer

from .console import say

app = typer.Typer(help="Fetch models and list those in the cache.", no_args_is_help=True)


@app.command("pull")
def pull(
    name: Annotated[str | None, typer.Argument(help="The default model if not given.")] = None,
) -> None:
    """Fetch a model into the cache, unless it is there, and print its folder."""
    from pagemill.engine import store

    files = store.pull(name or store.DEFAULT_MODEL, progress=say)
    typer.echo(files.directory)


@app.command("list")
def list_models() -> None:
    """Print the models in the cache, one a line."""
    from pagemill.engine import store

    folder = store.cache_directory() / "models"
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.is_dir() and not path.name.startswith("."):
                typer.echo(f"{path.name}\t{path}")
