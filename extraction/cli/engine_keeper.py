"""The engine of a local run: a given one, or a child that is started again when it dies."""

from __future__ import annotations

import contextlib
import threading

from pagemill.engine.client import EngineClient
from pagemill.engine.errors import EngineError, EngineReason

from ..config import Settings
from ..stack import EngineProcess

# Pages that kill an engine each time are dead before it has been started so often.
_MAX_RESTARTS = 12


class EngineKeeper:
    """Gives clients of the engine; thread-safe.

    With `own` an engine is started as a child that ends with `stack`.
    """

    def __init__(self, settings: Settings, stack: contextlib.ExitStack, *, own: bool) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._restarts = 0
        self._process: EngineProcess | None = None
        self._endpoint = settings.engine_endpoint
        if own:
            self._process = stack.enter_context(EngineProcess(model=settings.model))
            self._endpoint = self._process.endpoint

    def connect(self) -> EngineClient:
        """Return a new client; EngineError(ENGINE_UNAVAILABLE)."""
        return EngineClient.connect(
            self._endpoint,
            connect_timeout_s=10.0,
            silence_timeout_s=self._settings.engine_timeout_s,
        )

    def recover(self, error: EngineError) -> bool:
        """Whether work may go on after `error`: the engine is ours and runs (again)."""
        if error.reason == EngineReason.OVERLOADED:
            return True
        if error.reason != EngineReason.ENGINE_UNAVAILABLE or self._process is None:
            return False
        with self._lock:
            if not self._process.is_running():
                self._restarts += 1
                if self._restarts > _MAX_RESTARTS:
                    return False
                self._process.start()
            return True
