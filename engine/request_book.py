"""The requests that the core has accepted and not yet answered to the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pagemill._core import Grammar, PageSpans

from .executor.rows import SlotStart
from .protocol import MAX_PAGE_BYTES, FinishReason, Output, Request, TokenLogprob, Usage

if TYPE_CHECKING:
    from .beam_search import BeamSearch


@dataclass(frozen=True)
class Verdict:
    """How a request ended, in the words of an Output."""

    finish: FinishReason
    reason: str = ""
    message: str = ""


@dataclass(slots=True, eq=False)
class Entry:
    """One sample of a request on its way. `number` is its id towards the scheduler."""

    number: int
    client: bytes
    request: Request
    prompt: NDArray[np.int32]
    stop_ids: frozenset[int]
    arrival: float
    deadline: float
    grammar: Grammar | None = None
    verbatim: Future[PageSpans] | None = None  # the request's page, sorted or about to be
    output_ids: list[int] = field(default_factory=list)
    cached_tokens: int | None = None  # of the prompt, when it first started
    forced_tokens: int = 0
    drafted_tokens: int = 0
    first_token_s: float = 0.0
    closed_early: bool = False  # the bound on tokens forbade a token that was wanted
    loops_closed: int = 0
    queued: bool = False  # with the scheduler; else it waits for its grammar
    sample: int = 0  # which of the request's samples
    search: BeamSearch | None = None  # that it is a beam of
    score: float = 0.0  # of a finished search's text
    verdict: Verdict | None = None  # decided already; stands instead of what the scheduler says

    def start(self, slot: int) -> SlotStart:
        """What the executor needs when the request takes a slot."""
        page = self.request.page[:MAX_PAGE_BYTES]
        # A copy of the output: the executor may read it while a later step is committed.
        output = tuple(self.output_ids)
        sampling = self.request.sampling
        if self.copies and self.verbatim is None:
            # Kept for when the request is resumed.
            self.verbatim = Future()
            self.verbatim.set_result(PageSpans(self.request.verbatim))
        spans = None if self.verbatim is None else self.verbatim.result()
        return SlotStart(
            slot, sampling, self.grammar, output, self.prompt, page, self.stop_ids, spans
        )

    @property
    def copies(self) -> bool:
        """Whether its grammar has strings that are copied from the request's page."""
        return self.grammar is not None and self.grammar.has_verbatim

    def last_output(
        self,
        verdict: Verdict,
        token_ids: tuple[int, ...],
        now: float,
        open_samples: int = 0,
        logprobs: tuple[TokenLogprob, ...] = (),
    ) -> Output:
        """The Output that ends the sample; `open_samples` of the request go on."""
        return Output(
            request_id=self.request.request_id,
            token_ids=token_ids,
            finish=verdict.finish,
            reason=verdict.reason,
            message=verdict.message,
            usage=Usage(
                prompt_tokens=len(self.prompt),
                cached_tokens=self.cached_tokens or 0,
                completion_tokens=len(self.output_ids),
                closed_early=self.closed_early,
                loops_closed=self.loops_closed,
                forced_tokens=self.forced_tokens,
                drafted_tokens=self.drafted_tokens,
            ),
            first_token_s=self.first_token_s,
            finished_s=now - self.arrival,
            sample=self.sample,
            open_samples=open_samples,
            logprobs=logprobs,
            score=self.score,
        )


@dataclass(frozen=True)
class Progress:
    """New tokens of a request (stop tokens included), and how it ended, if it did."""

    entry: Entry
    token_ids: Sequence[int]
    verdict: Verdict | None
    logprobs: tuple[TokenLogprob, ...] = ()


class RequestBook:
    """Entries by the scheduler's number and by the client's id."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._of_client: dict[bytes, dict[str, list[Entry]]] = {}  # by request: its samples
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def new_number(self) -> int:
        """A number that no entry ever had."""
        self._last_number += 1
        return self._last_number

    def add(self, entry: Entry) -> None:
        self._entries[entry.number] = entry
        own = self._of_client.setdefault(entry.client, {})
        own.setdefault(entry.request.request_id, []).append(entry)

    def remove(self, entry: Entry) -> None:
        del self._entries[entry.number]
        own = self._of_client[entry.client]
        samples = own[entry.request.request_id]
        samples.remove(entry)
        if not samples:
            del own[entry.request.request_id]
        if not own:
            del self._of_client[entry.client]

    def get(self, number: int) -> Entry | None:
        return self._entries.get(number)

    def named(self, number: int) -> Entry:
        """The entry that the scheduler names."""
        entry = self._entries.get(number)
        if entry is None:
            raise RuntimeError(f"the scheduler names request {number}, which the core has not")
        return entry

    def find(self, client: bytes, request_id: str) -> list[Entry]:
        """The unfinished samples of a request."""
        return list(self._of_client.get(client, {}).get(request_id, ()))

    def of_client(self, client: bytes) -> list[Entry]:
        return [e for samples in self._of_client.get(client, {}).values() for e in samples]

    def clients(self) -> list[bytes]:
        """Clients with unfinished requests."""
        return list(self._of_client)
