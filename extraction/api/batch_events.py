"""Progress of a batch as server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from ..reason import Refused
from .models import BatchProgress
from .problems import problem_of

PERIOD_S = 1.0
# Proxies end connections on which nothing comes.
KEEP_ALIVE_S = 15.0


async def progress_events(
    first: BatchProgress, ask: Callable[[], Awaitable[BatchProgress]]
) -> AsyncIterator[bytes]:
    """Yield `progress` now and whenever it has changed, at the end `finished`.

    A ledger that can't answer is an `error` with a problem, and the end. Who connects again goes
    on where the batch is by then.
    """
    told, told_at = first, time.monotonic()
    while not told.finished:
        yield _event("progress", told)
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                found = await ask()
            except Refused as error:
                yield b"event: error\ndata: " + bytes(problem_of(error).body) + b"\n\n"
                return
            if found != told:
                told, told_at = found, time.monotonic()
                break
            if time.monotonic() - told_at > KEEP_ALIVE_S:
                told_at = time.monotonic()
                yield b": still here\n\n"
    yield _event("finished", told)


def _event(name: str, progress: BatchProgress) -> bytes:
    return f"event: {name}\ndata: {progress.model_dump_json()}\n\n".encode()
