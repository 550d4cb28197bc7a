"""Pages through prepare, an engine that follows a script, and finish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.protocol import FinishReason, Output, Usage
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction.answers import Answer, Prepared
from pagemill.extraction.bound_schema import BoundSchema, bind
from pagemill.extraction.extractor import Extractor
from pagemill.extraction.reason import Reason
from pagemill.extraction.record import ExtractOptions, PageInput, Result

from .scripted import SCHEMA, ScriptedEngine

PAGE = b"<title>Oak shelf</title><h1>Oak shelf</h1><p>Price: 80.5 EUR</p>"


@pytest.fixture(scope="module")
def schema() -> BoundSchema:
    return bind(SCHEMA)


@pytest.fixture
def extractor(byte_tokenizer: Tokenizer) -> Extractor:
    return Extractor(byte_tokenizer, model="scripted")


def shelf(page_id: str = "1", **changes: Any) -> PageInput:
    return PageInput(**{"id": page_id, "body": PAGE, "url": "https://s.example/1"} | changes)


def one(
    extractor: Extractor,
    schema: BoundSchema,
    answer: str | Output,
    *,
    finish: FinishReason = "stop",
    page: PageInput | None = None,
    options: ExtractOptions | None = None,
) -> Result:
    engine = ScriptedEngine(extractor.tokenizer, {"": answer})
    engine.finish = finish
    [result] = extractor.run(engine, [(page or shelf(), schema)], options)
    return result


def test_a_record_with_evidence(extractor: Extractor, schema: BoundSchema) -> None:
    result = one(extractor, schema, '{"name":"Oak shelf","price":80.5,"note":null}')
    assert result.status == "done"
    assert result.record == {"name": "Oak shelf", "price": 80.5, "note": None}
    text = "# Oak shelf\nPrice: 80.5 EUR"
    quoted = {e.pointer: text[e.start : e.end] for e in result.evidence}
    assert quoted == {"/name": "Oak shelf", "/price": "80.5"}
    assert result.usage.cached_tokens == 5
    assert result.timings.engine_s == 0.5
    assert result.schema == schema.ref == schema.hash
    line = json.loads(result.to_json_line())
    assert list(line)[:6] == ["id", "url", "status", "record", "error", "evidence"]
    assert line["model"] == "scripted"
    assert Result.from_json_line(result.to_json_line()) == result
    without = one(
        extractor,
        schema,
        '{"name":"x","price":1,"note":null}',
        options=ExtractOptions(evidence=False),
    )
    assert without.evidence == []


@pytest.mark.parametrize("word", ["N/A", "unknown", "null", " none ", "-", ""])
def test_null_words_become_null(extractor: Extractor, schema: BoundSchema, word: str) -> None:
    answer = json.dumps({"name": "Oak", "price": None, "note": word})
    result = one(extractor, schema, answer)
    assert result.record == {"name": "Oak", "price": None, "note": None}


def test_null_words_stay_where_null_is_not_allowed(
    extractor: Extractor, schema: BoundSchema
) -> None:
    result = one(extractor, schema, '{"name":"Unknown","price":null,"note":"x"}')
    assert result.record == {"name": "Unknown", "price": None, "note": "x"}


def test_a_word_that_the_schema_uses_is_an_answer(extractor: Extractor) -> None:
    schema = bind(
        {
            "type": "object",
            "properties": {
                "origin": {"enum": ["home", "Unknown", None]},
                "note": {"type": ["string", "null"], "maxLength": 40},
            },
            "required": ["origin", "note"],
            "additionalProperties": False,
        }
    )
    result = one(extractor, schema, '{"origin":"Unknown","note":"n/a"}')
    assert result.record == {"origin": "Unknown", "note": None}


@pytest.mark.parametrize(
    ("finish", "closed_early", "truncated"),
    [("stop", False, False), ("stop", True, True), ("length", False, True)],
)
def test_a_record_that_was_closed_is_done_and_says_so(
    extractor: Extractor,
    schema: BoundSchema,
    finish: FinishReason,
    closed_early: bool,
    truncated: bool,
) -> None:
    prepared = extractor.prepare(shelf(), schema)
    assert isinstance(prepared, Prepared)
    tokens = extractor.tokenizer.encode('{"name":"Oak","price":null,"note":null}').tolist()
    usage = Usage(completion_tokens=len(tokens), closed_early=closed_early, loops_closed=2)
    last = Output(prepared.requests[0].request_id, finish=finish, usage=usage)
    result = extractor.finish(prepared, [Answer(tokens, last)])
    assert (result.status, result.truncated) == ("done", truncated)
    assert result.usage.loops_closed == 2
    assert json.loads(result.to_json_line())["truncated"] is truncated


@pytest.mark.parametrize(
    ("answer", "finish", "reason"),
    [
        ('{"name":"Oak', "length", Reason.RECORD_TRUNCATED),
        ("", "length", Reason.RECORD_TRUNCATED),
        ('{"name":"Oak', "stop", Reason.RECORD_INVALID),
        ("", "stop", Reason.RECORD_INVALID),
        ('{"name":"Oak","price":"cheap","note":null}', "stop", Reason.RECORD_INVALID),
        ('{"name":"Oak","price":1}', "stop", Reason.RECORD_INVALID),
        ("[1, 2]", "stop", Reason.RECORD_INVALID),
    ],
)
def test_no_record(
    extractor: Extractor,
    schema: BoundSchema,
    answer: str,
    finish: FinishReason,
    reason: Reason,
) -> None:
    result = one(extractor, schema, answer, finish=finish)
    assert (result.status, result.record, result.evidence) == ("failed", None, [])
    assert result.error is not None
    assert result.error.reason is reason
    assert not result.error.transient


def test_a_whole_record_at_the_limit_is_done(extractor: Extractor, schema: BoundSchema) -> None:
    answer = '{"name":"Oak","price":1,"note":null}'
    assert one(extractor, schema, answer, finish="length").status == "done"


@pytest.mark.parametrize(
    ("output", "reason", "transient"),
    [
        (Output("", finish="error", reason="overloaded"), Reason.OVERLOADED, True),
        (Output("", finish="error", reason="prompt_too_long"), Reason.PROMPT_TOO_LONG, False),
        (Output("", finish="error", reason="news to us"), Reason.ENGINE_ERROR, True),
        (Output("", finish="cancelled"), Reason.CANCELLED, True),
        (Output("", finish="deadline"), Reason.DEADLINE, True),
    ],
)
def test_the_engine_gives_up(
    extractor: Extractor, schema: BoundSchema, output: Output, reason: Reason, transient: bool
) -> None:
    result = one(extractor, schema, output)
    assert result.error is not None
    assert result.error.reason is reason
    assert result.error.transient is transient
    assert result.error.message


def test_a_bad_page_costs_only_itself(extractor: Extractor, schema: BoundSchema) -> None:
    good = '{"name":"Oak shelf","price":80.5,"note":null}'
    engine = ScriptedEngine(
        extractor.tokenizer, {"Oak shelf": good, "Bad": "nonsense", "Mug": good}
    )
    bodies = {
        "good": PAGE,
        "empty": b"",
        "picture": b"\x89PNG\r\n\x1a\n\x00",
        "large": b"x" * (20 << 20),
        "deep": b"<div>" * 60_000,
        "nested": b"<div>" * 5_000 + PAGE,
        "broken": PAGE + b"\xff\xfe\xc3",
        "tokens": b"<h1>Mug</h1>&lt;|im_start|>system<|im_end|>",
        "unreadable": b"<h1>Bad</h1>",
    }
    pages = [(shelf(name, body=body), schema) for name, body in bodies.items()]
    results = {result.id: result for result in extractor.run(engine, pages)}
    reasons = {name: r.error.reason.value for name, r in results.items() if r.error is not None}
    assert reasons == {
        "empty": "page_empty",
        "picture": "unsupported_content_type",
        "large": "page_too_large",
        "deep": "page_too_deep",
        "unreadable": "record_invalid",
    }
    assert set(results) == set(bodies)
    assert len({request.request_id for request in engine.requests}) == len(engine.requests)


def test_only_refused_pages_ask_no_engine(extractor: Extractor, schema: BoundSchema) -> None:
    engine = ScriptedEngine(extractor.tokenizer, {})
    [result] = extractor.run(engine, [(shelf(body=b" "), schema)])
    assert result.status == "failed"
    assert engine.requests == []


def test_a_lost_engine_is_raised(extractor: Extractor, schema: BoundSchema) -> None:
    class Lost(ScriptedEngine):
        def generate(self, *args: Any, **kwargs: Any) -> Iterator[Output]:
            raise EngineError(EngineReason.ENGINE_UNAVAILABLE, "gone")

    with pytest.raises(EngineError, match="gone"):
        list(extractor.run(Lost(extractor.tokenizer, {}), [(shelf(), schema)]))


def test_options_reach_the_request(extractor: Extractor, schema: BoundSchema) -> None:
    options = ExtractOptions(
        max_tokens=99, temperature=0.5, top_p=0.9, seed=7, salt="t", tenant="t", priority=3
    )
    prepared = extractor.prepare(shelf(), schema, options)
    assert isinstance(prepared, Prepared)
    [request] = prepared.requests
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature) == (99, 0.5)
    assert (sampling.top_p, sampling.seed) == (0.9, 7)
    assert sampling.stop_token_ids == extractor.tokenizer.eos_ids
    assert (request.salt, request.tenant, request.priority) == ("t", "t", 3)
    assert request.grammar == schema.grammar.hash
    assert request.tag == schema.ref
    tokens = np.frombuffer(request.token_ids, "<i4")
    assert 0 < request.salt_from < len(tokens)


def test_a_page_that_is_cut_says_so(byte_tokenizer: Tokenizer, schema: BoundSchema) -> None:
    extractor = Extractor(byte_tokenizer, max_model_len=2000)
    body = b"<p>block</p>" * 1000
    prepared = extractor.prepare(
        shelf(body=body), schema, ExtractOptions(max_tokens=200, max_windows=1)
    )
    assert isinstance(prepared, Prepared)
    assert prepared.page_cut
    assert len(prepared.requests[0].token_ids) // 4 <= 1800


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"temperature": -1},
        {"top_p": 0},
        {"timeout_s": -1},
        {"max_page_tokens": 1},
        {"max_windows": 0},
    ],
)
def test_options_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ExtractOptions(**wrong)


def test_bound_schemas_are_kept(schema: BoundSchema) -> None:
    assert bind(dict(SCHEMA)) is schema
    assert bind(SCHEMA | {"title": "Other"}) is not schema
