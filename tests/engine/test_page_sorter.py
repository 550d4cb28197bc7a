"""Pages are sorted before their requests start, and not too many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from pagemill.engine.page_sorter import PageSorter
from pagemill.engine.protocol import GrammarTable, Submit
from pagemill.engine.request_book import Entry, RequestBook

from .conftest import CoreHarness

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def copying() -> tuple[str, bytes]:
    from pagemill.schemas.compiler import compile

    string = {"type": ["string", "null"], "x-pagemill-verbatim": True, "maxLength": 30}
    compiled = compile({"type": "array", "items": string, "maxItems": 4}, timeout_s=30.0)
    return compiled.hash, compiled.table


@pytest.fixture
def entries(make_core: Make, request_of: Make, copying: tuple[str, bytes]) -> Callable[..., Any]:
    core = make_core()
    core.core.grammars.put(*copying)

    def make(book: RequestBook, count: int) -> list[Entry]:
        made = []
        for i in range(count):
            request = request_of(f"r{i}", [1, 2], grammar=copying[0])
            entry = Entry(
                number=book.new_number(),
                client=b"c",
                request=msgspec.structs.replace(request, verbatim=b"blue lamp"),
                prompt=request.token_ids,
                stop_ids=frozenset(),
                arrival=0.0,
                deadline=0.0,
                grammar=core.core.grammars.acquire(copying[0]),
            )
            book.add(entry)
            made.append(entry)
        return made

    return make


def test_some_are_sorted_ahead(entries: Callable[..., Any]) -> None:
    book = RequestBook()
    sorter = PageSorter(book, most=3)
    waiting = entries(book, 8)
    for entry in waiting:
        sorter.add(entry)
    assert [entry.verbatim is not None for entry in waiting] == [True] * 3 + [False] * 5
    assert waiting[0].verbatim is not None
    assert waiting[0].verbatim.result().admits(b"blue lamp")
    waiting[0].cached_tokens = 0  # started
    book.remove(waiting[3])  # ended while it waited
    waiting[4].start(0)  # before its turn
    waiting[4].cached_tokens = 0
    sorter.fill()
    assert [e.verbatim is not None for e in waiting] == [
        True, True, True, False, True, True, False, False,
    ]  # fmt: skip
    for entry in waiting[:3]:
        if entry is not waiting[3]:
            book.remove(entry)
    sorter.fill()
    assert all(entry.verbatim is not None for entry in waiting[4:])


def test_what_copies_nothing_is_let_go(entries: Callable[..., Any]) -> None:
    book = RequestBook()
    sorter = PageSorter(book)
    (entry,) = entries(book, 1)
    entry.grammar = None
    sorter.add(entry)
    sorter.fill()
    assert entry.verbatim is None


@pytest.mark.parametrize("n", [1, 3])
def test_samples_share_a_sorted_page(
    make_core: Callable[..., CoreHarness], request_of: Make, copying: tuple[str, bytes], n: int
) -> None:
    core = make_core(max_num_seqs=2)
    requests = [
        msgspec.structs.replace(
            request_of(f"r{i}", [1, 2, i], grammar=copying[0], max_tokens=60, n=n, temperature=1.0),
            verbatim=b"blue lamp, " * 50,
        )
        for i in range(6)
    ]
    core.handle(Submit("bytes-1", requests))
    core.handle(GrammarTable(*copying))
    core.run()
    for request in requests:
        outputs = core.outputs[b"client", request.request_id]
        assert sum(output.finish is not None for output in outputs) == n
        assert all(output.finish in (None, "stop", "length") for output in outputs)
