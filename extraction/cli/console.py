"""Where the command speaks: data on stdout, everything else on stderr."""

from __future__ import annotations

from rich.console import Console

# Standard streams that were closed for us.
closed: set[str] = set()
stderr = Console(stderr=True, highlight=False)
stdout = Console(highlight=False)


def say(message: str) -> None:
    """One line to the person at the terminal."""
    stderr.print(f"pagemill: {message}", markup=False, soft_wrap=True)
