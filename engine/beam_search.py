"""Beam search: of all continuations of a few texts the best ones go on.

At each place the texts' candidates are ranked by the sum of their log probabilities. Those that
end, and are among the first `beam_width`, are finished texts; the first `beam_width` that don't
end are the texts of the next place. The search is over when no text that goes on can become
better than the worst of `beam_width` finished ones. This is what transformers' `generate` does
with `num_beams` and `early_stopping="never"`. Ties go by the parent's rank, then by token id.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .executor.scores import TokenScores
from .request_book import Verdict

if TYPE_CHECKING:
    from .request_book import Entry


@dataclass(frozen=True)
class Hypothesis:
    """A finished text: its tokens, the end included; `ended` by itself, not by max_tokens."""

    score: float
    tokens: tuple[int, ...]
    ended: bool


@dataclass(frozen=True)
class Heir:
    """A text that goes on: `parent`'s up to the search's place, then `token`."""

    parent: Entry
    token: int
    total: float  # sum of log probabilities


@dataclass
class _Beam:
    entry: Entry
    total: float
    # By place. An entry may be ahead of the others: until it hears more, it takes its best token.
    scores: dict[int, TokenScores] = field(default_factory=dict)


class BeamSearch:
    """The search of one request; `first` is its entry, which has computed nothing yet."""

    def __init__(self, first: Entry) -> None:
        self.first = first
        self._sampling = first.request.sampling
        self._beams = {first.number: _Beam(first, 0.0)}  # in the order of their rank
        self.place = 0  # tokens of each text
        self.verdict: Verdict | None = None  # it ends before its time
        self._finished: list[Hypothesis] = []

    @property
    def entries(self) -> list[Entry]:
        return [beam.entry for beam in self._beams.values()]

    def hear(self, entry: Entry, place: int, scores: TokenScores) -> None:
        """Take the candidates for the token at a place of an entry's text."""
        self._beams[entry.number].scores[place] = scores

    @property
    def ready(self) -> bool:
        """Whether every text has its candidates for the next place."""
        return bool(self._beams) and all(self.place in beam.scores for beam in self._beams.values())

    def advance(self) -> list[Heir]:
        """Choose the texts of the next place; none when the search is over."""
        width = self._sampling.beam_width
        candidates = [
            (beam.total + logprob, rank, token)
            for rank, beam in enumerate(self._beams.values())
            for token, logprob in zip(
                beam.scores[self.place].ids, beam.scores[self.place].logprobs, strict=True
            )
        ]
        candidates.sort(key=lambda candidate: (-candidate[0], candidate[1], candidate[2]))
        parents = self.entries
        self.place += 1
        heirs: list[Heir] = []
        for place, (total, rank, token) in enumerate(candidates[: 2 * width]):
            ended = token in self.first.stop_ids
            if ended or self.place == self._sampling.max_tokens:
                if place < width:
                    tokens = (*parents[rank].output_ids[: self.place - 1], token)
                    self._finished.append(Hypothesis(self._score(total), tokens, ended))
            elif len(heirs) < width:
                heirs.append(Heir(parents[rank], token, total))
        self._finished.sort(key=lambda hypothesis: -hypothesis.score)
        del self._finished[width:]
        return heirs if heirs and not self._is_over(heirs[0].total) else []

    def go_on(self, entries: Sequence[Entry], heirs: Sequence[Heir]) -> None:
        """Say which entries carry the heirs' texts."""
        before = self._beams
        self._beams = {}
        for entry, heir in zip(entries, heirs, strict=True):
            known = before[entry.number].scores if entry.number in before else {}
            known = {place: scores for place, scores in known.items() if place >= self.place}
            self._beams[entry.number] = _Beam(entry, heir.total, known)

    def results(self) -> list[Hypothesis]:
        """The best texts, as many as were asked for or there are."""
        return self._finished[: self._sampling.n]

    def _score(self, total: float, length: int = 0) -> float:
        tokens = float(length or self.place)
        return total / math.pow(tokens, self._sampling.length_penalty)

    def _is_over(self, best_total: float) -> bool:
        if len(self._finished) < self._sampling.beam_width:
            return False
        # Log probabilities are negative: dividing by the longest length is the best to hope for.
        longest = self._sampling.max_tokens if self._sampling.length_penalty > 0 else self.place
        return self._score(best_total, longest) <= self._finished[-1].score
