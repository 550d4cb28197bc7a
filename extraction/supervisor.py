"""Keeps one child process: no longer than its owner, or alive until it is told to stop.

`python -I -S supervisor.py [OPTIONS] -- COMMAND...` starts COMMAND in a process group of its own
and ends the whole group when it is told to stop (SIGTERM, SIGINT, SIGHUP are passed on to the
command) or when the command ends. Standard library only, so that it starts in milliseconds and
without the packages of the owner.

With an owner: `--lifeline FD` is a pipe whose end means that the owner died; then the private
`--folder` goes too. The command's pid is written to the pipe `--status`. With `--restart` a command
that ends by itself is started again, after pauses that double; exit status 0 and 2 (it was used
wrongly) end the supervisor too.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
# A command that has run for so long was well: its next end is paused for shortly again.
_HEALTHY_S = 60.0
_USAGE = 2
_INTERRUPTED = 130


def _die_with_parent() -> None:
    # Covers a kill -9 of the supervisor itself; Linux only, elsewhere the lifeline has to do.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Supervisor:
    """One command under watch. `lifeline` and `status` are -1 where there is no owner."""

    def __init__(
        self, command: list[str], *, lifeline: int = -1, status: int = -1, grace_s: float = 0.0
    ) -> None:
        self._command = command
        self._lifeline = lifeline
        self._status = status
        self._grace_s = grace_s
        self._signals: list[int] = []
        self.orphaned = False
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._take)

    def run(self) -> int:
        """Run the command once, until it ends, is to stop, or is orphaned; its exit status."""
        child = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            pass_fds=(self._lifeline,) if self._lifeline >= 0 else (),
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        if self._status >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._status, f"{child.pid}\n".encode())
            os.close(self._status)
            self._status = -1
        while child.poll() is None and not self._stopping():
            self._wait(None)
        self._end(child)
        code = child.returncode
        return code if code >= 0 else 128 - code

    def run_again(self) -> int:
        """Run the command again and again until it is to stop; the exit status of the last run."""
        pause = _FIRST_PAUSE_S
        while True:
            started = time.monotonic()
            code = self.run()
            seconds = time.monotonic() - started
            if signal.SIGINT in self._signals:
                return _INTERRUPTED  # Celery says 1, as if it had failed
            if self._stopping() or code in (0, _USAGE):
                return code
            if seconds >= _HEALTHY_S:
                pause = _FIRST_PAUSE_S
            event = {"event": "started_again", "level": "error", "exit_status": code}
            event |= {"after_s": round(seconds, 1), "pause_s": pause}
            print(json.dumps(event), file=sys.stderr, flush=True)
            until = time.monotonic() + pause
            while not self._stopping() and (left := until - time.monotonic()) > 0:
                self._wait(left)
            if self._stopping():
                return code
            pause = min(_LONGEST_PAUSE_S, 2 * pause)

    def _take(self, number: int, frame: object) -> None:
        # A terminal that is gone means the end; to Celery SIGHUP would mean a restart.
        self._signals.append(signal.SIGTERM if number == signal.SIGHUP else number)

    def _stopping(self) -> bool:
        return bool(self._signals) or self.orphaned

    def _wait(self, timeout_s: float | None) -> None:
        """Wait for a signal, the end of the child or of the owner."""
        watched = [self._woken] + ([self._lifeline] if self._lifeline >= 0 else [])
        ready, _, _ = select.select(watched, [], [], timeout_s)
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
        self.orphaned = self.orphaned or self._lifeline in ready

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Pass the signals on, wait (`grace_s`, without one as long as it takes), end the group."""
        deadline = time.monotonic() + self._grace_s if self._grace_s > 0 else None
        if self.orphaned:
            self._signals.append(signal.SIGTERM)
        passed = 0
        while child.poll() is None:
            # The leader alone is asked: it knows how to end its own children in order. A second
            # signal means something of its own to some commands.
            for number in self._signals[passed:]:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(number)
                passed += 1
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            ready, _, _ = select.select([self._woken], [], [], left)
            if ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4096)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        # As the first process of a container it inherits what the group leaves.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def main() -> int:
    parser = argparse.ArgumentParser(prog="supervisor")
    parser.add_argument("--lifeline", type=int, default=-1)
    parser.add_argument("--status", type=int, default=-1)
    parser.add_argument("--grace", type=float, default=0.0, help="seconds; 0: no limit")
    parser.add_argument("--folder")
    parser.add_argument("--restart", action="store_true")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    supervisor = Supervisor(
        options.command,
        lifeline=options.lifeline,
        status=options.status,
        grace_s=options.grace,
    )
    try:
        code = supervisor.run_again() if options.restart else supervisor.run()
    except OSError as error:
        print(f"{options.command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    if supervisor.orphaned and options.folder is not None:
        shutil.rmtree(options.folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
