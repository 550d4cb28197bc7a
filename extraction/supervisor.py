"""Keeps one child process alive no longer than its owner.

`python -I -S supervisor.py --lifeline FD --status FD --grace S --folder DIR -- COMMAND...` starts
COMMAND in a process group of its own, writes its pid to the status pipe, and ends the whole group
when SIGTERM arrives, the lifeline closes or the command ends. The lifeline's end means
that the owner died, and then the private folder goes too. Standard library only, so that it starts
in milliseconds and without the packages of the owner.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    # Covers a kill -9 of the supervisor itself; Linux only, elsewhere the lifeline has to do.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _end(child: subprocess.Popen[bytes], grace_s: float) -> None:
    if child.poll() is None:
        # The leader alone is asked first: it knows how to end its own children in order.
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    _signal_group(child.pid, signal.SIGKILL)
    child.wait()


def supervise(command: list[str], lifeline: int, status: int, grace_s: float, folder: str) -> int:
    """Run `command` until it ends, is to stop, or is orphaned; its exit status (128 + signal)."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    stopping = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda n, _: stopping.append(n))
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        pass_fds=(lifeline,),
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )
    with contextlib.suppress(BrokenPipeError):
        os.write(status, f"{child.pid}\n".encode())
    os.close(status)
    orphaned = False
    while child.poll() is None and not stopping:
        ready, _, _ = select.select([lifeline, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        if lifeline in ready:
            orphaned = True
            break
    _end(child, grace_s)
    if orphaned:
        shutil.rmtree(folder, ignore_errors=True)
    code = child.returncode
    return code if code >= 0 else 128 - code


def main() -> int:
    parser = argparse.ArgumentParser(prog="supervisor")
    parser.add_argument("--lifeline", type=int, required=True)
    parser.add_argument("--status", type=int, required=True)
    parser.add_argument("--grace", type=float, required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    try:
        return supervise(
            options.command, options.lifeline, options.status, options.grace, options.folder
        )
    except OSError as error:
        print(f"{options.command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
