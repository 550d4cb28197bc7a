"""Where an engine listens: a socket file that only its owner reaches, or a loopback port."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from .errors import EngineError, EngineReason

_MAX_IPC_PATH_BYTES = 107


def _refused(message: str) -> EngineError:
    return EngineError(EngineReason.CONFIG_INVALID, message)


def default_endpoint() -> str:
    """A socket in a folder of the user's own.

    `pagemill` in $XDG_RUNTIME_DIR, else `/tmp/pagemill-UID`: directly below a folder whose sticky
    bit keeps others from moving it away.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return f"ipc://{runtime}/pagemill/engine.sock"
    return f"ipc://{tempfile.gettempdir()}/pagemill-{os.geteuid()}/engine.sock"


def check_form(endpoint: str) -> None:
    """Raise EngineError(CONFIG_INVALID) for what can't be an engine's address, wherever it is."""
    if endpoint.startswith("tcp://"):
        try:
            parts = urlsplit(endpoint)
            complete = bool(parts.hostname) and parts.port is not None and not parts.path
        except ValueError:
            complete = False
        if not complete:
            raise _refused(f"the endpoint {endpoint} isn't tcp://HOST:PORT")
        return
    if not endpoint.startswith("ipc://"):
        raise _refused(f"the endpoint {endpoint} is neither ipc:///PATH nor tcp://HOST:PORT")
    path = endpoint.removeprefix("ipc://")
    if not os.path.isabs(path):
        raise _refused(f"the socket path {path} must be absolute")
    if len(os.fsencode(path)) > _MAX_IPC_PATH_BYTES:
        raise _refused(f"the socket path has more than {_MAX_IPC_PATH_BYTES} bytes: {path}")


def check_private(endpoint: str) -> None:
    """Raise EngineError(CONFIG_INVALID) when others may have put the socket where it is.

    Whoever may write to the folder could listen there in the engine's place and be sent pages. A
    folder that isn't there yet says nothing.
    """
    if endpoint.startswith("ipc://"):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            _check_folder(Path(endpoint.removeprefix("ipc://")).parent)


@contextlib.contextmanager
def claim(endpoint: str) -> Iterator[None]:
    """Hold an endpoint for this process; EngineError(CONFIG_INVALID) when it can't be had.

    For `ipc://PATH` the folder is made with mode 0700 if need be, and refused when others may
    enter it; a socket file that nobody answers on is removed, now and in the end.
    """
    check_form(endpoint)
    if endpoint.startswith("tcp://"):
        _check_loopback(endpoint)
        yield
        return
    path = Path(endpoint.removeprefix("ipc://"))
    _make_private(path.parent)
    # The lock outlives no process, so a file without a holder is stale.
    try:
        lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _refused(f"the socket {path} can't be made: {error.strerror}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise _refused(f"another engine serves {endpoint}") from None
        if path.exists() and _answers(path):
            raise _refused(f"another process serves {endpoint}")
        path.unlink(missing_ok=True)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _check_loopback(endpoint: str) -> None:
    host = urlsplit(endpoint).hostname or ""
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise _refused(f"{endpoint}: plain tcp is served on loopback only")


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_folder(folder)
    except OSError as error:
        raise _refused(f"the socket's folder {folder} can't be used: {error.strerror}") from None


def _check_folder(folder: Path) -> None:
    status = folder.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise _refused(f"the socket's folder {folder} must be yours alone (mode 0700)")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True
