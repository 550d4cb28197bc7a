"""`pagemill dead`: what was given up can be looked at, tried again and dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pagemill.extraction.ledger import Ledger, PageSubmission, connect
from pagemill.extraction.stack import EmbeddedRedis

from .conftest import Command

BODY = "<h1>Lámpara</h1>".encode()


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def ledger(pagemill: Command, server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setenv("PAGEMILL_REDIS_URL", server.url)
    redis = connect(server.url)
    redis.flushall()
    return Ledger(redis)


def dead(ledger: Ledger, count: int) -> list[str]:
    """Ids of pages that have just been given up, the oldest first."""
    ids = []
    for number in range(count):
        page = PageSubmission(body=BODY, schema="a@1", url=f"https://shop.example/{number}")
        [accepted] = ledger.submit([page])
        while leases := ledger.claim("w", 1):
            ledger.release(leases, "crashed", message="boom")
        ids.append(accepted.page_id)
    return ids


def test_list_and_show(pagemill: Command, ledger: Ledger) -> None:
    assert pagemill("dead", "list").lines == []
    first, second = dead(ledger, 2)
    lines = pagemill("dead", "list").lines
    assert [line["page"] for line in lines] == [first, second]
    assert lines[0]["url"] == "https://shop.example/0"
    assert (lines[0]["reason"], lines[0]["message"]) == ("internal_error", "boom")
    assert lines[0]["attempts"] == 3
    assert [line["page"] for line in pagemill("dead", "list", "--limit", 1).lines] == [first]
    shown = json.loads(pagemill("dead", "show", first).out)
    assert shown == {**lines[0], "body_bytes": len(BODY)}
    assert pagemill("dead", "show", first, "--body").out == BODY


def test_retry_named_pages_and_all(pagemill: Command, ledger: Ledger) -> None:
    first, second, third = dead(ledger, 3)
    done = pagemill("dead", "retry", first, "0" * 64)
    assert (done.status, done.lines) == (1, [{"retried": 1, "left": 1}])
    assert "0" * 64 in done.err
    done = pagemill("dead", "retry", "--all")
    assert (done.status, done.lines, done.err) == (0, [{"retried": 2, "left": 0}], "")
    assert ledger.dead_ids() == []
    assert {ledger.page(page).state for page in (first, second, third)} == {"queued"}  # type: ignore[union-attr]
    assert pagemill("dead", "retry", "--all").lines == [{"retried": 0, "left": 0}]


def test_drop(pagemill: Command, ledger: Ledger) -> None:
    first, second = dead(ledger, 2)
    assert pagemill("dead", "drop", first).lines == [{"dropped": 1, "left": 0}]
    assert ledger.page(first) is None
    assert pagemill("dead", "drop", "--all").lines == [{"dropped": 1, "left": 0}]
    assert ledger.page(second) is None


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (["retry"], 2, "usage"),
        (["drop", "--all", "0" * 64], 2, "usage"),
        (["retry", "zzz"], 2, "request_invalid"),
        (["show", "zzz"], 2, "request_invalid"),
        (["show", "0" * 64], 2, "input_invalid"),
        (["list", "--limit", "0"], 2, "usage"),
        (["list", "--redis-url", "unix:///nonexistent.sock"], 4, "ledger_unavailable"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    pagemill: Command, ledger: Ledger, arguments: list[str], status: int, reason: str
) -> None:
    done = pagemill("dead", *arguments)
    assert (done.status, done.out) == (status, b"")
    (line,) = done.err.splitlines()
    assert line.startswith(f"pagemill: {reason}: ")
