"""Cuts a growing text at the first of some stop strings."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes text on as soon as it can't be part of a stop string any more.

    `stopped` is true once one has been found; it and what follows are never passed on.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Return the text that is certain by now."""
        if self.stopped:
            return ""
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            certain, self._held = self._held[: min(found)], ""
            return certain
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        certain, self._held = self._held[:cut], self._held[cut:]
        return certain

    def flush(self) -> str:
        """Return what was held back, at the end of the text."""
        rest, self._held = self._held, ""
        return rest

    def _overlap(self, stop: str) -> int:
        """Length of the longest end of the held text that begins `stop`."""
        longest = min(len(stop) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if self._held.endswith(stop[:n])), 0)
