"""The process that compiles schemas: bounded memory, killed when it takes too long.

Requests and replies are frames on standard input and output: a 4-byte big-endian length, then
JSON; a reply with a table is followed by a frame that holds it. The process ends with its input.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import resource
import select
import struct
import sys
from typing import Any, BinaryIO

from pagemill._core import Ambiguous, TooManyStates

from .automaton import build
from .compile_process import MAX_FRAME, Builder
from .errors import SchemaReason, SchemaRefused
from .lowering import Counting, NoRegexError, lowered
from .lowering.construct import table as table_of
from .lowering.emit import MAX_REGEX_BYTES, RegexTooLong, write
from .lowering.pattern import PatternError
from .lowering.terms import Term

_ADVICE = "lower the bounds, simplify patterns, or split the schema"


_PAUSE_S = 0.2
_COLLECT_EVERY = 100


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


# Outlines takes about twelve milliseconds for a kilobyte of regex, the core one or two.
MAX_OUTLINES_REGEX = 2_000
# A bound of so many bytes of regex has six digits. Alternatives of digits begin alike, and with
# each further digit Outlines takes four times as long: a minute for twelve.
MAX_OUTLINES_NUMBER = 140


def compile_schema(schema: Any, builder: Builder = Builder.AUTO) -> tuple[bytes, int, str]:
    """Return table, states, and who made it. SchemaRefused when the schema can't be served.

    Counters are used where they tell the cases apart; a schema for which they don't has its
    bounds unrolled.
    """
    return lowered(schema, lambda term: compile_term(term, builder))


def compile_term(term: Term, builder: Builder) -> tuple[bytes, int, str]:
    """As `compile_schema`, for a term."""
    try:
        for counting in Counting:
            with contextlib.suppress(Ambiguous):
                return _compiled(term, counting, builder)
    except TooManyStates:
        raise SchemaRefused(
            SchemaReason.SCHEMA_TOO_LARGE, "the automaton has too many states", advice=_ADVICE
        ) from None
    raise SchemaRefused(
        SchemaReason.SCHEMA_TOO_LARGE, "lengths that can't be told apart", advice=_ADVICE
    )


def _compiled(term: Term, counting: Counting, builder: Builder) -> tuple[bytes, int, str]:
    if builder is not Builder.CORE:
        try:
            limits = MAX_OUTLINES_REGEX, MAX_OUTLINES_NUMBER
            if builder is not Builder.AUTO:
                limits = MAX_REGEX_BYTES, MAX_REGEX_BYTES
            return (*build(write(term, counting, *limits)), "outlines")
        except (NoRegexError, PatternError, RegexTooLong):
            pass
        except ValueError as error:
            raise SchemaRefused(
                SchemaReason.SCHEMA_TOO_LARGE,
                f"the regex doesn't compile ({str(error)[:200]})",
                advice=_ADVICE,
            ) from None
    return (*table_of(term, counting), "core")


def answer(request: bytes, builder: Builder) -> list[bytes]:
    """The frames that answer a request."""
    try:
        table, states, made_by = compile_schema(json.loads(request), builder)
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
    return [json.dumps({"states": states, "builder": made_by}).encode(), table]


def main() -> None:
    max_memory, builder = int(sys.argv[1]), Builder(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    # The first compilation pays for lazy imports and tables: before the clock runs.
    for known in (Builder.OUTLINES, Builder.CORE):
        answer(b'{"type":"object","properties":{"a":{"type":"string","maxLength":9}}}', known)
    write_frame(replies, b"ready")
    # Rubbish is collected in pauses, not amid a request.
    gc.collect()
    gc.freeze()
    gc.disable()
    for served in itertools.count(1):
        idle = not select.select([requests], [], [], _PAUSE_S)[0]
        if idle or served % _COLLECT_EVERY == 0:
            gc.collect()
        try:
            request = read_frame(requests)
        except EOFError:
            return
        for frame in answer(request, builder):
            write_frame(replies, frame)


if __name__ == "__main__":
    main()
