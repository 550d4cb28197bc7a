"""Counters of an engine, under the names that vLLM's users know where there is one."""

from __future__ import annotations

import collections

from .admission import stable_hash

_MAX_TAGS = 1000
_SCHEDULER_NAMES = {
    "preemptions": "num_preemptions",
    "prefix_queries": "prefix_cache_queries",
    "prefix_hits": "prefix_cache_hits",
}


class EngineCounters:
    """Everything only grows; times are microseconds."""

    def __init__(self) -> None:
        self.prompt_tokens = 0  # of started requests
        self.generation_tokens = 0
        self.forced_tokens = 0  # of these, confirmed drafts that the grammar forced ...
        self.copied_tokens = 0  # ... and those copied from the page
        self.steps = 0
        self.step_tokens = 0  # computed in steps, prompts and completions
        self.plan_us = 0
        self.execute_us = 0
        self.commit_us = 0
        self.failed_steps = 0
        self.resets = 0
        self.grammars_received = 0
        self.messages_rejected = 0
        self.records_closed_early = 0  # whole, but shorter than without max_tokens
        self.loops_closed = 0  # in strings and numbers
        self.finished: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()
        self._past: collections.Counter[str] = collections.Counter()
        self._past_prefix: dict[str, tuple[int, int]] = {}
        self._tags: dict[int, str] = {}

    def step(self, tokens: int, plan_s: float, execute_s: float, commit_s: float) -> None:
        """Count a step and where its time went."""
        self.steps += 1
        self.step_tokens += tokens
        self.plan_us += int(plan_s * 1e6)
        self.execute_us += int(execute_s * 1e6)
        self.commit_us += int(commit_s * 1e6)

    def keep(self, scheduler: dict[str, int], prefix: dict[int, tuple[int, int]]) -> None:
        """Take over the counters of a scheduler that is replaced."""
        self._past.update(scheduler)
        self._past_prefix = self._by_tag(prefix)

    def name_tag(self, tag: str) -> None:
        """Remember what a tag is called; the scheduler knows hashes."""
        if len(self._tags) < _MAX_TAGS:
            self._tags.setdefault(stable_hash(tag), tag)

    def prefix_cache(self, scheduler: dict[int, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Prompt tokens (looked up, found) by tag; of tags beyond the thousandth under "other"."""
        return dict(self._by_tag(scheduler))

    def _by_tag(self, scheduler: dict[int, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        named = dict(self._past_prefix)
        for tag, (queries, hits) in scheduler.items():
            name = self._tags.get(tag, "other")
            past = named.get(name, (0, 0))
            named[name] = (past[0] + queries, past[1] + hits)
        return named

    def snapshot(self, scheduler: dict[str, int], executor: dict[str, int]) -> dict[str, int]:
        """All counters by name, with those of scheduler and executor."""
        names = [name for name, value in vars(self).items() if isinstance(value, int)]
        counters = {name: int(getattr(self, name)) for name in names}
        for reason, count in self.finished.items():
            counters[f"requests_finished_{reason}"] = count
        for reason, count in self.refused.items():
            counters[f"requests_refused_{reason}"] = count
        for name, count in scheduler.items():
            counters[_SCHEDULER_NAMES.get(name, f"scheduler_{name}")] = count + self._past[name]
        return counters | executor
