"""A worker that is alive and consumes nothing is ended, and only such a one."""

from __future__ import annotations

from pagemill.workers.watchdog import STALLED, Watchdog


def looks(*states: tuple[float, int | None, int]) -> list[int]:
    """Exit statuses after (seconds, waiting messages, own tasks), for a stall of ten seconds."""
    ended: list[int] = []
    watchdog = Watchdog(10.0, ended.append)
    for now, messages, tasks in states:
        watchdog.look(messages=messages, tasks=tasks, now=now)
    return ended


def test_messages_beside_an_idle_worker() -> None:
    assert looks((0, 3, 0), (9, 3, 0)) == []
    assert looks((0, 3, 0), (5, 1, 0), (10, 2, 0)) == [STALLED]


def test_whatever_shows_that_it_is_well_begins_anew() -> None:
    for seen in ((5, 0, 0), (5, 3, 1), (5, None, 0)):
        assert looks((0, 3, 0), seen, (12, 3, 0), (21, 3, 0)) == []
