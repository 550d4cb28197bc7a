"""The process that compiles schemas: bounded memory, killed when it takes too long.

Requests and replies are frames on standard input and output: a 4-byte big-endian length, then
JSON; a reply with a table is followed by a frame that holds it. The process ends with its input.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from typing import Any, BinaryIO

from .automaton import Ambiguous, Automaton, TooManyStates, build
from .compile_process import MAX_FRAME
from .errors import SchemaReason, SchemaRefused
from .lowering import Counting, lower_counted
from .table import encode

_ADVICE = "lower the bounds, simplify patterns, or split the schema"


def read_frame(stream: BinaryIO) -> bytes:
    """Return the next frame; EOFError at the end of the stream."""
    header = stream.read(4)
    if len(header) < 4:
        raise EOFError
    (length,) = struct.unpack(">I", header)
    if length > MAX_FRAME:
        raise EOFError
    body = stream.read(length)
    if len(body) < length:
        raise EOFError
    return body


def write_frame(stream: BinaryIO, body: bytes) -> None:
    stream.write(struct.pack(">I", len(body)) + body)
    stream.flush()


def compile_schema(schema: Any) -> tuple[bytes, int, int]:
    """Return table, states, bytes of regex. SchemaRefused when the schema can't be served.

    Counters are used where they tell the cases apart; a schema for which they don't has its
    bounds unrolled.
    """
    for counting in Counting:
        lowered = lower_counted(schema, counting)
        try:
            automaton: Automaton = build(lowered)
        except Ambiguous:
            continue
        except TooManyStates:
            raise SchemaRefused(
                SchemaReason.SCHEMA_TOO_LARGE, "the automaton has too many states", advice=_ADVICE
            ) from None
        except ValueError as error:
            raise SchemaRefused(
                SchemaReason.SCHEMA_TOO_LARGE,
                f"the regex doesn't compile ({str(error)[:200]})",
                advice=_ADVICE,
            ) from None
        return encode(automaton), len(automaton.final), len(lowered.regex.encode())
    raise AssertionError("unrolled bounds can't be ambiguous")


def answer(request: bytes) -> list[bytes]:
    """The frames that answer a request."""
    try:
        table, states, regex_bytes = compile_schema(json.loads(request))
    except SchemaRefused as refusal:
        reply = {
            "reason": refusal.reason.value,
            "message": refusal.message,
            "at": refusal.at,
            "advice": refusal.advice,
        }
        return [json.dumps(reply).encode()]
    except (MemoryError, RecursionError) as error:
        reply = {
            "reason": SchemaReason.SCHEMA_TOO_LARGE.value,
            "message": f"compiling exceeds its bounds ({type(error).__name__})",
            "at": "",
            "advice": _ADVICE,
        }
        return [json.dumps(reply).encode()]
    return [json.dumps({"states": states, "regex_bytes": regex_bytes}).encode(), table]


def main() -> None:
    max_memory = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    # The first compilation pays for lazy imports and tables: before the clock runs.
    answer(b'{"type":"object","properties":{"a":{"type":"string","maxLength":9}}}')
    write_frame(replies, b"ready")
    while True:
        try:
            request = read_frame(requests)
        except EOFError:
            return
        for frame in answer(request):
            write_frame(replies, frame)


if __name__ == "__main__":
    main()
