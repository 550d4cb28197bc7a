"""Example records from files: a JSON document, or one record a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from ..reason import Reason, Refused

_MAX_BYTES = 64 << 20


def read_records(names: Sequence[str]) -> Iterator[Any]:
    """Yield the records of files ("-": standard input); Refused where one can't be read.

    A list is several records. Of a result as `pagemill extract` writes it, the record counts, and
    a failed one is passed by.
    """
    for name in names:
        try:
            data = sys.stdin.buffer.read(_MAX_BYTES + 1) if name == "-" else _read(Path(name))
        except OSError as error:
            raise Refused(Reason.INPUT_INVALID, f"{name}: {error.strerror}") from None
        if len(data) > _MAX_BYTES:
            raise Refused(Reason.INPUT_INVALID, f"{name}: over {_MAX_BYTES >> 20} MB")
        for value in _values(name, data):
            if isinstance(value, dict) and {"status", "record", "error"} <= value.keys():
                if value["status"] == "done":
                    yield value["record"]
            else:
                yield value


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES + 1)


def _values(name: str, data: bytes) -> Iterator[Any]:
    try:
        whole = orjson.loads(data)
    except orjson.JSONDecodeError:
        for number, line in enumerate(data.splitlines(), 1):
            if line.strip():
                try:
                    yield orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise Refused(
                        Reason.INPUT_INVALID, f"{name}, line {number}: not JSON ({error})"
                    ) from None
        return
    yield from whole if isinstance(whole, list) else [whole]
