"""A server that is asked for records: what goes wrong with it, and what is made of that."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction import remote_engine
from pagemill.extraction.bound_schema import bind
from pagemill.extraction.config import Settings
from pagemill.extraction.extractor import Extractor
from pagemill.extraction.reason import Reason
from pagemill.extraction.record import ExtractOptions, PageInput, Result
from pagemill.extraction.remote_engine import RemoteEngine, RemoteServer, plain_schema

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 60, "x-pagemill-source": "Product.name"},
        "price": {"type": ["number", "null"]},
    },
    "required": ["name", "price"],
}
GOOD = '{"name":"Oak shelf","price":80.5}'
TOKEN = "sk-very-secret"

Answer = Callable[["Server", BaseHTTPRequestHandler], None]


class Server:
    """Answers chat completions by a script, one entry for each request; the last one stays."""

    def __init__(self) -> None:
        self.script: list[Answer] = [reply(GOOD)]
        self.models_status = 200
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                send(self, served.models_status, {"data": [{"id": "big"}]})

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                served.asked.append(json.loads(self.rfile.read(size)))
                served.headers.append(dict(self.headers))
                script = served.script
                (script.pop(0) if len(script) > 1 else script[0])(served, self)

            def log_message(self, *args: Any) -> None:
                """Nothing is printed."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def send(handler: BaseHTTPRequestHandler, status: int, body: Any, **headers: str) -> None:
    data = json.dumps(body).encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def reply(text: str | None, finish: str = "stop") -> Answer:
    body = {
        "choices": [{"message": {"content": text}, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 90,
            "completion_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 64},
        },
    }
    return lambda server, handler: send(handler, 200, body)


def refuse(status: int, **headers: str) -> Answer:
    body = {"error": {"message": "your page says <p>Oak shelf</p>"}}
    return lambda server, handler: send(handler, status, body, **headers)


def trickle(server: Server, handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def flood(server: Server, handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(64):
        handler.wfile.write(b" " * 65536)


def hang_up(server: Server, handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(remote_engine, "_FIRST_PAUSE_S", 0.01)
    server = Server()
    yield server
    server.close()


def connect(server: Server, tokenizer: Tokenizer, **more: Any) -> RemoteEngine:
    fields: dict[str, Any] = {"model": "big", "max_model_len": 8192, "timeout_s": 10.0}
    return RemoteEngine.connect(
        RemoteServer(server.url, **{**fields, **more}, token=TOKEN), tokenizer
    )


def ask(server: Server, tokenizer: Tokenizer, count: int = 1, **more: Any) -> list[Result]:
    engine = connect(server, tokenizer, **more)
    extractor = Extractor(tokenizer, model="big")
    schema = bind(SCHEMA)
    pages = [
        (PageInput(id=str(n), body=f"<h1>Oak shelf</h1><p>80.50 EUR {n}</p>".encode()), schema)
        for n in range(count)
    ]
    try:
        return list(extractor.run(engine, pages, ExtractOptions(max_tokens=64)))
    finally:
        engine.close()


def test_a_record_with_evidence(server: Server, byte_tokenizer: Tokenizer) -> None:
    [result] = ask(server, byte_tokenizer)
    assert (result.record, result.model) == ({"name": "Oak shelf", "price": 80.5}, "big")
    assert {evidence.pointer for evidence in result.evidence} == {"/name", "/price"}
    assert (result.usage.prompt_tokens, result.usage.cached_tokens) == (90, 64)
    [asked] = server.asked
    system, user = asked["messages"]
    assert bind(SCHEMA).prompt.system == system["content"]
    assert user["content"] == "<page>\n# Oak shelf\n80.50 EUR 0\n</page>"
    form = asked["response_format"]["json_schema"]
    assert form["strict"]
    assert form["schema"] == plain_schema(SCHEMA)
    assert "x-pagemill-source" not in json.dumps(form)
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ("big", 64, 0.0)
    assert server.headers[0]["Authorization"] == f"Bearer {TOKEN}"


def test_addresses_are_asked_for_as_ids(server: Server, byte_tokenizer: Tokenizer) -> None:
    schema = {
        "type": "object",
        "properties": {"shop": {"type": "string", "format": "uri"}},
        "required": ["shop"],
    }
    server.script = [reply('{"shop":"L1"}')]
    engine = connect(server, byte_tokenizer)
    page = PageInput(id="1", url="https://a.example/", body=b"<p><a href=/shop>Shop</a></p>")
    [result] = Extractor(byte_tokenizer).run(engine, [(page, bind(schema))])
    engine.close()
    assert result.record == {"shop": "https://a.example/shop"}
    [asked] = server.asked
    form = asked["response_format"]["json_schema"]["schema"]
    assert set(form["properties"]["shop"]) == {"type", "pattern"}


def test_more_pages_than_answers_at_once(server: Server, byte_tokenizer: Tokenizer) -> None:
    results = ask(server, byte_tokenizer, 40, concurrency=3)
    assert sorted(int(result.id) for result in results) == list(range(40))
    assert all(result.status == "done" for result in results)


@pytest.mark.parametrize("failure", [refuse(429, Retry_After="0"), refuse(503), hang_up])
def test_what_fails_for_a_moment_is_tried_again(
    server: Server, byte_tokenizer: Tokenizer, failure: Answer
) -> None:
    server.script = [failure, failure, reply(GOOD)]
    [result] = ask(server, byte_tokenizer)
    assert result.status == "done"
    assert len(server.asked) == 3


@pytest.mark.parametrize("failure", [refuse(503), hang_up])
def test_a_server_that_stays_away_blames_no_page(
    server: Server, byte_tokenizer: Tokenizer, failure: Answer
) -> None:
    server.script = [failure]
    with pytest.raises(EngineError) as raised:
        ask(server, byte_tokenizer)
    assert raised.value.reason is EngineReason.OVERLOADED
    assert TOKEN not in str(raised.value)
    assert len(server.asked) == 4


def test_time_has_a_bound(server: Server, byte_tokenizer: Tokenizer) -> None:
    server.script = [trickle]
    [result] = ask(server, byte_tokenizer, timeout_s=0.3)
    assert result.error is not None
    assert result.error.transient
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply('{"name":1,"price":2}'), Reason.RECORD_INVALID),
        (reply("no JSON"), Reason.RECORD_INVALID),
        (reply('{"name":"Oak', "length"), Reason.RECORD_TRUNCATED),
        (reply(None), Reason.ENGINE_ERROR),
        (reply(GOOD, "content_filter"), Reason.ENGINE_ERROR),
        (refuse(400), Reason.ENGINE_ERROR),
        (refuse(500), Reason.ENGINE_ERROR),
        (flood, Reason.ENGINE_ERROR),
        (lambda server, handler: send(handler, 200, []), Reason.ENGINE_ERROR),
        (lambda server, handler: send(handler, 200, {"choices": []}), Reason.ENGINE_ERROR),
    ],
)
def test_answers_are_checked_like_an_engines(
    server: Server, byte_tokenizer: Tokenizer, answer: Answer, reason: Reason
) -> None:
    server.script = [answer]
    [result] = ask(server, byte_tokenizer)
    assert result.error is not None
    assert result.error.reason is reason
    assert "Oak shelf" not in result.error.message


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refused_token_or_model_is_the_operators(
    server: Server, byte_tokenizer: Tokenizer, status: int
) -> None:
    server.script = [refuse(status)]
    with pytest.raises(EngineError) as raised:
        ask(server, byte_tokenizer)
    assert raised.value.reason is EngineReason.MODEL_INVALID
    server.models_status = status
    with pytest.raises(EngineError, match=str(status)):
        connect(server, byte_tokenizer)


def test_who_is_not_there_is_said(server: Server, byte_tokenizer: Tokenizer) -> None:
    with pytest.raises(EngineError, match="PAGEMILL_ENGINE_MODEL"):
        connect(server, byte_tokenizer, model="small")
    engine = connect(server, byte_tokenizer)
    assert engine.stats().credit == 32
    server.close()
    with pytest.raises(EngineError) as raised:
        engine.stats()
    assert raised.value.reason is EngineReason.ENGINE_UNAVAILABLE


@pytest.mark.parametrize(
    "url", ["https://user:pw@host/v1", "ftp://host/v1", "host/v1", "http://host/v1?key=secret"]
)
def test_addresses_that_hold_secrets_or_are_none(url: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        Settings(engine_url=url)
    assert "it is neither" in str(raised.value) or "a token goes into" in str(raised.value)
    with pytest.raises(ValueError) as plain:  # noqa: PT011
        RemoteServer(url, model="m", max_model_len=1)
    assert "pw" not in str(plain.value)
    assert "secret" not in str(plain.value)


def test_the_token_is_never_shown() -> None:
    assert TOKEN not in repr(RemoteServer("http://h/v1", "m", 1, token=TOKEN))


def test_own_keywords_leave_a_schema_and_fields_stay() -> None:
    schema = {
        "properties": {"x-name": {"type": "string", "x-pagemill-source": "A.b"}},
        "enum": [{"x-a": 1}],
        "anyOf": [{"x-b": 1, "type": "null"}],
    }
    assert plain_schema(schema) == {
        "properties": {"x-name": {"type": "string"}},
        "enum": [{"x-a": 1}],
        "anyOf": [{"type": "null"}],
    }
