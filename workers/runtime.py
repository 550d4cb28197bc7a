"""What tasks work with: ledger and tokenizer once per process, an engine client per thread.

Made at first use, so after the fork; nothing here imports torch.
"""

from __future__ import annotations

import threading
from functools import cached_property

from pagemill import schemas
from pagemill.engine import store
from pagemill.engine.client import EngineClient
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction.assembly import make_extractor, open_ledger
from pagemill.extraction.config import Settings, load_settings
from pagemill.extraction.engine_source import ConnectedEngine, EngineSource
from pagemill.extraction.extractor import Extractor
from pagemill.extraction.pipeline import BurstRunner
from pagemill.extraction.remote_engine import RemoteEngine, server_of

from .engines import AnnouncedEngines


class Runtime:
    """The parts of one process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ledger = open_ledger(settings)
        self.redis = self.ledger.redis
        self.registry = schemas.SchemaRegistry(self.redis, settings.namespace)
        schemas.share_cache(self.redis, settings.namespace)
        self._lock = threading.Lock()
        self._extractor: Extractor | None = None
        self._threads = threading.local()

    def runner(self) -> BurstRunner:
        """Return this thread's runner; EngineError until an engine has answered once."""
        runner: BurstRunner | None = getattr(self._threads, "runner", None)
        if runner is None:
            engines = self._engines()
            runner = BurstRunner(
                self.ledger,
                self._shared_extractor(engines),
                engines,
                self.registry,
                burst_size=self.settings.burst_size,
                lease_s=self.settings.lease_s,
                tries=self.settings.max_attempts,
            )
            self._threads.runner = runner
        return runner

    def _engines(self) -> EngineSource:
        if self.settings.engine_url:
            return ConnectedEngine(self._remote)
        return AnnouncedEngines(
            self.redis,
            namespace=self.settings.namespace,
            default_endpoint=self.settings.engine_endpoint,
            connect=self._connect,
        )

    def _connect(self, endpoint: str) -> EngineClient:
        return EngineClient.connect(
            endpoint, connect_timeout_s=5.0, silence_timeout_s=self.settings.engine_timeout_s
        )

    def _remote(self) -> RemoteEngine:
        return RemoteEngine.connect(server_of(self.settings), self._tokenizer)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.load(store.resolve(self.settings.model).directory)

    def _shared_extractor(self, engines: EngineSource) -> Extractor:
        with self._lock:
            if self._extractor is None:
                info = engines.choose("").info
                self._extractor = make_extractor(self.settings, self._tokenizer, info, self.redis)
            return self._extractor


_runtime: Runtime | None = None
_lock = threading.Lock()


def current() -> Runtime:
    """Return this process's runtime."""
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = Runtime(load_settings())
        return _runtime


def reset() -> None:
    """Forget the runtime of the parent process, without touching its connections."""
    global _runtime, _lock
    _runtime = None
    _lock = threading.Lock()
