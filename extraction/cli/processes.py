"""`pagemill serve|worker|engine|announce`: the processes of a stack, in the foreground."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from .options import EngineEndpoint, Model, RedisUrl

# What follows the command's own options goes to Celery or to the engine as it stands.
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes.")] = 1,
    redis_url: RedisUrl = None,
    engine: EngineEndpoint = None,
    model: Model = None,
) -> None:
    """Serve the REST and OpenAI-compatible API.

    Prints one line of JSON with its URL on stdout once it listens.
    """
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from ..config import load_settings

    settings = load_settings(
        host=host, port=port, redis_url=redis_url, engine_endpoint=engine, model=model
    )
    # The application is made from the environment, in this process or in several.
    os.environ.update(settings.environment())
    options: dict[str, Any] = {
        "app": "pagemill.extraction.api:create_app",
        "factory": True,
        "access_log": False,
        "log_level": "warning",
        "timeout_graceful_shutdown": 10,
        # A worker that starts on a busy machine is silent for longer than the default five seconds.
        "timeout_worker_healthcheck": 60,
        "server_header": False,
    }
    config = uvicorn.Config(host=settings.host, port=settings.port, workers=workers, **options)
    # Bound here, so that the URL can be told before any process serves it.
    listener = config.bind_socket()
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in str(host) else host
    print(json.dumps({"event": "ready", "url": f"http://{shown}:{port}"}), flush=True)
    if workers > 1:
        Multiprocess(config, sockets=[listener]).run()
    else:
        uvicorn.Server(config).run(sockets=[listener])


def worker(
    context: typer.Context,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Pool processes.")] = 1,
    redis_url: RedisUrl = None,
    engine: EngineEndpoint = None,
    model: Model = None,
) -> None:
    """Run a Celery worker for our queue; further options go to `celery worker`.

    A worker that ends by itself is started again; SIGTERM and SIGINT end it in order.
    """
    from ..child import kept_alive
    from ..config import load_settings
    from ..stack import worker_command

    settings = load_settings(redis_url=redis_url, engine_endpoint=engine, model=model)
    command = [*worker_command(settings, concurrency), *context.args]
    _become(kept_alive(command), settings.environment())


def engine(
    context: typer.Context,
    endpoint: Annotated[
        str | None, typer.Option(metavar="ENDPOINT", help="Where to listen, e.g. ipc:///path.")
    ] = None,
    model: Model = None,
) -> None:
    """Run an engine; further options go to `python -m pagemill.engine`."""
    from ..config import load_settings

    settings = load_settings(engine_endpoint=endpoint, model=model)
    command = [sys.executable, "-m", "pagemill.engine"]
    command += ["--endpoint", settings.engine_endpoint, "--model", settings.model]
    _become([*command, *context.args], settings.environment())


def announce(
    redis_url: RedisUrl = None,
    engine: EngineEndpoint = None,
    drain: Annotated[bool, typer.Option("--drain", help="No new bursts, then end.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Bursts again, then end.")] = False,
) -> None:
    """Tell workers of an engine as long as it answers; one beside each of several engines.

    With --drain or --resume only mark the engine in Redis: a draining one finishes what it has.
    """
    from ..config import load_settings

    settings = load_settings(redis_url=redis_url, engine_endpoint=engine)
    command = [sys.executable, "-m", "pagemill.workers.announcer"]
    command += ["--drain"] * drain + ["--resume"] * resume
    _become(command, settings.environment())


def _become(command: list[str], environment: dict[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, {**os.environ, **environment})
