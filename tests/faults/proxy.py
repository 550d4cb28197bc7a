"""A wire between two unix sockets that can be cut, held, slowed down, and lose connections."""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path


class Proxy:
    """Passes bytes from its own socket to `target`, as long as nothing is done to it.

    `hold()` swallows nothing: what is sent meanwhile arrives after `release()`, late. `cut()` ends
    the connections that are open. `delay_s` is slept before each piece, `loss` is the chance that a
    piece ends its connection instead.
    """

    def __init__(self, target: Path, name: str, seed: int = 0) -> None:
        self._target = target
        self._folder = Path(tempfile.mkdtemp(prefix="pagemill-"))
        self.path = self._folder / name
        self._chance = random.Random(seed)
        self._open = threading.Event()
        self._open.set()
        self._reverse_open = threading.Event()
        self._reverse_open.set()
        self.delay_s = 0.0
        self.loss = 0.0
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, *, answers_only: bool = False) -> None:
        """Let nothing through, or no answers."""
        self._reverse_open.clear()
        if not answers_only:
            self._open.clear()

    def release(self) -> None:
        self._open.set()
        self._reverse_open.set()

    def cut(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.release()
        self.cut()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(str(self._target))
            except OSError:
                near.close()
                far.close()
                continue
            with self._lock:
                self._sockets |= {near, far}
            for ends in ((near, far, self._open), (far, near, self._reverse_open)):
                threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_open: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                is_open.wait()
                if self.delay_s:
                    time.sleep(self._chance.uniform(0.5, 1.5) * self.delay_s)
                if self.loss and self._chance.random() < self.loss:
                    break
                sink.sendall(piece)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._sockets.discard(one)
            one.close()
