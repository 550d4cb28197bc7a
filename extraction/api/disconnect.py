"""Work that ends when its caller hangs up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

_T = TypeVar("_T")


class ClientGone(Exception):
    """The caller hung up; nobody reads an answer any more."""


async def until_gone(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """Await `work`, but cancel it (and so its request at the engine) when the caller hangs up.

    The request's body has to be read before. Raises ClientGone.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        for pending in (task, gone):
            if not pending.done():
                pending.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await pending


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
