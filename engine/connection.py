"""One connection of a client to an engine core: a socket, the thread that owns it, the bursts.

A connection is made once and dies once. Whatever ends it (the core is gone, restarted or silent,
a frame that can't be read) fails everything that waits on it with one EngineError; the clients
make a new one at their next call.

The thread owns the ZeroMQ socket and context. Callers reach it through a deque and a wake-up
byte; what comes back goes to the `deliver` and `fail` of each burst, on the thread.
"""

from __future__ import annotations

import collections
import concurrent.futures
import os
import socket
import threading
import time
from collections.abc import Sequence

import zmq
from zmq.utils.monitor import recv_monitor_message

from .bursts import Burst, BurstTable, error_of
from .endpoint import check_form, check_private
from .errors import EngineError, EngineReason
from .protocol import (
    MAX_MESSAGE_BYTES,
    Cancel,
    ClientMessage,
    EngineStats,
    GrammarTable,
    Hello,
    NeedGrammar,
    Outputs,
    Ping,
    Pong,
    Rejected,
    Request,
    Submit,
    Welcome,
    decode_core,
    encode,
)

_PING_INTERVAL_S = 10.0
_HELLO_INTERVAL_S = 0.5
_MAX_QUEUED_MESSAGES = 4096


def unavailable(message: str) -> EngineError:
    return EngineError(EngineReason.ENGINE_UNAVAILABLE, message)


class Connection:
    """A live connection; thread-safe. The constructor returns when the core has welcomed it."""

    def __init__(self, endpoint: str, connect_timeout_s: float, silence_timeout_s: float) -> None:
        check_form(endpoint)
        check_private(endpoint)
        self._endpoint = endpoint
        self._silence_timeout_s = silence_timeout_s
        self._ping_interval_s = min(_PING_INTERVAL_S, silence_timeout_s / 3)
        self._lock = threading.Lock()  # guards _pings, _outbox, _error
        self._bursts = BurstTable()
        self._pings: dict[int, concurrent.futures.Future[EngineStats]] = {}
        self._outbox: collections.deque[bytes] = collections.deque()
        self._error: EngineError | None = None
        self._closing = False
        self._nonce = 0
        self._welcome: concurrent.futures.Future[Welcome] = concurrent.futures.Future()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="engine-connection", daemon=True)
        self._thread.start()
        try:
            self.info = self._welcome.result(connect_timeout_s)
        except concurrent.futures.TimeoutError:
            self.close()
            raise unavailable(
                f"no engine answered at {endpoint} within {connect_timeout_s:g} s"
            ) from None

    @property
    def alive(self) -> bool:
        return self._error is None

    def submit(self, burst: Burst, requests: Sequence[Request], tokenizer_hash: str) -> None:
        """Send the burst as one message; its outputs come until each request has finished."""
        frame = encode(Submit(tokenizer_hash=tokenizer_hash, requests=list(requests)))
        if len(frame) > MAX_MESSAGE_BYTES:
            raise EngineError(
                EngineReason.MESSAGE_INVALID,
                f"a burst of {len(frame)} bytes is over {MAX_MESSAGE_BYTES}: split it",
            )
        with self._lock:
            self._check()
            self._bursts.register(burst)
            self._outbox.append(frame)
        self._wake()

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Ask the core to end requests; their last outputs still come. No error when it is gone."""
        known = self._bursts.unfinished(request_ids)
        with self._lock:
            if self._error is not None or not known:
                return
            self._outbox.append(encode(Cancel(known)))
        self._wake()

    def ping(self) -> concurrent.futures.Future[EngineStats]:
        """Send a Ping; the future holds the stats of its answer, or an EngineError."""
        answer: concurrent.futures.Future[EngineStats] = concurrent.futures.Future()
        with self._lock:
            self._check()
            self._pings[self._next_nonce()] = answer
            self._outbox.append(encode(Ping(self._nonce)))
        self._wake()
        return answer

    def forget(self, answer: concurrent.futures.Future[EngineStats]) -> None:
        """Stop waiting for a ping's answer."""
        with self._lock:
            for nonce in [n for n, waiting in self._pings.items() if waiting is answer]:
                del self._pings[nonce]

    def close(self) -> None:
        """End the thread and fail what still waits."""
        self._closing = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _next_nonce(self) -> int:
        self._nonce += 1
        return self._nonce

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if len(self._outbox) >= _MAX_QUEUED_MESSAGES:
            raise EngineError(EngineReason.OVERLOADED, "too many messages wait to be sent")

    def _wake(self) -> None:
        try:
            self._wake_in.send(b"\0")
        except (BlockingIOError, OSError):
            pass  # Full: a wake-up is due anyhow. Closed: nobody is left to wake.

    # From here on: the thread.

    def _run(self) -> None:
        error = unavailable("the connection was closed")
        try:
            context = zmq.Context()
            try:
                self._serve(context)
            finally:
                context.destroy()
        except EngineError as failure:
            error = failure
        except Exception as failure:
            error = unavailable(f"the connection to the engine failed: {failure!r}")
        finally:
            self._die(error)

    def _serve(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        dealer = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.LINGER, 200)
        dealer.setsockopt(zmq.SNDHWM, 1000)
        dealer.setsockopt(zmq.RCVHWM, 10000)
        dealer.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        monitor = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        dealer.connect(self._endpoint)
        poller = zmq.Poller()
        poller.register(monitor, zmq.POLLIN)
        poller.register(self._wake_out.fileno(), zmq.POLLIN)
        heard = sent = time.monotonic()
        self._post(Hello(client=f"{socket.gethostname()}:{os.getpid()}"))
        while not self._closing:
            poller.register(dealer, zmq.POLLIN | (zmq.POLLOUT if self._outbox else 0))
            idle = not self._busy()
            events = dict(poller.poll(self._wait_ms()))
            now = time.monotonic()
            if self._wake_out.fileno() in events:
                self._drain_wakes()
            if monitor in events:
                recv_monitor_message(monitor)
                if self._welcome.done():
                    # What it sent before it went is here already, and may be all that was asked.
                    self._receive(dealer)
                    raise unavailable(f"the engine at {self._endpoint} has gone away")
            if idle:
                heard = now
            if events.get(dealer, 0) & zmq.POLLIN:
                heard = now
                self._receive(dealer)
            if self._busy() and now - heard > self._silence_timeout_s:
                raise unavailable(f"the engine was silent for {self._silence_timeout_s:g} s")
            if now - sent >= self._beat_s():
                sent = now
                self._beat()
            self._flush(dealer)
        if len(self._bursts):
            self._post(Cancel(self._bursts.unfinished()))
        self._flush(dealer)

    def _busy(self) -> bool:
        return bool(len(self._bursts) or self._pings)

    def _beat_s(self) -> float:
        return self._ping_interval_s if self._welcome.done() else _HELLO_INTERVAL_S

    def _beat(self) -> None:
        if not self._welcome.done():
            # A core that was just starting or ending may have lost the first one.
            self._post(Hello(client=f"{socket.gethostname()}:{os.getpid()}"))
        elif self._busy():
            with self._lock:
                self._outbox.append(encode(Ping(self._next_nonce())))

    def _wait_ms(self) -> int | None:
        if self._welcome.done() and not self._busy():
            return None
        return max(1, int(self._beat_s() * 1000))

    def _drain_wakes(self) -> None:
        try:
            while self._wake_out.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _post(self, message: ClientMessage) -> None:
        with self._lock:
            self._outbox.append(encode(message))

    def _flush(self, dealer: zmq.Socket[bytes]) -> None:
        while self._outbox:
            try:
                dealer.send(self._outbox[0], zmq.NOBLOCK)
            except zmq.Again:
                return
            with self._lock:
                self._outbox.popleft()

    def _receive(self, dealer: zmq.Socket[bytes]) -> None:
        while True:
            try:
                frames = dealer.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            message = decode_core(frames[-1])
            if isinstance(message, Outputs):
                self._bursts.hand_out(message.outputs)
            elif isinstance(message, NeedGrammar):
                self._send_grammars(message.hashes)
            elif isinstance(message, Pong):
                self._answer(message)
            elif isinstance(message, Rejected):
                self._reject(message)
            elif not self._welcome.done():
                self._welcome.set_result(message)
            else:
                self._check_epoch(message.epoch)

    def _check_epoch(self, epoch: str) -> None:
        if self._welcome.done() and epoch != self._welcome.result().epoch:
            raise unavailable("the engine has restarted")

    def _send_grammars(self, hashes: list[str]) -> None:
        for wanted in hashes:
            table = self._bursts.table(wanted)
            if table is not None:  # Else its requests were cancelled meanwhile.
                self._post(GrammarTable(hash=wanted, table=table))

    def _answer(self, pong: Pong) -> None:
        self._check_epoch(pong.epoch)
        with self._lock:
            answer = self._pings.pop(pong.nonce, None)
        if answer is not None:
            answer.set_result(pong.stats)

    def _reject(self, rejected: Rejected) -> None:
        if not rejected.request_ids:
            raise error_of(rejected)
        self._bursts.reject(rejected)

    def _die(self, error: EngineError) -> None:
        with self._lock:
            self._error = error
            pings = list(self._pings.values())
            self._pings.clear()
            self._outbox.clear()
        if not self._welcome.done():
            self._welcome.set_exception(error)
        self._bursts.fail_all(error)
        for ping in pings:
            ping.set_exception(error)
        self._wake_in.close()
        self._wake_out.close()
