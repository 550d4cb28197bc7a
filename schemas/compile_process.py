"""The compiling process seen from outside: started when needed, kept warm, killed when late."""

from __future__ import annotations

import contextlib
import enum
import fcntl
import json
import os
import selectors
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from .errors import SchemaReason, SchemaRefused

START_TIMEOUT_S = 60.0
MAX_FRAME = 256 * 1024 * 1024
PIPE_BYTES = 1 << 20
# The next schema finds the memory of the last one still mapped (glibc's settings, in bytes).
_KEPT_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
}


class Builder(enum.StrEnum):
    """Who makes the automaton of a schema; the tables are equal."""

    AUTO = "auto"  # Outlines where the regex is short, else the core
    OUTLINES = "outlines"  # as far as there is a regex
    CORE = "core"


@dataclass(frozen=True)
class Made:
    table: bytes
    states: int
    builder: str
    compile_ms: float


class _Late(Exception):
    """The process did not answer in time."""


class _Gone(Exception):
    """The process ended."""


class CompileProcess:
    """One child process, used by one thread at a time; the others wait their turn."""

    def __init__(self, builder: Builder = Builder.AUTO) -> None:
        self.builder = builder
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._memory = 0

    def compile(self, text: bytes, timeout_s: float, max_memory: int) -> Made:
        """Compile a schema's JSON text. SchemaRefused as the worker says, or for its limits."""
        with self._lock:
            self._start(max_memory)
            begin = time.monotonic()
            deadline = begin + timeout_s
            try:
                self._send(text, deadline)
                head = json.loads(self._receive(deadline))
                if "reason" in head:
                    reason = SchemaReason(head["reason"])
                    raise SchemaRefused(
                        reason, head["message"], at=head["at"], advice=head["advice"]
                    )
                table = self._receive(deadline)
            except _Late:
                self._kill()
                raise SchemaRefused(
                    SchemaReason.SCHEMA_COMPILE_TIMEOUT,
                    f"compiling takes over {timeout_s:g} s",
                    advice="lower the bounds, simplify patterns, or split the schema",
                ) from None
            except _Gone:
                self._kill()
                raise SchemaRefused(
                    SchemaReason.SCHEMA_TOO_LARGE,
                    f"compiling takes over {max_memory >> 20} MB",
                    advice="lower the bounds, simplify patterns, or split the schema",
                ) from None
            return Made(table, head["states"], head["builder"], (time.monotonic() - begin) * 1000)

    def forget(self) -> None:
        """Drop a child inherited over a fork, without touching the process."""
        if self._child is not None:
            for stream in (self._child.stdin, self._child.stdout):
                if stream is not None:
                    os.close(stream.fileno())
            self._child.returncode = 0  # not ours to wait for
            self._child.stdin = self._child.stdout = None

    def close(self) -> None:
        with self._lock:
            self._kill()

    def _start(self, max_memory: int) -> None:
        if self._child is not None and (
            self._child.poll() is not None or self._memory != max_memory
        ):
            self._kill()
        if self._child is not None:
            return
        # One thread: pools of numerical libraries would count against the address space. The
        # child finds its modules where this process does.
        environment = {
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            **_KEPT_MEMORY,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        self._child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pagemill.schemas.compile_worker",
                str(max_memory),
                self.builder,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
        )
        self._memory = max_memory
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                with contextlib.suppress(OSError, AttributeError):  # room for a whole table
                    fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            if self._receive(time.monotonic() + START_TIMEOUT_S) != b"ready":
                raise _Gone
        except (_Late, _Gone):
            self._kill()
            raise SchemaRefused(
                SchemaReason.SCHEMA_COMPILE_TIMEOUT,
                "the compiling process doesn't start",
                advice="check the machine's memory and the installation",
            ) from None

    def _kill(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()

    def _fd(self, name: str) -> int:
        stream = getattr(self._child, name)
        if stream is None:
            raise _Gone
        return int(stream.fileno())

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(fd, event)
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise _Late

    def _send(self, body: bytes, deadline: float) -> None:
        fd = self._fd("stdin")
        rest = memoryview(struct.pack(">I", len(body)) + body)
        while rest:
            self._wait(fd, selectors.EVENT_WRITE, deadline)
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise _Gone from None

    def _receive(self, deadline: float) -> bytes:
        (length,) = struct.unpack(">I", self._read(4, deadline))
        if length > MAX_FRAME:
            raise _Gone
        return self._read(length, deadline)

    def _read(self, count: int, deadline: float) -> bytes:
        fd = self._fd("stdout")
        parts = bytearray()
        while len(parts) < count:
            self._wait(fd, selectors.EVENT_READ, deadline)
            try:
                chunk = os.read(fd, count - len(parts))
            except BlockingIOError:
                continue
            if not chunk:
                raise _Gone
            parts += chunk
        return bytes(parts)
