"""kill -9 of each process in the middle of a burst: nothing lost, nothing doubled."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pagemill.extraction.reason import Refused

if TYPE_CHECKING:
    from .conftest import Line
else:
    Line = Any

pytestmark = pytest.mark.model

PAGES = 240


def check_all_done(line: Line, batch: str, count: int) -> None:
    """Each page has one record, made once, and nothing is left in the ledger."""
    line.wait_finished(batch, count)
    records, _ = line.ledger.records(batch, count=10 * count)
    assert Counter(record.client_id for record in records) == Counter(
        f"lamp-{number}" for number in range(count)
    )
    assert Counter(record.state for record in records) == {"done": count}
    for record in records:
        result = msgspec.json.decode(record.result or b"")
        assert set(result["record"]) == {"in_stock", "rating"}
        assert line.journal[record.client_id] == record.result
    depth = line.ledger.depth()
    assert (depth.queued, depth.leased, depth.dead) == (0, 0, 0)
    assert depth.submitted == depth.done == count
    left = {key.split(b"}:")[1].split(b":")[0] for key in line.ledger.redis.scan_iter("{*")}
    assert not left & {b"body", b"queue", b"waiters", b"leases"}


def test_worker_then_engine(line: Line) -> None:
    line.ledger.submit([line.page(number) for number in range(PAGES)], batch="b")
    line.wait_finished("b", PAGES // 6)
    assert line.ledger.depth().leased > 0
    line.worker.kill()
    line.worker.start()
    line.wait_finished("b", PAGES // 2)
    line.engine.kill()
    before = line.finished("b")
    line.engine.start()
    check_all_done(line, "b", PAGES)
    assert before < PAGES
    assert line.ledger.depth().lost > 0


def test_the_ledgers_server(line: Line) -> None:
    accepted = line.ledger.submit([line.page(number) for number in range(80)], batch="b")
    line.wait_finished("b", 10)
    line.redis.kill()
    with pytest.raises(Refused, match="Redis can't serve"):
        line.ledger.submit([line.page(number) for number in range(80, 120)], batch="b")
    time.sleep(0.5)
    line.redis.start()
    again = line.ledger.submit([line.page(number) for number in range(120)], batch="b")
    assert [answer.page_id for answer in again[:80]] == [answer.page_id for answer in accepted]
    assert not any(answer.created for answer in again[:80])
    check_all_done(line, "b", 120)
