"""A child process that ends with its owner, and says why when it doesn't start."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from .reason import Reason, Refused

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_TAIL_BYTES = 4096


def kept_alive(command: Sequence[str]) -> list[str]:
    """A command line that runs `command` and starts it again when it ends by itself."""
    return [sys.executable, "-I", "-S", str(_SUPERVISOR), "--restart", "--", *command]


class Child:
    """One supervised process with its output in files of a private folder (mode 0700).

    Subclasses give `command()` and `is_ready()`. The process ends when this object is stopped or
    collected with its owner: by exit, Ctrl-C or kill -9, since the supervisor watches a pipe that
    only the owner holds. `kill()` is for tests of exactly that; `start()` may be called again.
    """

    name = "process"
    grace_s = 5.0
    start_timeout_s = 60.0
    unavailable = Reason.INTERNAL_ERROR

    def __init__(self, *, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(environment or {})
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._folder: Path | None = None
        self.pid = 0

    def command(self, lifeline: int) -> Sequence[str]:
        """The command line; `lifeline` is a pipe that the process inherits."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether the process serves; called until true, or until it has ended."""
        raise NotImplementedError

    @property
    def folder(self) -> Path:
        """The private folder of this process: output files, sockets."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="pagemill-"))
        return self._folder

    @property
    def stdout_path(self) -> Path:
        return self.folder / "stdout.log"

    @property
    def stderr_path(self) -> Path:
        return self.folder / "stderr.log"

    def start(self) -> Self:
        """Start and wait until it serves; Refused(`unavailable`) carries the end of its stderr."""
        if self.is_running():
            raise RuntimeError(f"{self.name} is running already")
        self._release()
        lifeline, self._lifeline = os.pipe()
        status, status_w = os.pipe()
        arguments = [sys.executable, "-I", "-S", str(_SUPERVISOR)]
        arguments += ["--lifeline", str(lifeline), "--status", str(status_w)]
        arguments += ["--grace", str(self.grace_s), "--folder", str(self.folder)]
        arguments += ["--", *self.command(lifeline)]
        try:
            with self.stdout_path.open("wb") as out, self.stderr_path.open("wb") as err:
                self._supervisor = subprocess.Popen(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env={**os.environ, **self._environment},
                    pass_fds=(lifeline, status_w),
                    # Ctrl-C in a terminal reaches the owner alone, which then ends its children
                    # in order.
                    start_new_session=True,
                )
        finally:
            os.close(lifeline)
            os.close(status_w)
        with os.fdopen(status, "rb") as reader:
            self.pid = int(reader.readline() or b"0")
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            if not self.is_running():
                status = self._supervisor.returncode if self._supervisor is not None else None
                raise Refused(
                    self.unavailable,
                    f"the {self.name} didn't start (exit status {status})",
                    advice=self.tail(),
                )
            if self.is_ready():
                return
            if time.monotonic() > deadline:
                raise Refused(
                    self.unavailable,
                    f"the {self.name} isn't ready after {self.start_timeout_s:.0f} s",
                    advice=self.tail(),
                )
            time.sleep(0.02)

    def is_running(self) -> bool:
        return self._supervisor is not None and self._supervisor.poll() is None

    def tail(self) -> str:
        """The last lines that the process wrote to its stderr, for a message."""
        try:
            data = self.stderr_path.read_bytes()[-_TAIL_BYTES:]
        except OSError:
            return ""
        lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
        return " | ".join(lines[-5:])

    def kill(self) -> None:
        """kill -9 the process itself, as a crash would; waits until all of it is gone."""
        if self.pid and self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        if self._supervisor is not None:
            self._supervisor.wait(10)
        self._release()

    def stop(self) -> None:
        """End the process in order: it gets `grace_s` seconds, then SIGKILL. Idempotent."""
        if self._supervisor is not None:
            # A signal rather than a byte on the lifeline: the command reads the same pipe.
            self._supervisor.terminate()
            self._supervisor.wait(self.grace_s + 10)
        self._release()

    def close(self) -> None:
        """Stop and remove the private folder."""
        self.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _release(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        self._supervisor = None
        self.pid = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll `condition` until it holds (True) or the time is up (False)."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
