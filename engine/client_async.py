"""The client over ZeroMQ for asyncio; many generate calls may run at once."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from .bursts import Burst, check_burst
from .client import Link
from .connection import unavailable
from .errors import EngineError
from .protocol import EngineStats, Output, Request, Welcome


class AsyncEngineClient:
    """The same as EngineClient, awaited; use it from the loop that connected it."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @classmethod
    async def connect(
        cls, endpoint: str, *, connect_timeout_s: float = 10.0, silence_timeout_s: float = 60.0
    ) -> AsyncEngineClient:
        """Connect to the core at `endpoint`, waiting for it to come up."""
        return cls(await asyncio.to_thread(Link, endpoint, connect_timeout_s, silence_timeout_s))

    @property
    def info(self) -> Welcome:
        return self._link.info

    async def generate(
        self,
        requests: Sequence[Request],
        *,
        tokenizer_hash: str,
        grammars: Mapping[str, bytes],
    ) -> AsyncIterator[Output]:
        """Submit a burst at the first step and yield its outputs; see Engine.generate.

        Leaving the loop early cancels what is left when the iterator is closed: use
        `contextlib.aclosing` to have it done at once. So does cancelling the task.
        """
        check_burst(requests, grammars)
        if not requests:
            return
        connection = await asyncio.to_thread(self._link.connection)
        loop = asyncio.get_running_loop()
        ready: asyncio.Queue[list[Output] | EngineError] = asyncio.Queue()

        def put(item: list[Output] | EngineError) -> None:
            try:
                loop.call_soon_threadsafe(ready.put_nowait, item)
            except RuntimeError:
                pass  # The loop has been closed: nobody waits any more.

        left = {request.request_id for request in requests}
        connection.submit(Burst(list(left), grammars, put, put), requests, tokenizer_hash)
        try:
            while left:
                item = await ready.get()
                if isinstance(item, EngineError):
                    left.clear()
                    raise item
                for output in item:
                    if output.ends_request:
                        left.discard(output.request_id)
                    yield output
        finally:
            if left:
                connection.cancel(list(left))

    async def cancel(self, request_ids: Sequence[str]) -> None:
        self._link.current().cancel(request_ids)

    async def stats(self, timeout_s: float = 5.0) -> EngineStats:
        connection = await asyncio.to_thread(self._link.connection)
        answer: concurrent.futures.Future[EngineStats] = connection.ping()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(answer), timeout_s)
        except TimeoutError:
            connection.forget(answer)
            raise unavailable(f"the engine did not answer within {timeout_s:g} s") from None

    async def close(self) -> None:
        await asyncio.to_thread(self._link.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.close()
