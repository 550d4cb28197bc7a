"""`python -m pagemill.engine`: an engine core as a process of its own.

Prints one JSON line {"event": "ready", "endpoint": ...} on standard output when it serves; logs go
to standard error. Ends on SIGTERM or SIGINT after running requests (or its patience) have ended,
and at once when the lifeline closes. Exit status: 0 ended as asked, 2 it can't start as told,
70 the engine broke.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from .config import EngineConfig, add_arguments, from_arguments, set_thread_environment
from .endpoint import claim, default_endpoint
from .errors import EngineError
from .server import EngineServer
from .step_loop import StepLoop

EXIT_REFUSED = 2
EXIT_BROKEN = 70


def _say(event: str, **details: object) -> None:
    print(json.dumps({"event": event, **details}), flush=True)


def _ignore(number: int, frame: FrameType | None) -> None:
    """The number arrives at the server through the wake-up descriptor."""


def _serve(config: EngineConfig, endpoint: str, lifeline: int | None) -> bool:
    from .assembly import build_core

    with claim(endpoint):
        core = build_core(config)
        server = EngineServer(endpoint)
        loop = StepLoop(core, server.send, config.shutdown_timeout_s)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _ignore)
        signal.set_wakeup_fd(server.signal_fd, warn_on_full_buffer=False)
        _say(
            "ready",
            endpoint=server.endpoint,
            model=core.info.model,
            max_model_len=core.info.max_model_len,
            pid=os.getpid(),
        )
        try:
            return server.serve(loop, lifeline)
        finally:
            signal.set_wakeup_fd(-1)
            server.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the engine until it is told to end; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pagemill.engine", description="Serve a model behind ZeroMQ."
    )
    add_arguments(parser)
    parser.add_argument(
        "--endpoint", default=default_endpoint(), help="ipc:///PATH, or tcp://127.0.0.1:PORT"
    )
    parser.add_argument("--lifeline", type=int, help="end when this descriptor's pipe closes")
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=os.environ.get("PAGEMILL_LOG_LEVEL", "INFO").upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        config = from_arguments(options)
        set_thread_environment(config)
        ended = _serve(config, options.endpoint, options.lifeline)
    except EngineError as error:
        print(f"pagemill.engine: {error} ({error.reason})", file=sys.stderr)
        return EXIT_REFUSED
    except Exception:
        logging.getLogger(__name__).exception("the engine broke")
        return EXIT_BROKEN
    sys.stdout.flush()
    if not ended:
        os._exit(0)  # A step still runs on its thread, in native code.
    return 0


if __name__ == "__main__":
    sys.exit(main())
