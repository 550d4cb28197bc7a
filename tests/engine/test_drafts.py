"""Drafts don't change answers: forced runs and copied spans against decoding token by token."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from pagemill import _core
from pagemill.engine.byte_pairs import BytePairs
from pagemill.engine.config import EngineConfig
from pagemill.engine.executor.rows import NO_I32, Drafts, StepRows
from pagemill.engine.protocol import GrammarTable, Request, Submit
from pagemill.engine.vocabulary import Vocabulary

from .conftest import CoreHarness

Make = Callable[..., Any]

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 14},
        "kind": {"enum": ["paper", "plastic"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 4},
        "count": {"type": ["integer", "null"], "maximum": 99999, "minimum": 0},
    },
    "required": ["title", "kind", "tags", "count"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def record_grammar() -> tuple[str, bytes]:
    from pagemill.schemas.compiler import compile

    compiled = compile(SCHEMA, timeout_s=30.0)
    return compiled.hash, compiled.table


def requests_of(request_of: Make, grammar: str, temperature: float) -> list[Request]:
    shared = list(range(1, 38))
    requests = [
        request_of(
            f"r{i}", shared + [100 + i % 3] * (3 * i), grammar=grammar,
            max_tokens=150 if i > 1 else 56 + i,
            temperature=temperature, top_p=0.95, seed=i,
        )
        for i in range(7)
    ]  # fmt: skip
    requests.append(request_of("free", shared, max_tokens=20, temperature=temperature))
    requests.append(request_of("stop", shared, grammar=grammar, stop_token_ids=(ord(":"),)))
    return requests


def answers(core: Any, requests: list[Request], grammar: tuple[str, bytes]) -> dict[str, Any]:
    core.handle(Submit("bytes-1", requests))
    core.handle(GrammarTable(*grammar))
    core.run()
    return {r.request_id: (core.tokens(r.request_id), core.last(r.request_id)) for r in requests}


def page_of(tokens: list[int]) -> bytes:
    """A page that says what a record says, a value a line."""
    text = bytes(tokens).decode("utf-8", "replace")
    try:
        record = json.loads(text)
    except ValueError:
        return text.encode()
    lines = [f"# {record['title']}", f"Kind: {record['kind']}", "Tags:", *record["tags"]]
    return "\n".join([*lines, f"count: {record['count']}", "the end"]).encode()


@pytest.fixture(scope="module", params=[0.0, 1.0], ids=["greedy", "sampled"])
def undrafted(request: Any, request_of: Make, record_grammar: tuple[str, bytes]) -> Any:
    """Requests with pages that say what the answers say, and the answers without drafts."""
    requests = requests_of(request_of, record_grammar[0], request.param)
    core = harness(max_num_seqs=5, speculation="off")
    expected = answers(core, requests, record_grammar)
    counters = core.core.stats().counters
    assert counters["scheduler_drafted_tokens"] == 0
    pages = [page_of(expected[r.request_id][0]) for r in requests]
    asked = [msgspec.structs.replace(r, page=p) for r, p in zip(requests, pages, strict=True)]
    return asked, expected


def harness(**settings: Any) -> CoreHarness:
    return CoreHarness(EngineConfig(model="fake", **settings))


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(
    ("speculation", "most"), [("forced", 12), ("page", 12), ("auto", 12), ("auto", 1)]
)
def test_answers_are_those_without_drafts(
    undrafted: Any, record_grammar: tuple[str, bytes], cache: bool, chunked: bool,
    speculation: str, most: int,
) -> None:  # fmt: skip
    requests, expected = undrafted
    core = harness(
        max_num_seqs=5,
        speculation=speculation,
        num_speculative_tokens=most,
        enable_prefix_caching=cache,
        enable_chunked_prefill=chunked,
        max_num_batched_tokens=24 if chunked else 1024,
        num_blocks=24,  # few enough for preemptions
    )
    got = answers(core, requests, record_grammar)
    for request_id, (tokens, last) in expected.items():
        assert got[request_id][0] == tokens
        assert got[request_id][1].finish == last.finish
        assert got[request_id][1].usage.closed_early == last.usage.closed_early
        assert got[request_id][1].usage.loops_closed == last.usage.loops_closed
    # Else drafts would not have met the narrowed masks of closing.
    assert expected["r0"][1].usage.closed_early or expected["r1"][1].usage.closed_early
    counters = core.core.stats().counters
    assert counters["scheduler_drafts_accepted"] > 0
    usages = [last.usage for _, last in got.values()]
    assert sum(u.forced_tokens for u in usages) == counters["forced_tokens"]
    assert sum(u.drafted_tokens for u in usages) == counters["copied_tokens"]
    assert (counters["forced_tokens"] > 0) == (speculation != "page")
    assert (counters["copied_tokens"] > 0) == (speculation != "forced")
    assert got["free"][1].usage.forced_tokens == 0


def test_a_misleading_page_costs_no_answer(
    make_core: Make, request_of: Make, record_grammar: tuple[str, bytes]
) -> None:
    requests = requests_of(request_of, record_grammar[0], 0.0)
    expected = answers(make_core(speculation="off"), requests, record_grammar)
    pages = [b"# Nothing\nkind: paper\ntags:\n- a\n- b\n", b'\xff\xfe"\\\n\x00: ', b"x" * 3_000_000]
    misled = [msgspec.structs.replace(r, page=pages[i % 3]) for i, r in enumerate(requests)]
    core = make_core()
    got = answers(core, misled, record_grammar)
    assert {k: v[0] for k, v in got.items()} == {k: v[0] for k, v in expected.items()}
    counters = core.core.stats().counters
    assert counters["scheduler_drafts_accepted"] < counters["scheduler_drafted_tokens"]


@pytest.mark.parametrize("chunk", [1024, 16])
def test_a_prompts_last_chunk_takes_drafts_along(
    make_core: Make, request_of: Make, record_grammar: tuple[str, bytes], chunk: int
) -> None:
    """The first pass that samples brings what the grammar forces, and a token more."""
    request = request_of("r", list(range(1, 34)), grammar=record_grammar[0], max_tokens=80)
    request = msgspec.structs.replace(request, page=PAGE)
    expected = answers(make_core(speculation="off"), [request], record_grammar)["r"][0]
    core = make_core(max_num_batched_tokens=chunk, max_num_seqs=2, num_speculative_tokens=12)
    core.handle(Submit("bytes-1", [request]))
    core.handle(GrammarTable(*record_grammar))
    while not (outputs := core.outputs.get((b"client", "r"))):
        core.step()
    forced = b'{"title":"'
    assert bytes(outputs[0].token_ids).startswith(forced)
    assert len(outputs[0].token_ids) > len(forced)
    core.run()
    tokens = [token for output in core.outputs[b"client", "r"] for token in output.token_ids]
    assert tokens == expected
    usage = core.outputs[b"client", "r"][-1].usage
    assert usage.forced_tokens == core.core.stats().counters["forced_tokens"] >= len(forced)


# --- the drafter itself ---------------------------------------------------------------------------


class Slot:
    """One slot under a drafter with a token per byte."""

    def __init__(self, table: bytes, page: bytes, *, forced: bool = True, most: int = 64) -> None:
        vocabulary = Vocabulary.of_bytes()
        trie = _core.TokenTrie(vocabulary.tokens, vocabulary.eos_ids)
        self.rows = _core.GrammarRows(1, vocabulary.size)
        encoder = BytePairs.of_bytes().encoder()
        self.grammar = _core.Grammar(_core.ByteDfa.from_bytes(table), trie, encoder)
        self.rows.attach(0, self.grammar)
        self.drafter = _core.Drafter(
            self.rows,
            encoder,
            most_tokens=most,
            forced=forced,
            page=bool(page),
        )
        self.slots = np.zeros(1, dtype=np.int32)
        self.drafter.start(0, NO_I32, page, NO_I32)

    def after(self, text: bytes) -> bytes:
        """Say `text`, and return the draft of what follows."""
        self.step(text, 0)
        starts, drafts = self.drafter.propose(self.slots, fixed_tokens=16.0)
        assert starts.tolist() == [0, len(drafts)]
        assert self.rows.count_legal(0, drafts) == len(drafts)
        return bytes(drafts.tolist())

    def step(self, text: bytes, num_drafts: int) -> None:
        tokens = np.frombuffer(text, dtype=np.uint8).astype(np.int32)
        slots = np.zeros(len(tokens), dtype=np.int32)
        self.rows.advance(slots, tokens, np.zeros(len(tokens), dtype=np.uint8))
        count = np.array([len(tokens)], dtype=np.int32)
        self.drafter.advance(self.slots, count, tokens, np.array([num_drafts], dtype=np.int32))


PAGE = b'menu\n# Blue "Lamp" \n\ntext\nKind: plastic\n## Tags\n- soft light\n- blue\n'


def test_forced_runs(record_grammar: tuple[str, bytes]) -> None:
    slot = Slot(record_grammar[1], b"")
    assert slot.after(b"") == b'{"title":"'
    assert slot.after(b'{"title":"A') == b""
    assert slot.after(b'"') == b',"kind":"p'
    assert slot.after(b',"kind":"pl') == b'astic","tags":['
    assert slot.after(b'astic","tags":["12345678') == b'"'  # no room for a ninth character
    assert slot.after(b'"],"count":n') == b"ull}"
    assert slot.after(b"ull}") == b""


def test_values_are_copied_with_what_the_grammar_adds(record_grammar: tuple[str, bytes]) -> None:
    slot = Slot(record_grammar[1], PAGE)
    # The heading is the first value; what comes after a confirmed start is surer than the start.
    assert slot.after(b"").startswith(b'{"title":"B')
    assert slot.after(b'{"title":"Blue \\"La').startswith(b'mp\\"')  # escaped as it must be
    assert slot.after(b'mp\\"').startswith(b'","kind":"p')  # closed at the end of its line
    assert slot.after(b'","kind":"plastic","tags":').startswith(b"[")
    assert slot.after(b"[").startswith(b'"s')  # the line under the label
    only_page = Slot(record_grammar[1], PAGE, forced=False)
    assert only_page.after(b'{"title":"Blue \\"La').startswith(b'mp\\"')


def test_a_list_goes_on_with_the_next_line() -> None:
    from pagemill.schemas.compiler import compile

    table = compile(
        {"type": "array", "items": {"type": "string", "maxLength": 30}, "maxItems": 5},
        timeout_s=30.0,
    ).table
    slot = Slot(table, b"Steps\n1. Mix the flour.\n2. Add 2 eggs\n\n3) Bake\n")
    assert slot.after(b'["Mix the fl').startswith(b"our.")
    assert slot.after(b'our."').startswith(b',"')
    assert slot.after(b',"').startswith(b"A")
    assert slot.after(b'Add 2 eggs"').startswith(b',"')
    assert slot.after(b',"').startswith(b"B")


def test_what_earlier_records_had_is_guessed(record_grammar: tuple[str, bytes]) -> None:
    record = b'{"title":"A","kind":"paper","tags":[],"count":null}'
    slot = Slot(record_grammar[1], b"nothing")
    slot.after(record)
    slot.drafter.end(0)
    slot.rows.attach(0, slot.grammar)
    slot.drafter.start(0, NO_I32, b"another", NO_I32)
    assert slot.after(b'{"title":"B"').startswith(b',"kind":"p')
    assert slot.after(b',"kind":"paper","tags":[').startswith(b"]")
    assert slot.after(b'],"count":').startswith(b"n")


def test_drafts_that_fail_become_rare(record_grammar: tuple[str, bytes]) -> None:
    """A page that is never right is asked once in a while; one slot after the other learns it."""
    slot = Slot(record_grammar[1], b"x", forced=False, most=8)
    drafted = []
    for _ in range(200):
        slot.rows.attach(0, slot.grammar)
        slot.drafter.start(0, NO_I32, b"# Wrong\n", NO_I32)
        drafted.append(len(slot.after(b'{"title":"')))
        slot.step(b'N"', drafted[-1])
    assert drafted[0] > 0
    assert sum(drafted[-20:]) <= 3


def test_a_fuller_batch_drafts_what_is_surer(record_grammar: tuple[str, bytes]) -> None:
    """Unsure tokens are left out where they cost as much as sure ones; forced text stays."""
    lengths = []
    for fixed in (200.0, 16.0, 4.0, 0.0):
        slot = Slot(record_grammar[1], PAGE)
        slot.step(b'{"title":"Blue', 0)
        _, drafts = slot.drafter.propose(slot.slots, fixed_tokens=fixed)
        lengths.append(len(drafts))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1]
    forced = Slot(record_grammar[1], PAGE)
    _, drafts = forced.drafter.propose(forced.slots, fixed_tokens=0.0)
    assert bytes(drafts.tolist()) == b'{"title":"'
    with pytest.raises(ValueError, match="at least nothing"):
        forced.drafter.propose(forced.slots, fixed_tokens=-1.0)


def test_positions_of_drafts() -> None:
    rows = StepRows(
        slots=np.array([3, 1, 4], np.int32),
        query_start=np.array([0, 3, 5, 7], np.int32),
        context_lens=np.array([9, 5, 8], np.int32),
        sampled=np.array([1, 0, 1], np.uint8),
        num_drafts=np.array([2, 0, 1], np.int32),
        token_ids=np.arange(10, 17, dtype=np.int32),
        positions=np.zeros(7, np.int32),
        slot_mapping=np.zeros(7, np.int32),
    )
    assert rows.positions_to_choose().tolist() == [0, 1, 2, 5, 6]
    drafts = rows.drafts()
    assert (drafts.starts.tolist(), drafts.tokens.tolist()) == ([0, 2, 3], [11, 12, 16])
    assert drafts.owners().tolist() == [0, 0, 0, 1, 1]
    assert drafts.places().tolist() == [0, 1, 2, 0, 1]
    second: Drafts = drafts.take(np.array([False, True]))
    assert (second.starts.tolist(), second.tokens.tolist()) == ([0, 1], [16])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_verbatim_values_are_the_same_with_drafts(request_of: Make, temperature: float) -> None:
    from pagemill.schemas.compiler import compile

    text = 'Blue "Lamp", 東京\nKind: soft\\light\nblue paper lamp, blue plastic lamp'
    string = {"type": ["string", "null"], "x-pagemill-verbatim": True, "maxLength": 30}
    schema = {
        "type": "object",
        "properties": {
            "title": string,
            "tags": {"type": "array", "items": string, "maxItems": 3},
        },
        "required": ["title", "tags"],
        "additionalProperties": False,
    }
    compiled = compile(schema, timeout_s=30.0)
    grammar = compiled.hash, compiled.table
    asked = [
        request_of(
            f"v{i}", [1, 2, 3, i], grammar=grammar[0], max_tokens=30 + 12 * i, seed=i,
            temperature=temperature,
        )
        for i in range(8)
    ]  # fmt: skip
    page = text.encode()
    requests = [msgspec.structs.replace(r, page=page, verbatim=page) for r in asked]
    got = [
        answers(harness(max_num_seqs=3, num_blocks=24, speculation=speculation), requests, grammar)
        for speculation in ("off", "auto")
    ]
    assert {k: v[0] for k, v in got[0].items()} == {k: v[0] for k, v in got[1].items()}
    copied = []
    for tokens, _ in got[0].values():
        record = json.loads(bytes(token for token in tokens if token < 256))
        copied += [value for value in [record["title"], *record["tags"]] if value is not None]
    assert copied
    assert all(value in text and len(value) <= 30 for value in copied)
