"""The beam searches of a stepper: their entries are forked, cancelled and answered here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .beam_search import BeamSearch, Heir
from .executor.scores import TokenScores
from .request_book import Entry, Progress, RequestBook, Verdict

if TYPE_CHECKING:
    from .stepper import Stepper


class Beams:
    """A search's entries share their K/V as forks; none is answered before the search is over.

    Entries that the scheduler has no slot for queue; one that is ahead of the others has taken its
    best tokens, and its heirs are forked from an earlier place of its way.
    """

    def __init__(self, book: RequestBook) -> None:
        self._book = book
        self._heard: dict[int, BeamSearch] = {}  # with something new, by the first entry's number
        self._cancelled: list[tuple[BeamSearch, Verdict]] = []

    def hear(self, entry: Entry, scores: TokenScores) -> None:
        """Take the candidates that an entry's newest token was chosen from."""
        search = _search_of(entry)
        search.hear(entry, len(entry.output_ids) - 1, scores)
        self._heard[search.first.number] = search

    def advance(self, stepper: Stepper) -> list[Progress]:
        """Move on the searches that can be; the answers of those that are over."""
        answers: list[Progress] = []
        heard, self._heard = self._heard, {}
        for search in heard.values():
            while search.ready and search.verdict is None:
                heirs = search.advance()
                if not heirs:
                    answers += self._answer(stepper, search)
                    break
                self._go_on(stepper, search, heirs)
        return answers

    def cancel(self, search: BeamSearch, verdict: Verdict) -> None:
        """Have a search end with the next `end_cancelled`."""
        self._cancelled.append((search, verdict))

    def end_cancelled(self, stepper: Stepper) -> list[Progress]:
        cancelled, self._cancelled = self._cancelled, []
        return [
            progress
            for search, verdict in cancelled
            if search.verdict is None
            for progress in self.end(stepper, search, verdict)
        ]

    def end_all(self, stepper: Stepper, verdict: Verdict) -> list[Progress]:
        answers: list[Progress] = []
        for entry in self._book:
            if entry.search is not None and entry.search.verdict is None:
                answers += self.end(stepper, entry.search, verdict)
        return answers

    def end(self, stepper: Stepper, search: BeamSearch, verdict: Verdict) -> list[Progress]:
        """End a search before its time."""
        search.verdict = verdict
        return self._answer(stepper, search)

    def _go_on(self, stepper: Stepper, search: BeamSearch, heirs: list[Heir]) -> None:
        chosen = {heir.parent.number for heir in heirs}
        for entry in search.entries:
            if entry.number not in chosen:  # Its slot is free for another's heir.
                self._drop(stepper, entry)
        entries = []
        for heir in heirs:
            parent, at = heir.parent, search.place - 1
            if parent.output_ids[at] == heir.token:
                entries.append(parent)
                continue
            child = replace(
                parent,
                number=self._book.new_number(),
                output_ids=[*parent.output_ids[:at], heir.token],
                queued=False,
            )
            self._book.add(child)
            stepper.fork(parent, child)
            entries.append(child)
        for heir in heirs:
            # Its own token has no heir: one as good, by the last bit, took the place.
            if heir.parent not in entries:
                self._drop(stepper, heir.parent)
        search.go_on(entries, heirs)

    def _drop(self, stepper: Stepper, entry: Entry) -> None:
        if self._book.get(entry.number) is entry:
            stepper.scheduler.cancel(entry.number)
            self._book.remove(entry)

    def _answer(self, stepper: Stepper, search: BeamSearch) -> list[Progress]:
        for entry in search.entries:
            self._drop(stepper, entry)
        found = [] if search.verdict is not None else search.results()
        count = len(found) or search.first.request.sampling.n
        answers = []
        for sample in range(count):
            # One of them holds what the search has of the grammar store.
            grammar = search.first.grammar if sample == count - 1 else None
            entry = replace(
                search.first,
                number=self._book.new_number(),
                output_ids=list(found[sample].tokens) if found else [],
                grammar=grammar,
                queued=False,
                sample=sample,
                search=None,
                score=found[sample].score if found else 0.0,
            )
            self._book.add(entry)
            ended = Verdict("stop" if found and found[sample].ended else "length")
            answers.append(Progress(entry, entry.output_ids, search.verdict or ended))
        return answers


def _search_of(entry: Entry) -> BeamSearch:
    if entry.search is None:
        raise RuntimeError("candidates of a request that is no beam")
    return entry.search
