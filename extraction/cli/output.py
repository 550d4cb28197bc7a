"""Where results go, and in which form."""

from __future__ import annotations

import contextlib
import enum
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import BinaryIO

import msgspec

from ..reason import Reason, Refused
from ..record import TRANSIENT_REASONS
from . import console
from .console import say


class Format(enum.StrEnum):
    """What results are written as."""

    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


def chosen_format(named: Format | None, out: str | None) -> Format:
    """The format that an option names, else that of the file's suffix, else NDJSON."""
    if named is not None:
        return named
    suffix = PurePath(out or "").suffix.lower().lstrip(".")
    return Format(suffix) if suffix in ("csv", "parquet") else Format.NDJSON


@contextlib.contextmanager
def open_sink(out: str | None, *, append: bool = False) -> Iterator[BinaryIO]:
    """Standard output, or the file `out`; Refused(INPUT_INVALID) when it can't be written."""
    if out is None:
        if "stdout" in console.closed:
            raise Refused(Reason.INPUT_INVALID, "standard output is closed", advice="give --out")
        yield sys.stdout.buffer
        return
    try:
        file = open(out, "ab" if append else "wb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise Refused(Reason.INPUT_INVALID, f"{out}: {error.strerror}") from None
    try:
        yield file
    finally:
        try:
            file.close()  # Writes what is still buffered.
        except OSError as error:
            raise Refused(Reason.INPUT_INVALID, f"{out}: {error.strerror}") from None


class _Line(msgspec.Struct):
    """What has to be known of a line that an earlier run wrote."""

    id: str
    status: str
    error: dict[str, msgspec.Raw] | None = None


def keep_answered(path: Path) -> set[str]:
    """The ids of pages that have an answer in a file of an earlier run.

    Other lines are taken out of the file: those whose failure was of the moment, and one that was
    not written to its end. The file is replaced in one move. Refused(INPUT_INVALID) when it holds
    something else than results, so that no file is spoilt by mistake.
    """
    if not path.exists():
        return set()
    decoder = msgspec.json.Decoder(_Line)
    answered: set[str] = set()
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    dropped = 0
    try:
        with path.open("rb") as lines, staged.open("wb") as kept:
            for number, line in enumerate(lines, 1):
                try:
                    found = decoder.decode(line)
                except msgspec.MsgspecError:
                    if line.endswith(b"\n"):
                        raise Refused(
                            Reason.INPUT_INVALID, f"{path}: line {number} is no result"
                        ) from None
                    dropped += 1
                    continue
                if not line.endswith(b"\n") or _of_the_moment(found):
                    dropped += 1
                    continue
                answered.add(found.id)
                kept.write(line)
        if dropped:
            staged.replace(path)
            say(f"{dropped} lines of {path} are tried again")
    except OSError as error:
        raise Refused(Reason.INPUT_INVALID, f"{path}: {error.strerror}") from None
    finally:
        staged.unlink(missing_ok=True)
    return answered


def _of_the_moment(line: _Line) -> bool:
    if line.status == "done" or line.error is None:
        return False
    reason = msgspec.json.decode(line.error.get("reason", msgspec.Raw(b"null")))
    return reason in TRANSIENT_REASONS
