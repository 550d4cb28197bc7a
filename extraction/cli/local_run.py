"""A batch worked on in this process: ledger, engine, burst runners, records as they finish."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pagemill import schemas
from pagemill.engine import store
from pagemill.engine.errors import EngineError
from pagemill.engine.tokenizer import Tokenizer

from ..assembly import make_extractor, open_ledger
from ..bound_schema import bind
from ..config import Settings
from ..engine_source import ConnectedEngine
from ..extractor import Extractor
from ..inputs import BadInput, ReadPage
from ..intake import drop_unused_schemas, fix_schema, parse_options
from ..pipeline import BurstRunner
from ..record import ExtractOptions
from ..stack import EmbeddedRedis
from .console import say
from .engine_keeper import EngineKeeper
from .feeder import Feeder
from .local_batch import LocalBatch, Tally
from .output import Format
from .progress import Progress
from .writers import make_writer

# Two, so that the engine has the next burst while the last pages of one are still decoded.
_RUNNERS = 2
_POLL_S = 0.1
_REAP_EVERY = 20
_IDLE_S = 0.05


class LocalRun:
    """Runs a batch with services that it starts itself where none are given.

    What it starts is entered into `stack`, and so ends with the caller's block.
    """

    def __init__(
        self,
        settings: Settings,
        stack: contextlib.ExitStack,
        *,
        state: Path | None,
        own_redis: bool,
        own_engine: bool,
        quiet: bool,
    ) -> None:
        self._settings = settings
        self._stack = stack
        self._own_engine = own_engine
        self._quiet = quiet
        if own_redis:
            url = stack.enter_context(EmbeddedRedis(state)).url
            settings = settings.model_copy(update={"redis_url": url})
        self._ledger = open_ledger(settings)
        self._ledger.ping()
        self._registry = schemas.SchemaRegistry(self._ledger.redis, settings.namespace)
        self._stop = threading.Event()
        self._failure: Exception | None = None

    def extract(
        self,
        pages: Iterator[ReadPage | BadInput],
        schema: str | dict[str, Any],
        options: ExtractOptions,
        *,
        limit: int | None,
        sink: BinaryIO,
        kind: Format = Format.NDJSON,
    ) -> Tally:
        """Write a line for each page to `sink`; raises what ends the run as a whole."""
        with Progress(quiet=self._quiet) as progress:
            drop_unused_schemas(self._registry, self._ledger)
            ref = fix_schema(self._registry, schema)
            # Compiled here once: a schema that can't be decoded ends the run before it starts.
            version = self._registry.get(ref)
            bind(version)
            files = self._model_files()
            keeper = EngineKeeper(self._settings, self._stack, own=self._own_engine)
            self._start_runners(keeper, Tokenizer.load(files.directory))
            feeder = Feeder(
                pages,
                self._registry,
                schema=ref,
                options=parse_options(options),
                model=self._settings.model,
                limit=limit,
            )
            with contextlib.closing(make_writer(kind, sink, version.schema)) as writer:
                batch = LocalBatch(self._ledger, feeder, writer, schema=ref)
                self._feed(batch, progress)
            return batch.tally

    def _feed(self, batch: LocalBatch, progress: Progress) -> None:
        """Submit and collect until every page has its line."""
        more = True
        polls = 0
        while True:
            if self._failure is not None:
                raise self._failure
            more = more and batch.fill()
            batch.collect()
            progress.update(batch.tally)
            if not more and batch.pending == 0:
                return
            polls += 1
            if polls % _REAP_EVERY == 0:
                self._ledger.reap()
            self._stop.wait(_POLL_S)

    def _model_files(self) -> store.ModelFiles:
        try:
            return store.resolve(self._settings.model)
        except EngineError:
            if self._settings.model != store.DEFAULT_MODEL:
                raise
            return store.pull(progress=None if self._quiet else say)

    def _start_runners(self, keeper: EngineKeeper, tokenizer: Tokenizer) -> None:
        client = keeper.connect()
        extractor = make_extractor(self._settings, tokenizer, client.info, self._ledger.redis)
        client.close()
        runners = [
            threading.Thread(target=self._work, args=(extractor, keeper), daemon=True)
            for _ in range(_RUNNERS)
        ]
        self._stack.callback(self._join, runners)
        for runner in runners:
            runner.start()

    def _work(self, extractor: Extractor, keeper: EngineKeeper) -> None:
        source = ConnectedEngine(keeper.connect)
        runner = BurstRunner(
            self._ledger,
            extractor,
            source,
            self._registry,
            burst_size=self._settings.burst_size,
            lease_s=self._settings.lease_s,
            tries=self._settings.max_attempts,
        )
        try:
            while not self._stop.is_set():
                try:
                    committed = runner.run_once()
                except EngineError as error:
                    if self._stop.is_set() or not keeper.recover(error):
                        raise
                    committed = 0
                if committed == 0:
                    self._stop.wait(_IDLE_S)
        except Exception as error:
            if not self._stop.is_set():
                self._failure = error
        finally:
            runner.close()

    def _join(self, runners: list[threading.Thread]) -> None:
        self._stop.set()
        for runner in runners:
            runner.join(5.0)
