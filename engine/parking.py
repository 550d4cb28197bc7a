"""Requests that wait for their grammar's table, before the scheduler knows of them."""

from __future__ import annotations

from .errors import EngineReason
from .request_book import Entry, Verdict

_MAX_WAIT_S = 30.0


class Parking:
    """Parked entries by grammar, in order of arrival."""

    def __init__(self) -> None:
        self._lots: dict[str, dict[int, Entry]] = {}
        self._count = 0
        self.tokens = 0  # of the parked prompts

    def __len__(self) -> int:
        return self._count

    def add(self, entry: Entry) -> None:
        lot = self._lots.setdefault(entry.request.grammar or "", {})
        lot[entry.number] = entry
        self._count += 1
        self.tokens += len(entry.prompt)

    def remove(self, entry: Entry) -> None:
        """Take out an entry; nothing happens when it isn't parked."""
        name = entry.request.grammar or ""
        lot = self._lots.get(name)
        if lot is None or lot.pop(entry.number, None) is None:
            return
        self._count -= 1
        self.tokens -= len(entry.prompt)
        if not lot:
            del self._lots[name]

    def wants(self, grammar: str) -> bool:
        return grammar in self._lots

    def take(self, grammar: str, client: bytes | None = None) -> list[Entry]:
        """Take out those that wait for a grammar (of one client, if named), oldest first."""
        taken = [
            entry
            for entry in self._lots.get(grammar, {}).values()
            if client is None or entry.client == client
        ]
        for entry in taken:
            self.remove(entry)
        return taken

    def overdue(self, now: float) -> list[tuple[Entry, Verdict]]:
        """Those that have waited too long, and how each ends. They stay until removed."""
        found = []
        for lot in self._lots.values():
            for entry in lot.values():
                if now > entry.deadline:
                    verdict = Verdict("deadline", EngineReason.DEADLINE)
                elif now > entry.arrival + _MAX_WAIT_S:
                    verdict = Verdict(
                        "error", EngineReason.GRAMMAR_MISSING, "the grammar's table never came"
                    )
                else:
                    continue
                found.append((entry, verdict))
        return found
