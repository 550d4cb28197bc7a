"""An engine inside the process that uses it: the same core and step loop, no sockets."""

from __future__ import annotations

import concurrent.futures
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from .bursts import Burst, BurstTable, check_burst
from .client import OutputStream
from .config import EngineConfig, set_thread_environment
from .connection import unavailable
from .core import EngineCore
from .errors import EngineError, EngineReason
from .protocol import (
    Cancel,
    CoreMessage,
    EngineStats,
    GrammarTable,
    NeedGrammar,
    Outputs,
    Ping,
    Pong,
    Rejected,
    Request,
    Submit,
    Welcome,
)
from .step_loop import StepLoop

_CLIENT = b"in-process"


class _LocalStream(OutputStream):
    def __init__(self, engine: InProcessEngine, request_ids: Sequence[str]) -> None:
        super().__init__(request_ids)
        self._engine = engine

    def cancel(self, request_ids: list[str]) -> None:
        self._engine.cancel(request_ids)


class InProcessEngine:
    """A core with its step loop on a thread of this process; see Engine.

    `start` loads the model, and so imports torch unless the executor is fake.
    """

    def __init__(self, core: EngineCore) -> None:
        self.info: Welcome = core.info
        self._bursts = BurstTable()
        self._pings: dict[int, concurrent.futures.Future[EngineStats]] = {}
        self._lock = threading.Lock()  # guards _pings, _nonce, _error
        self._nonce = 0
        self._error: EngineError | None = None
        self._loop = StepLoop(core, self._receive)
        self._thread = threading.Thread(target=self._run, name="step-loop", daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, config: EngineConfig) -> InProcessEngine:
        """Build a core by `config` and run it; EngineError: CONFIG_INVALID, MODEL_INVALID."""
        from .assembly import build_core

        set_thread_environment(config)
        # Its only client lives and dies with it, so silence says nothing.
        return cls(build_core(replace(config, client_timeout_s=math.inf)))

    def generate(
        self,
        requests: Sequence[Request],
        *,
        tokenizer_hash: str,
        grammars: Mapping[str, bytes],
    ) -> OutputStream:
        check_burst(requests, grammars)
        ids = [request.request_id for request in requests]
        stream = _LocalStream(self, ids)
        if not requests:
            return stream
        with self._lock:
            if self._error is not None:
                raise self._error
            self._bursts.register(Burst(ids, grammars, stream.put, stream.put))
        size = sum(len(request.token_ids) for request in requests)
        if not self._loop.post(_CLIENT, Submit(tokenizer_hash, list(requests)), size):
            self._bursts.reject(
                Rejected(EngineReason.OVERLOADED, "too many messages wait: retry later", ids)
            )
        return stream

    def cancel(self, request_ids: Sequence[str]) -> None:
        known = self._bursts.unfinished(request_ids)
        if known:
            self._loop.post(_CLIENT, Cancel(known), 0)

    def stats(self, timeout_s: float = 5.0) -> EngineStats:
        answer: concurrent.futures.Future[EngineStats] = concurrent.futures.Future()
        with self._lock:
            if self._error is not None:
                raise self._error
            self._nonce += 1
            nonce = self._nonce
            self._pings[nonce] = answer
        self._loop.post(_CLIENT, Ping(nonce), 0)
        try:
            return answer.result(timeout_s)
        except concurrent.futures.TimeoutError:
            raise unavailable(f"the engine did not answer within {timeout_s:g} s") from None
        finally:
            with self._lock:
                self._pings.pop(nonce, None)

    def close(self) -> None:
        self._loop.stop(unavailable("the engine was closed"))
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        error = unavailable("the engine was closed")
        try:
            self._loop.run()
        except Exception as failure:
            error = unavailable(f"the engine failed: {failure!r}")
        finally:
            with self._lock:
                self._error = error
                pings, self._pings = list(self._pings.values()), {}
            self._bursts.fail_all(error)
            for ping in pings:
                ping.set_exception(error)

    def _receive(self, messages: list[tuple[bytes, CoreMessage]]) -> None:
        for _, message in messages:
            if isinstance(message, Outputs):
                self._bursts.hand_out(message.outputs)
            elif isinstance(message, NeedGrammar):
                self._give_grammars(message.hashes)
            elif isinstance(message, Pong):
                with self._lock:
                    answer = self._pings.pop(message.nonce, None)
                if answer is not None:
                    answer.set_result(message.stats)
            elif isinstance(message, Rejected):
                self._bursts.reject(message)

    def _give_grammars(self, hashes: list[str]) -> None:
        for wanted in hashes:
            table = self._bursts.table(wanted)
            if table is not None:
                self._loop.post(_CLIENT, GrammarTable(wanted, table), len(table))
