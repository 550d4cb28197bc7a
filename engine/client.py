"""Clients of an engine: the face that the rest of the product sees, and the one over ZeroMQ.

No torch behind this import. A client is made after a fork, never before one.
"""

from __future__ import annotations

import collections
import concurrent.futures
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from .bursts import Burst, check_burst
from .connection import Connection, unavailable
from .errors import EngineError
from .protocol import EngineStats, Output, Request, Welcome


class Engine(Protocol):
    """What completes prompts. Methods may be called from several threads."""

    @property
    def info(self) -> Welcome:
        """The engine as it last introduced itself."""

    def generate(
        self,
        requests: Sequence[Request],
        *,
        tokenizer_hash: str,
        grammars: Mapping[str, bytes],
    ) -> Iterator[Output]:
        """Submit a burst as one message and yield outputs until every request has finished.

        The burst is sent at once, not at the first `next`. `grammars` holds the table of each
        grammar that a request names, by hash. Closing the iterator cancels what is left.
        A request that can't be served ends with `finish == "error"`; what concerns the whole
        burst raises EngineError.
        """

    def cancel(self, request_ids: Sequence[str]) -> None:
        """End requests early; each still yields its last output, `finish == "cancelled"`."""

    def stats(self, timeout_s: float = 5.0) -> EngineStats:
        """A moment of the engine, answered by its step loop; EngineError when it is silent."""

    def close(self) -> None:
        """Let go of the engine; what still runs is cancelled."""


class OutputStream(Iterator[Output]):
    """The outputs of one burst as an iterator; closing it early cancels what is left.

    `put` takes lists of outputs or an error, from any thread; it keeps no reference to the stream,
    so that a stream nobody holds any more is closed.
    """

    def __init__(self, request_ids: Sequence[str]) -> None:
        self._left = set(request_ids)
        self._ready: collections.deque[Output] = collections.deque()
        self._queue: queue.SimpleQueue[list[Output] | EngineError] = queue.SimpleQueue()
        self.put: Callable[[list[Output] | EngineError], None] = self._queue.put

    def cancel(self, request_ids: list[str]) -> None:
        """How the burst's requests are cancelled; made by whoever feeds the stream."""
        raise NotImplementedError

    def __next__(self) -> Output:
        while not self._ready:
            if not self._left:
                raise StopIteration
            item = self._queue.get()
            if isinstance(item, EngineError):
                self._left.clear()
                raise item
            self._ready.extend(item)
        output = self._ready.popleft()
        if output.ends_request:
            self._left.discard(output.request_id)
        return output

    def close(self) -> None:
        left, self._left = list(self._left), set()
        self._ready.clear()
        if left:
            self.cancel(left)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class _RemoteStream(OutputStream):
    def __init__(self, connection: Connection, request_ids: Sequence[str]) -> None:
        super().__init__(request_ids)
        self._connection = connection

    def cancel(self, request_ids: list[str]) -> None:
        self._connection.cancel(request_ids)


class Link:
    """The current connection to an endpoint, made anew when the last one has died."""

    def __init__(self, endpoint: str, connect_timeout_s: float, silence_timeout_s: float) -> None:
        self._endpoint = endpoint
        self._connect_timeout_s = connect_timeout_s
        self._silence_timeout_s = silence_timeout_s
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._connection = self._connect()
        self.info = self._connection.info

    def _connect(self) -> Connection:
        return Connection(self._endpoint, self._connect_timeout_s, self._silence_timeout_s)

    def connection(self) -> Connection:
        """The live connection; reconnects when needed, EngineError(ENGINE_UNAVAILABLE)."""
        if os.getpid() != self._pid:
            raise unavailable("an engine client does not survive a fork: make it in the child")
        if self._connection.alive and not self._closed:
            return self._connection
        with self._lock:
            if self._closed:
                raise unavailable("the engine client is closed")
            if not self._connection.alive:
                self._connection = self._connect()
                self.info = self._connection.info
            return self._connection

    def current(self) -> Connection:
        """The last connection, dead or alive: what was submitted, was submitted there."""
        return self._connection

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._closed = True
            self._connection.close()


class EngineClient:
    """An engine in another process; see Engine. Every failure of transport is an EngineError
    with the reason ENGINE_UNAVAILABLE; the next call connects anew.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    @classmethod
    def connect(
        cls, endpoint: str, *, connect_timeout_s: float = 10.0, silence_timeout_s: float = 60.0
    ) -> EngineClient:
        """Connect to the core at `endpoint`, waiting for it to come up.

        While requests run, a core that is silent for `silence_timeout_s` counts as gone.
        """
        return cls(Link(endpoint, connect_timeout_s, silence_timeout_s))

    @property
    def info(self) -> Welcome:
        return self._link.info

    def generate(
        self,
        requests: Sequence[Request],
        *,
        tokenizer_hash: str,
        grammars: Mapping[str, bytes],
    ) -> OutputStream:
        check_burst(requests, grammars)
        connection = self._link.connection()
        stream = _RemoteStream(connection, [request.request_id for request in requests])
        if requests:
            burst = Burst([r.request_id for r in requests], grammars, stream.put, stream.put)
            connection.submit(burst, requests, tokenizer_hash)
        return stream

    def cancel(self, request_ids: Sequence[str]) -> None:
        self._link.current().cancel(request_ids)

    def stats(self, timeout_s: float = 5.0) -> EngineStats:
        connection = self._link.connection()
        answer = connection.ping()
        try:
            return answer.result(timeout_s)
        except concurrent.futures.TimeoutError:
            connection.forget(answer)
            raise unavailable(f"the engine did not answer within {timeout_s:g} s") from None

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()
