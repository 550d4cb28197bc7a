"""Whose the executor's slots are."""

from __future__ import annotations

from collections.abc import Iterable

from pagemill._core import Plan

from .executor.rows import SlotStart
from .request_book import Entry, RequestBook


class Slots:
    """Who holds which slot, as the plans tell it."""

    def __init__(self, book: RequestBook) -> None:
        self._book = book
        self._numbers: dict[int, int] = {}  # of the entry, by slot

    def starts(self, plan: Plan) -> list[SlotStart]:
        """Take note of slots that end and start with a plan; what the executor needs of the new."""
        for slot in plan.ended_slots.tolist():
            self._numbers.pop(slot, None)
        if not len(plan.started_slots):
            return []
        first_positions = dict(
            zip(plan.slots.tolist(), plan.positions[plan.query_start[:-1]].tolist(), strict=True)
        )
        starts = []
        for slot, number in zip(
            plan.started_slots.tolist(), plan.started_ids.tolist(), strict=True
        ):
            entry = self._book.named(number)
            self._numbers[slot] = number
            if entry.cached_tokens is None:
                # What stands before the first computed token was found in the prefix cache.
                entry.cached_tokens = first_positions.get(slot, 0)
            starts.append(entry.start(slot))
        return starts

    def number(self, slot: int) -> int:
        return self._numbers[slot]

    def holder(self, slot: int) -> Entry | None:
        """Whose slot it is; None when that request was ended while its step ran."""
        return self._book.get(self._numbers[slot])

    def holders(self, slots: Iterable[int]) -> list[Entry | None]:
        return [self.holder(slot) for slot in slots]

    def clear(self) -> None:
        self._numbers.clear()
