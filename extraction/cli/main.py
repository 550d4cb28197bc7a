"""The command's frame: options in common, errors as one line and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
import typer.core

from . import (
    config,
    console,
    dead,
    doctor,
    extract,
    key,
    model,
    processes,
    schema,
    submit,
    top,
    up,
)
from .console import say
from .exit_status import ExitStatus, classify


class _PipeClosed(Exception):
    """Whoever read our output has left."""


class _Frame(typer.core.TyperGroup):
    """Keeps Typer's hands off a closed pipe and Ctrl-C.

    It would exit with 1 for the one, as if pages had failed, and say nothing for the other.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
            return result
        except BrokenPipeError:
            raise _PipeClosed from None
        except KeyboardInterrupt:
            raise typer.Abort from None


app = typer.Typer(
    name="pagemill",
    cls=_Frame,
    help="Crawled web pages in, schema-valid JSON records out.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("extract")(extract.extract)
app.command("submit")(submit.submit)
app.command("batch")(submit.batch)
app.command("results")(submit.results)
app.command("up")(up.up)
app.command("top")(top.top)
app.command("serve")(processes.serve)
app.command("worker", context_settings=processes.PASS_THROUGH)(processes.worker)
app.command("engine", context_settings=processes.PASS_THROUGH)(processes.engine)
app.command("announce")(processes.announce)
app.add_typer(schema.app, name="schema")
app.add_typer(model.app, name="model")
app.add_typer(dead.app, name="dead")
app.add_typer(key.app, name="key")
app.add_typer(config.app, name="config")
app.command("doctor")(doctor.doctor)

# Typer carries its own copy of Click in newer versions, so the class is found by its place.
_ClickException: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def run(arguments: Sequence[str]) -> int:
    """Run the command with `arguments` and return its exit status."""
    try:
        status = typer.main.get_command(app).main(
            list(arguments), prog_name="pagemill", standalone_mode=False
        )
    except _ClickException as error:
        say(f"usage: {error.format_message()}")
        return ExitStatus.USAGE
    except (typer.Abort, KeyboardInterrupt):
        say("interrupted")
        return ExitStatus.INTERRUPTED
    except _PipeClosed:
        # Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.PIPE_CLOSED
    except Exception as error:
        if os.environ.get("PAGEMILL_LOG_LEVEL") == "debug":
            raise
        exit_status, reason, sentence = classify(error)
        say(f"{reason}: {' '.join(sentence.split())}")
        return exit_status
    return status if isinstance(status, int) else ExitStatus.OK


def _fill_closed_descriptors() -> None:
    """Open what was closed for us (`>&-`), else the next file opened would stand in its place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            console.closed.add(name)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def main() -> NoReturn:
    """The entry point of `pagemill`."""
    _fill_closed_descriptors()
    sys.exit(run(sys.argv[1:]))
