"""The engine without its transport: messages in, steps, messages out. One thread's own.

What comes from outside is checked here; whatever is wrong with a message or a request is answered
with a reason and costs nothing but itself.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable

from pagemill._core import Refusal, Scheduler

from .admission import check_budget, make_entry, refused, sample_of
from .answers import Answers
from .beam_search import BeamSearch
from .config import EngineConfig
from .errors import EngineError, EngineReason
from .executor.base import Executor
from .grammar_store import GrammarStore
from .metrics import EngineCounters
from .parking import Parking
from .protocol import (
    Cancel,
    ClientMessage,
    CoreMessage,
    EngineStats,
    GrammarTable,
    Hello,
    NeedGrammar,
    Ping,
    Pong,
    Rejected,
    Request,
    Submit,
    Welcome,
)
from .request_book import Entry, Progress, RequestBook, Verdict
from .stepper import LEASE_ENDED, Stepper
from .vocabulary import Vocabulary

_log = logging.getLogger(__name__)

TICK_S = 2.0  # how often clients are looked after
# Beyond the batch itself, so many waiting requests keep it full while clients answer.
_QUEUE_AHEAD = 0.5


class EngineCore:
    """An engine over an executor. `make_scheduler` gives a fresh scheduler of `num_blocks`."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        model: str,
        max_model_len: int,
        num_blocks: int,
        vocabulary: Vocabulary,
        grammars: GrammarStore,
        executor: Executor,
        make_scheduler: Callable[[], Scheduler],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.info = Welcome(
            model=model,
            tokenizer_hash=vocabulary.hash,
            max_model_len=max_model_len,
            vocab_size=vocabulary.size,
            max_num_seqs=config.max_num_seqs,
            epoch=uuid.uuid4().hex,
        )
        self._config = config
        self._num_blocks = num_blocks
        self._eos_ids = vocabulary.eos_ids
        self.executor = executor
        self._clock = clock
        self._counters = EngineCounters()
        self._book = RequestBook()
        # The clock is looked up at each call: tests set another.
        self._answers = Answers(self._counters, lambda: self._clock())
        self.grammars = grammars
        self._parking = Parking()
        self._stepper = Stepper(make_scheduler, executor, self._book, self._counters, clock)
        self._closed: EngineError | None = None
        self._heard: dict[bytes, float] = {}  # of clients with requests
        self._ticked = clock()
        self._stepped = clock()

    # --- messages -------------------------------------------------------------------------------

    def handle(self, client: bytes, message: ClientMessage) -> None:
        """Take a message of a client; answers wait in `take`."""
        if client in self._heard:
            self._hear(client, self._clock())
        if isinstance(message, Submit):
            self._submit(client, message)
        elif isinstance(message, Cancel):
            for request_id in message.request_ids:
                for entry in self._book.find(client, request_id):
                    self._cancel(entry, Verdict("cancelled", EngineReason.CANCELLED))
        elif isinstance(message, GrammarTable):
            self._take_table(client, message)
        elif isinstance(message, Ping):
            self._answers.send(client, Pong(message.nonce, self.stats(), self.info.epoch))
        elif isinstance(message, Hello):
            self._answers.send(client, self.info)

    def gone(self, client: bytes) -> None:
        """A client can't be reached any more: its requests end."""
        self._heard.pop(client, None)
        for entry in self._book.of_client(client):
            self._cancel(entry, Verdict("cancelled", EngineReason.CANCELLED, "the client is gone"))

    def close(self, error: EngineError) -> None:
        """Take no more requests; each is answered with `error`. What runs goes on."""
        self._closed = error

    def end_all(self, error: EngineError) -> None:
        """End every request with `error`."""
        verdict = Verdict("error", error.reason, str(error))
        searches = set()
        for entry in self._book:
            if entry.search is not None and id(entry.search) in searches:
                self._book.remove(entry)  # One beam answers for all.
            searches.add(id(entry.search))
        for entry in self._book:
            self._finish(entry, verdict)

    def take(self) -> list[tuple[bytes, CoreMessage]]:
        """Return and forget what is to be sent; the outputs of a client are one message."""
        return self._answers.take()

    # --- steps ----------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a step has anything to do."""
        return len(self._book) > len(self._parking) or self._stepper.in_flight

    @property
    def has_requests(self) -> bool:
        return len(self._book) > 0

    def step(self) -> bool:
        """Run a step; False when nothing could be done."""
        progress = self._stepper.step()
        self._stepped = self._clock()
        for item in progress or ():
            self._report(item)
        for client in {i.entry.client for i in progress or () if i.verdict is LEASE_ENDED}:
            self._lease_ended(client)
        return progress is not None

    def tick(self) -> None:
        """Look after clients and parked requests; cheap when called often."""
        now = self._clock()
        if now - self._ticked < TICK_S:
            return
        self._ticked = now
        for entry, verdict in self._parking.overdue(now):
            self._finish(entry, verdict)
        for client in self._book.clients():
            if now - self._heard.get(client, now) > self._config.client_timeout_s:
                self._lease_ended(client)
            else:
                # Reaching it is the test; it tells the client that the loop goes round, too.
                self._answers.reach(client)

    def _lease_ended(self, client: bytes) -> None:
        # The scheduler has ended those that it knows; some may wait for a grammar or a sample.
        _log.warning("a client was silent for too long: its requests are cancelled")
        self.gone(client)

    def stats(self) -> EngineStats:
        scheduler = self._stepper.scheduler
        running, parked = scheduler.num_running(), len(self._parking)
        waiting = self._stepper.num_waiting + parked
        counters = self._counters.snapshot(scheduler.stats(), self.executor.counters())
        counters["num_grammars"] = len(self.grammars)
        room = int(self._config.max_num_seqs * (1 + _QUEUE_AHEAD)) - running - waiting
        return EngineStats(
            running=running,
            waiting=waiting,
            free_blocks=scheduler.num_free_blocks(),
            total_blocks=self._num_blocks,
            credit=0 if self._closed else max(0, room),
            last_step_age_s=self._clock() - self._stepped if self.busy else 0.0,
            counters=counters,
            prefix_cache=self._counters.prefix_cache(scheduler.prefix_stats()),
        )

    # --- the life of a request --------------------------------------------------------------------

    def _submit(self, client: bytes, message: Submit) -> None:
        error = self._closed
        if error is None and message.tokenizer_hash != self.info.tokenizer_hash:
            error = EngineError(
                EngineReason.TOKENIZER_MISMATCH,
                f"the prompts were tokenised for another model than {self.info.model}",
            )
        if error is not None:
            self._counters.messages_rejected += 1
            ids = [request.request_id for request in message.requests]
            self._answers.send(client, Rejected(error.reason, str(error), ids))
            return
        missing: dict[str, None] = {}
        for request in message.requests:
            try:
                self._admit(client, request, missing)
            except EngineError as refusal:
                self._answers.refuse(client, request.request_id, refusal)
        if missing:
            self._answers.send(client, NeedGrammar(list(missing)))

    def _admit(self, client: bytes, request: Request, missing: dict[str, None]) -> None:
        if self._book.find(client, request.request_id):
            raise EngineError(
                EngineReason.MESSAGE_INVALID, f"request id {request.request_id} is in use"
            )
        now = self._clock()
        entry = make_entry(
            self._book.new_number(), client, request, self.info.vocab_size, self._eos_ids, now
        )
        waiting = self._stepper.num_waiting + len(self._parking)
        wanted = max(request.sampling.n, request.sampling.beam_width)
        if waiting + wanted > self._config.max_waiting_requests:
            raise EngineError(EngineReason.OVERLOADED, "too many requests wait: retry later")
        if request.grammar is not None:
            entry.grammar = self.grammars.acquire(request.grammar)
            if entry.grammar is None:
                self._park(entry)
                missing[request.grammar] = None
                return
        self._queue(entry)

    def _park(self, entry: Entry) -> None:
        if self._parking.tokens + len(entry.prompt) > self._config.max_waiting_tokens:
            raise EngineError(EngineReason.OVERLOADED, "too many prompt tokens wait: retry later")
        self._enter(entry)
        self._parking.add(entry)

    def _enter(self, entry: Entry) -> None:
        self._book.add(entry)
        if entry.client not in self._heard:
            self._hear(entry.client, entry.arrival)

    def _hear(self, client: bytes, now: float) -> None:
        """A client with requests shows that it lives: its lease is renewed."""
        self._heard[client] = now
        self._stepper.renew(client, now + self._config.client_timeout_s)

    def _queue(self, entry: Entry) -> None:
        """Hand an entry to the scheduler; EngineError, and no trace of it, when that refuses."""
        if entry.grammar is not None and self._config.close_records:
            try:
                check_budget(entry.request.sampling, entry.grammar.min_tokens)
            except EngineError:
                self._let_go(entry)
                raise
        if entry.request.sampling.beam_width:
            entry.search = BeamSearch(entry)
        try:
            code = self._stepper.add(entry)
        except (ValueError, OverflowError) as error:
            code, why = -1, str(error)
        if code != Refusal.NONE:
            self._let_go(entry)
            if code == -1:
                raise EngineError(EngineReason.MESSAGE_INVALID, why)
            raise refused(
                code,
                len(entry.prompt),
                entry.request.sampling.max_tokens,
                self.info.max_model_len,
            )
        if self._book.get(entry.number) is None:
            self._enter(entry)
        samples = 0 if entry.search is not None else entry.request.sampling.n
        for sample in range(1, samples):
            other = sample_of(entry, sample, self._book.new_number())
            if entry.request.grammar is not None:
                other.grammar = self.grammars.acquire(entry.request.grammar)
            self._enter(other)
            self._stepper.fork_later(entry, other)
        self._counters.name_tag(entry.request.tag)

    def _take_table(self, client: bytes, message: GrammarTable) -> None:
        if not self._parking.wants(message.hash):
            return
        self._counters.grammars_received += 1
        try:
            self.grammars.put(message.hash, message.table)
        except EngineError as error:
            # Only the sender's requests: another client may hold a sound table.
            verdict = Verdict("error", error.reason, str(error))
            for entry in self._parking.take(message.hash, client):
                self._finish(entry, verdict)
            return
        for entry in self._parking.take(message.hash):
            entry.grammar = self.grammars.acquire(message.hash)
            try:
                self._queue(entry)
            except EngineError as error:
                self._finish(entry, Verdict("error", error.reason, str(error)))

    def _cancel(self, entry: Entry, verdict: Verdict) -> None:
        if entry.queued or entry.search is not None:
            self._stepper.cancel(entry, verdict)
        else:
            self._finish(entry, verdict)

    def _report(self, item: Progress) -> None:
        if item.verdict is None:
            self._answers.progress(item)
        else:
            self._finish(item.entry, item.verdict, item)

    def _finish(self, entry: Entry, verdict: Verdict, item: Progress | None = None) -> None:
        self._book.remove(entry)
        open_samples = len(self._book.find(entry.client, entry.request.request_id))
        self._answers.end(item or Progress(entry, (), verdict), verdict, open_samples)
        self._parking.remove(entry)
        self._let_go(entry)
        if not self._book.of_client(entry.client):
            self._heard.pop(entry.client, None)

    def _let_go(self, entry: Entry) -> None:
        if entry.grammar is not None and entry.request.grammar is not None:
            entry.grammar = None
            self.grammars.release(entry.request.grammar)
