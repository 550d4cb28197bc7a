"""`pagemill up`: server, engine, worker and API on one machine, without containers."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import say
from .exit_status import ExitStatus
from .options import EngineEndpoint, Model, RedisUrl

if TYPE_CHECKING:
    from ..child import Child

_LOOK_S = 0.5
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_HEALTHY_S = 60.0
_MAX_FAILURES = 8


def up(
    state: Annotated[
        Path | None, typer.Option(help="Keep pages, records and schemas here between runs.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Of the API; 0 takes a free one.")] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=256, help="Bursts that are worked on at once.")
    ] = 4,
    redis_url: RedisUrl = None,
    engine: EngineEndpoint = None,
    model: Model = None,
) -> None:
    """Start the whole stack, print its addresses as a line of JSON, and run until Ctrl-C.

    A Redis or an engine that option or environment name is used as it is; the rest is started, and
    started again when it dies. All of it ends with the command.
    """
    from ..config import load_settings
    from ..stack import ApiProcess, EmbeddedRedis, EngineProcess, WorkerProcess

    if redis_url is not None and state is not None:
        raise typer.BadParameter("--state is for the embedded server, leave --redis-url out")
    settings = load_settings(redis_url=redis_url, engine_endpoint=engine, model=model, port=port)
    given = settings.model_fields_set
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    with contextlib.ExitStack() as stack:
        kept: list[_Kept] = []

        def start(child: Child) -> None:
            say(f"starting the {child.name}")
            stack.enter_context(child)
            kept.append(_Kept(child))

        if "redis_url" not in given or state is not None:
            server = EmbeddedRedis(state)
            start(server)
            settings = settings.model_copy(update={"redis_url": server.url})
        if "engine_endpoint" not in given:
            _have_model(settings.model)
            core = EngineProcess(model=settings.model)
            start(core)
            settings = settings.model_copy(update={"engine_endpoint": core.endpoint})
        start(WorkerProcess(settings, concurrency=concurrency, options=["--pool", "threads"]))
        api = ApiProcess(settings, port=settings.port)
        start(api)
        ready = {"event": "ready", "url": api.url, "redis_url": settings.redis_url}
        typer.echo(json.dumps({**ready, "engine": settings.engine_endpoint}))
        say(f"console and API: {api.url}   (Ctrl-C ends everything)")
        while not stop.wait(_LOOK_S):
            for each in kept:
                each.look()
    raise typer.Exit(ExitStatus.OK)


def _have_model(name: str) -> None:
    """Fetch the default model when it isn't here; others have to be."""
    from pagemill.engine import store
    from pagemill.engine.errors import EngineError

    try:
        store.resolve(name)
    except EngineError:
        if name != store.DEFAULT_MODEL:
            raise
        store.pull(progress=say)


class _Kept:
    """Starts a process again when it has died, after pauses that double."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._started = time.monotonic()
        self._failures = 0
        self._not_before = 0.0

    def look(self) -> None:
        """Start the process if it isn't running; Refused once that has failed too often."""
        from ..reason import Refused

        now = time.monotonic()
        if self._child.is_running() or now < self._not_before:
            return
        if self._not_before == 0.0:
            if now - self._started >= _HEALTHY_S:
                self._failures = 0
            pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self._failures)
            say(f"the {self._child.name} has ended ({self._child.tail()[-300:]}); starts again")
            self._failures += 1
            self._not_before = now + pause
            return
        try:
            self._child.start()
            self._not_before = 0.0
        except Refused:
            if self._failures >= _MAX_FAILURES:
                raise
            self._not_before = 0.0
        self._started = time.monotonic()
