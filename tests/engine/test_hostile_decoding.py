"""Pages and requests made to break decoding: each ends in a valid record, or in a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from pagemill.engine.errors import EngineReason
from pagemill.engine.protocol import GrammarTable, Submit
from pagemill.schemas.compile_worker import compile_schema
from pagemill.schemas.compiler import compile

Make = Callable[..., Any]
STRING = {"type": ["string", "null"], "x-pagemill-verbatim": True, "maxLength": 20}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": STRING,
        "parts": {"type": "array", "items": {**STRING, "maxLength": 2000}, "maxItems": 3},
        "kind": {"enum": ["lamp", "la", 'a "quoted" one', None]},
        "free": {"type": ["string", "null"], "maxLength": 12},
    },
    "required": ["name", "parts", "kind", "free"],
    "additionalProperties": False,
}
PAGES = {
    "empty": b"",
    "spaces": b" \n\t\r  \xc2\xa0 \xe2\x80\x83",
    "controls": bytes(range(32)) + b"lamp\x00lamp\x7f\x01 la\x1bmp",
    "zeros": b"\0" * 5000,
    "lone surrogates": b"lamp \xed\xa0\x80\xed\xb0\x80 lamp \xed\xbf\xbf",
    "broken utf-8": b"la\xff\xfemp \xe2\x82 \xf0\x9f lamp \xc0\x80 \xf5\x80\x80\x80",
    "cut in a character": "blau é".encode()[:-1],
    "one word": b"x" * 200_000,
    "one word of many marks": b"e" + "\u0301".encode() * 60_000,
    "the same word": b"a " * 100_000,
    "the same line": b"<li>same</li>\n" * 14_000,
    "near the cap": b"lamp " * 26_214 + "é".encode() * 40,
    "keys": b'name parts kind free "name": null, "parts": [], "kind"',
    "a record": b'{"name":"lamp","parts":["a","b"],"kind":"la","free":null}' * 9,
    "the end": b'"}]}"}],"kind":null,"free":null}}}',
    "quotes": b'"' * 300 + b' "" \\" "',
    "backslashes": b"\\" * 301 + b' \\n \\u0041 \\"',
    "joined": "👩\u200d👩\u200d👧\u200d👦 🏴\U000e0067\U000e0062 👍🏽\ufe0f 🇩🇪🇫🇷🇩".encode(),
    "marks alone": "\u0301\u0301 \u200d \ufe0f".encode(),
    "no spaces": "東京の本を読む人ไทยภาษา".encode() * 200,
    "right to left": "שלום עולם \u202eabc\u202c مرحبا".encode(),
    "line ends": b"a\r\nb\rc\n\nd\x0be\x0cf\xc2\x85g\xe2\x80\xa8h",
    "numbers": b"-1e5 +0.10 1,234.50 \xd9\xa1\xd9\xa2 007",
    "special tokens": b"<|im_start|>system\nlamp<|im_end|><|endoftext|>",
}


@pytest.fixture(scope="module")
def hostile_grammar() -> tuple[str, bytes]:
    compiled = compile(SCHEMA, timeout_s=30.0)
    return compiled.hash, compiled.table


def finish(core: Any, grammar: tuple[str, bytes], requests: list[Any]) -> dict[Any, Any]:
    """Tokens and the last output of each sample."""
    core.handle(Submit("bytes-1", requests))
    core.handle(GrammarTable(*grammar))
    core.run()
    found: dict[Any, Any] = {}
    for request in requests:
        for output in core.outputs[b"client", request.request_id]:
            tokens, _ = found.get((request.request_id, output.sample), ([], None))
            found[request.request_id, output.sample] = (tokens + list(output.token_ids), output)
    assert core.core.stats().free_blocks == core.core.stats().total_blocks
    return found


def text_of(tokens: list[int]) -> str:
    return bytes(token for token in tokens if token < 256).decode()


@pytest.mark.parametrize("name", PAGES)
def test_no_page_breaks_a_record(
    make_core: Make, request_of: Make, hostile_grammar: tuple[str, bytes], name: str
) -> None:
    page = PAGES[name]
    asked = [
        request_of(f"{budget} {temperature} {seed}", [1, 2, 3, budget % 250],
                   grammar=hostile_grammar[0], max_tokens=budget, temperature=temperature,
                   seed=seed, n=n)
        for budget, temperature, seed, n in (
            (47, 0.0, 0, 1), (60, 2.0, 2**63 - 1, 2), (120, 0.0, 1, 2), (300, 1.0, 3, 1),
        )
    ]  # fmt: skip
    requests = [msgspec.structs.replace(r, page=page, verbatim=page) for r in asked]
    shown = page.decode("utf-8", "replace")
    runs = []
    for switches in ({"speculation": "off"}, {"max_num_batched_tokens": 16}):
        core = make_core(max_num_seqs=3, num_blocks=96, **switches)
        runs.append(finish(core, hostile_grammar, requests))
    for key, (tokens, last) in runs[0].items():
        assert last.finish in ("stop", "length"), last
        assert runs[1][key][0] == tokens
        record = json.loads(text_of(tokens))
        jsonschema.validate(record, SCHEMA)
        for value in [record["name"], *record["parts"]]:
            if value is None:
                continue
            assert value == value.strip()
            start = shown.find(value)
            assert start >= 0
            assert shown[start : start + len(value)] == value


LONG = "a very long name that no budget of ours has room for " * 4


@pytest.mark.parametrize(
    "key", [LONG, 'a "b" \\ c', "ключ 鍵 🔑", "\n\t", "n", ""], ids=lambda key: key[:9]
)
def test_forced_names_of_any_kind(make_core: Make, request_of: Make, key: str) -> None:
    """Names longer than a draft, a chunk or the budget; names that are written in escapes."""
    schema = {
        "type": "object",
        "properties": {key: {"type": ["integer", "null"], "maximum": 99, "minimum": 0}},
        "required": [key],
        "additionalProperties": False,
    }
    compiled = compile(schema, timeout_s=30.0)
    grammar = compiled.hash, compiled.table
    least = len(json.dumps({key: 1}, separators=(",", ":"), ensure_ascii=False).encode())
    requests = [
        request_of(f"r{budget}", [5, 6, 7], grammar=grammar[0], max_tokens=budget)
        for budget in (1, least - 1, least, least + 1, least + 40)
    ]
    runs = []
    for switches in ({"speculation": "off"}, {"num_speculative_tokens": 3}, {}):
        core = make_core(max_num_seqs=4, max_num_batched_tokens=16, **switches)
        runs.append(finish(core, grammar, requests))
    for request_id, budget in (("r1", 1), (f"r{least - 1}", least - 1)):
        last = runs[0][request_id, 0][1]
        assert (last.finish, last.reason) == ("error", EngineReason.BUDGET_TOO_SMALL), budget
        assert str(least) in last.message
    for budget in (least, least + 1, least + 40):
        tokens = [run[f"r{budget}", 0][0] for run in runs]
        assert tokens[0] == tokens[1] == tokens[2]
        jsonschema.validate(json.loads(text_of(tokens[0])), schema)


def test_stop_ids_inside_of_forced_text(
    make_core: Make, request_of: Make, hostile_grammar: tuple[str, bytes]
) -> None:
    """A draft that holds a stop token ends there, as it would without drafts."""
    requests = [
        msgspec.structs.replace(
            request_of(f"r{stop}", [1, 2], grammar=hostile_grammar[0], max_tokens=200,
                       stop_token_ids=(stop,)),
            page=b"lamp", verbatim=b"lamp",
        )
        for stop in (ord("{"), ord("m"), ord(":"), ord("]"), ord("}"), 255, 256)
    ]  # fmt: skip
    runs = [
        finish(make_core(speculation=speculation), hostile_grammar, requests)
        for speculation in ("off", "auto")
    ]
    for request in requests:
        tokens, last = runs[0][request.request_id, 0]
        assert runs[1][request.request_id, 0][0] == tokens
        (stop,) = request.sampling.stop_token_ids
        assert last.finish == "stop"
        assert stop not in tokens
    assert [text_of(runs[0][f"r{ord(c)}", 0][0]) for c in "{m:"] == ["", '{"na', '{"name"']


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 100.0, "seed": 2**63 - 1},
        {"temperature": 1e-6, "seed": 1},
        {"temperature": 1.0, "top_p": 1e-9, "seed": 2},
        {"temperature": 2.0, "n": 16, "seed": 3},
        {"temperature": 0.0, "n": 16},
        {"logprobs": 20},
        {"temperature": 2.0, "logprobs": 0, "seed": 4},
        {"beam_width": 6, "n": 3},
        {"ignore_eos": True},
    ],
    ids=str,
)
def test_sampling_at_its_limits(
    make_core: Make, request_of: Make, hostile_grammar: tuple[str, bytes], sampling: dict[str, Any]
) -> None:
    request = msgspec.structs.replace(
        request_of("r", [256, 0, 255], grammar=hostile_grammar[0], max_tokens=90, **sampling),
        page=PAGES["a record"],
        verbatim=PAGES["a record"],
    )
    runs = [
        finish(make_core(max_num_seqs=8, speculation=speculation), hostile_grammar, [request])
        for speculation in ("off", "auto")
    ]
    assert runs[0].keys() == runs[1].keys()
    for key, (tokens, _) in runs[0].items():
        assert runs[1][key][0] == tokens
        jsonschema.validate(json.loads(text_of(tokens)), SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"seed": -1},
        {"seed": 2**63},
        {"n": 0},
        {"max_tokens": 0},
        {"stop_token_ids": (257,)},
    ],
    ids=str,
)
def test_sampling_beyond_its_limits(
    make_core: Make, request_of: Make, hostile_grammar: tuple[str, bytes], wrong: dict[str, Any]
) -> None:
    core = make_core()
    fine = request_of("fine", [1], grammar=hostile_grammar[0], max_tokens=60)
    bad = request_of("bad", [1], grammar=hostile_grammar[0], **({"max_tokens": 60} | wrong))
    found = finish(core, hostile_grammar, [bad, fine])
    assert found["bad", 0][1].reason == EngineReason.MESSAGE_INVALID
    assert found["fine", 0][1].finish in ("stop", "length")


def test_many_ways_into_a_page_near_the_end() -> None:
    """Closing looks at each token that goes on in a span: few steps, however often it stands."""
    import time

    from pagemill._core import ByteDfa, Grammar, GrammarRows, PageSpans, TokenTrie

    words = [bytes([a, b]) for a in range(97, 123) for b in range(97, 123)]
    tokens = [*(bytes([i]) for i in range(256)), *words, *(word + b" " for word in words), b""]
    grammar = Grammar(
        ByteDfa.from_bytes(compile_schema({"type": "array", "items": STRING})[0]),
        TokenTrie(tokens, [len(tokens) - 1]),
    )
    page = PageSpans(b"ab cd ef " * 14_000)
    rows = GrammarRows(1, len(tokens))
    rows.attach(0, grammar, page)
    rows.set_closing(0, tokens_left=9, loops=True)
    slot = np.zeros(1, dtype=np.int32)
    logits = np.zeros(len(tokens), dtype=np.float32)
    logits[97:123] = 1
    text = b""
    started = time.thread_time()
    for _ in range(9):
        token, end = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.uint8)
        rows.masked_argmax(logits.ctypes.data, len(tokens), slot, token)
        rows.advance(slot, token, end)
        text += tokens[int(token[0])]
        if end[0]:
            break
    assert isinstance(json.loads(text), list)
    print(time.thread_time() - started)
