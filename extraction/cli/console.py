"""Where the command speaks: data on stdout, everything else on stderr."""

from __future__ import annotations

import sys

from rich.console import Console

stderr = Console(stderr=True, highlight=False)
stdout = Console(highlight=False)


def say(message: str) -> None:
    """One line to the person at the terminal."""
    stderr.print(f"pagemill: {message}", markup=False, soft_wrap=True)


def write_data(data: bytes) -> None:
    """Bytes to stdout at once, so that a pipe sees each line as it comes."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
