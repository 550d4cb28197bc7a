"""The bursts that wait for outputs, on the client's side of an engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from .errors import EngineError, EngineReason
from .protocol import Output, Rejected, Request


class Burst:
    """The requests of one generate call and where their outputs go.

    `deliver` and `fail` are called on the thread that reads from the engine; `fail` comes last.
    """

    def __init__(
        self,
        request_ids: Sequence[str],
        grammars: Mapping[str, bytes],
        deliver: Callable[[list[Output]], None],
        fail: Callable[[EngineError], None],
    ) -> None:
        self.request_ids = list(request_ids)
        self.grammars = grammars
        self.deliver = deliver
        self.fail = fail


def check_burst(requests: Sequence[Request], grammars: Mapping[str, bytes]) -> None:
    """Raise EngineError when a burst can't be sent: double ids, a grammar without its table."""
    if len({request.request_id for request in requests}) != len(requests):
        raise EngineError(EngineReason.MESSAGE_INVALID, "a burst holds a request id twice")
    for request in requests:
        if request.grammar is not None and request.grammar not in grammars:
            raise EngineError(
                EngineReason.GRAMMAR_MISSING,
                f"request {request.request_id} names a grammar whose table was not given",
            )


class BurstTable:
    """Bursts by the ids of their unfinished requests. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bursts: dict[str, Burst] = {}

    def __len__(self) -> int:
        return len(self._bursts)

    def register(self, burst: Burst) -> None:
        """Enter a burst; EngineError when one of its ids is in use, and nothing is entered."""
        with self._lock:
            for request_id in burst.request_ids:
                if request_id in self._bursts:
                    raise EngineError(
                        EngineReason.MESSAGE_INVALID, f"request id {request_id} is in use"
                    )
            self._bursts.update(dict.fromkeys(burst.request_ids, burst))

    def unfinished(self, request_ids: Iterable[str] | None = None) -> list[str]:
        """Those of `request_ids` (None: of all) that wait for outputs."""
        with self._lock:
            if request_ids is None:
                return list(self._bursts)
            return [request_id for request_id in request_ids if request_id in self._bursts]

    def hand_out(self, outputs: Iterable[Output]) -> None:
        """Give each output to its burst; what nobody waits for is passed over."""
        shares: dict[int, tuple[Burst, list[Output]]] = {}
        with self._lock:
            for output in outputs:
                burst = self._bursts.get(output.request_id)
                if burst is None:
                    continue
                shares.setdefault(id(burst), (burst, []))[1].append(output)
                if output.ends_request:
                    del self._bursts[output.request_id]
        for burst, share in shares.values():
            burst.deliver(share)

    def table(self, grammar: str) -> bytes | None:
        """The table of a grammar that a waiting burst brought along."""
        with self._lock:
            for burst in self._bursts.values():
                table = burst.grammars.get(grammar)
                if table is not None:
                    return table
        return None

    def reject(self, rejected: Rejected) -> None:
        """Fail the bursts that a Rejected names."""
        error = error_of(rejected)
        with self._lock:
            found = [self._bursts.pop(i) for i in rejected.request_ids if i in self._bursts]
        for burst in {id(burst): burst for burst in found}.values():
            burst.fail(error)

    def fail_all(self, error: EngineError) -> None:
        with self._lock:
            bursts = {id(burst): burst for burst in self._bursts.values()}.values()
            self._bursts = {}
        for burst in bursts:
            burst.fail(error)


def error_of(rejected: Rejected) -> EngineError:
    """The error that a Rejected stands for."""
    try:
        reason = EngineReason(rejected.reason)
    except ValueError:
        reason = EngineReason.ENGINE_ERROR
    return EngineError(reason, rejected.message)
