"""The core's side of the wire: a ROUTER socket, served by the thread that calls `serve`."""

from __future__ import annotations

import collections
import logging
import os
import socket
import threading
import time

import zmq

from .errors import EngineError, EngineReason
from .protocol import (
    MAX_MESSAGE_BYTES,
    CoreMessage,
    Outputs,
    Rejected,
    Submit,
    decode_client,
    encode,
)
from .step_loop import StepLoop

_log = logging.getLogger(__name__)

# Steps that a client may lag behind before it counts as gone.
_SEND_HWM = 4096
_FRAMES_AT_ONCE = 256
_MAX_CUT_OFF = 1024
# How long a step may hold up the end once the owner is gone or the drain is over.
_LAST_WAIT_S = 10.0


class EngineServer:
    """Moves messages between clients and a step loop; owns the socket and the loop's thread."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.SNDHWM, _SEND_HWM)
        self._router.setsockopt(zmq.RCVHWM, 1000)
        self._router.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._router.setsockopt(zmq.LINGER, 500)
        try:
            self._router.bind(endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise EngineError(
                EngineReason.CONFIG_INVALID, f"can't listen on {endpoint}: {error}"
            ) from None
        self.endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._outbox: collections.deque[tuple[bytes, CoreMessage]] = collections.deque()
        self._cut_off: collections.OrderedDict[bytes, None] = collections.OrderedDict()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._failure: BaseException | None = None

    @property
    def signal_fd(self) -> int:
        """For `signal.set_wakeup_fd`: a byte of a signal's number ends `serve` in good order."""
        return self._wake_in.fileno()

    def send(self, messages: list[tuple[bytes, CoreMessage]]) -> None:
        """Queue messages; any thread. Bounded by the loop's own limits on requests."""
        self._outbox.extend(messages)
        self._wake(b"\0")

    def _wake(self, byte: bytes) -> None:
        try:
            self._wake_in.send(byte)
        except OSError:
            pass  # Full: a wake-up is due anyhow. Closed: nobody is left to wake.

    def serve(self, loop: StepLoop, lifeline: int | None = None) -> bool:
        """Serve until a signal arrives, the lifeline closes or the loop fails.

        Returns True when the loop ended by itself and every answer was handed to the socket; False
        when it had to be left in the middle of a step. Raises what the loop raised.
        """
        thread = threading.Thread(
            target=self._run_loop, args=(loop,), name="step-loop", daemon=True
        )
        thread.start()
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._wake_out.fileno(), zmq.POLLIN)
        if lifeline is not None:
            poller.register(lifeline, zmq.POLLIN)
        leave_at: float | None = None
        while thread.is_alive() and (leave_at is None or time.monotonic() < leave_at):
            timeout = None if leave_at is None else 100
            events = dict(poller.poll(timeout))
            if self._wake_out.fileno() in events and self._signalled():
                leave_at = leave_at or time.monotonic() + loop.shutdown_timeout_s + _LAST_WAIT_S
                loop.stop(
                    EngineError(EngineReason.ENGINE_UNAVAILABLE, "the engine is shutting down")
                )
            if lifeline is not None and lifeline in events and not os.read(lifeline, 64):
                _log.info("the owner is gone: the engine ends")
                return False
            if self._router in events:
                self._receive(loop)
            self._flush(loop)
        self._flush(loop)
        if self._failure is not None:
            raise self._failure
        return not thread.is_alive()

    def close(self) -> None:
        self._context.destroy(linger=500)
        self._wake_in.close()
        self._wake_out.close()

    def _run_loop(self, loop: StepLoop) -> None:
        try:
            loop.run()
        except BaseException as error:
            self._failure = error
        finally:
            self._wake(b"\0")

    def _signalled(self) -> bool:
        """Empty the wake-up socket; True if a signal was among it."""
        signalled = False
        try:
            while data := self._wake_out.recv(4096):
                signalled = signalled or any(data)
        except BlockingIOError:
            pass
        return signalled

    def _receive(self, loop: StepLoop) -> None:
        for _ in range(_FRAMES_AT_ONCE):
            try:
                client, *frames = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if client in self._cut_off:
                del self._cut_off[client]
                self._answer(
                    client,
                    EngineReason.ENGINE_UNAVAILABLE,
                    "this client read too slowly: its requests were cancelled",
                )
                continue
            try:
                if len(frames) != 1:
                    raise EngineError(
                        EngineReason.MESSAGE_INVALID, f"a message is one frame, not {len(frames)}"
                    )
                message = decode_client(frames[0])
            except EngineError as error:
                self._answer(client, error.reason, str(error))
                continue
            if not loop.post(client, message, len(frames[0])):
                ids = (
                    [r.request_id for r in message.requests] if isinstance(message, Submit) else []
                )
                self._answer(
                    client, EngineReason.OVERLOADED, "too many messages wait: retry later", ids
                )

    def _answer(
        self, client: bytes, reason: EngineReason, message: str, ids: list[str] | None = None
    ) -> None:
        self._outbox.append((client, Rejected(reason, message, ids or [])))

    def _flush(self, loop: StepLoop) -> None:
        while self._outbox:
            client, message = self._outbox.popleft()
            try:
                self._router.send_multipart((client, encode(message)), zmq.NOBLOCK)
            except zmq.Again:
                if client not in self._cut_off:
                    _log.warning("a client reads too slowly: its requests are cancelled")
                    self._cut_off[client] = None
                    if len(self._cut_off) > _MAX_CUT_OFF:
                        self._cut_off.popitem(last=False)
                loop.client_gone(client)
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                if isinstance(message, Outputs):
                    loop.client_gone(client)
