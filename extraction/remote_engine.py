"""An OpenAI-compatible server (vLLM, SGLang, another pagemill) in the place of an engine.

It is asked for chat completions with the page's schema as `response_format`; its text becomes
tokens of our own tokenizer, so that answers are checked, merged and aligned as any engine's are.
"""

from __future__ import annotations

import http.client
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson
from pagemill.engine.client import OutputStream
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.protocol import EngineStats, FinishReason, Output, Request, Usage, Welcome
from pagemill.engine.tokenizer import Tokenizer

from . import prompt
from .answers import Prepared
from .config import TOKEN_VARIABLE, Settings, check_server_url
from .links import with_link_ids

_TRIES = 4
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 15.0
_BUSY = frozenset({429, 500, 502, 503, 504})
# JSON escapes, and fields that we don't read, beside the text.
_MAX_REPLY_BYTES, _BYTES_PER_TOKEN = 256 * 1024, 64
_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


@dataclass(frozen=True)
class RemoteServer:
    """Where a server is: `url` up to and with /v1, the model's name there.

    `timeout_s` bounds one answer, all tries together; `concurrency` the answers at once.
    """

    url: str
    model: str
    max_model_len: int
    concurrency: int = 32
    timeout_s: float = 120.0
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        check_server_url(self.url)
        if any(not 0x20 < ord(character) < 0x7F for character in self.token):
            raise ValueError(f"{TOKEN_VARIABLE} holds characters that no token has")


class RemoteEngine:
    """Answers pages through a server's /chat/completions; thread-safe, see `engine.client.Engine`.

    Requests that fail for the moment (no connection, 429, 5xx) are tried again with growing pauses.
    When that doesn't help the burst ends with EngineError(OVERLOADED): nobody blames its pages. A
    status of 500, or silence until the time is up, may be a page's fault: only that page fails.
    """

    def __init__(self, server: RemoteServer, tokenizer: Tokenizer) -> None:
        self._server = server
        self._tokenizer = tokenizer
        self._parts = urlsplit(server.url)
        self._tls = ssl.create_default_context() if self._parts.scheme == "https" else None
        self._pool = ThreadPoolExecutor(server.concurrency, thread_name_prefix="remote")
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._cancelled: set[str] = set()
        self._closed = threading.Event()
        self.info = Welcome(
            model=server.model,
            tokenizer_hash=tokenizer.hash,
            max_model_len=server.max_model_len,
            vocab_size=tokenizer.vocab_size,
            max_num_seqs=server.concurrency,
        )

    @classmethod
    def connect(cls, server: RemoteServer, tokenizer: Tokenizer) -> RemoteEngine:
        """Return a client of a server that answers; EngineError says what is wrong with it."""
        engine = cls(server, tokenizer)
        try:
            engine.stats()
        except EngineError:
            engine.close()
            raise
        return engine

    def stats(self, timeout_s: float = 5.0) -> EngineStats:
        """Ask the server for its models; EngineError when it is silent or hasn't ours."""
        try:
            status, body, _ = self._call(
                "GET", "/models", None, time.monotonic() + timeout_s, 1 << 20
            )
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise EngineError(
                EngineReason.ENGINE_UNAVAILABLE, f"no answer from the server: {_kind(error)}"
            ) from None
        self._check(status)
        if status != 200:
            raise EngineError(
                EngineReason.ENGINE_UNAVAILABLE, f"the server answers with status {status}"
            )
        names = [model.get("id") for model in _list(_json(body).get("data"))]
        if self._server.model not in names:
            raise EngineError(
                EngineReason.MODEL_INVALID,
                f"the server has no model {self._server.model!r}: set PAGEMILL_ENGINE_MODEL",
            )
        with self._lock:
            running = len(self._running)
        credit = max(0, self._server.concurrency - running)
        return EngineStats(running, 0, 0, 0, credit, 0.0, {})

    def generate(
        self, requests: Sequence[Request], *, tokenizer_hash: str, grammars: Mapping[str, bytes]
    ) -> Iterator[Output]:
        """Refused: a server that has its own tokenizer is asked with `answer`."""
        raise EngineError(EngineReason.MESSAGE_INVALID, "a remote server takes no tokens")

    def answer(self, pages: Sequence[Prepared]) -> OutputStream:
        """Return the last output of each request of the pages; they are sent at once.

        Closing the stream gives up what is left.
        """
        asked = [(page, request) for page in pages for request in page.requests]
        stream = _Stream(self, [request.request_id for _, request in asked])
        with self._lock:
            self._running.update(request.request_id for _, request in asked)
        for page, request in asked:
            self._pool.submit(self._work, page, request, stream.put)
        return stream

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Requests that haven't begun are not sent; what comes of others is dropped."""
        with self._lock:
            self._cancelled.update(self._running.intersection(request_ids))

    def close(self) -> None:
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(
        self, page: Prepared, request: Request, put: Callable[[list[Output] | EngineError], None]
    ) -> None:
        started = time.monotonic()
        try:
            with self._lock:
                cancelled = request.request_id in self._cancelled
            if cancelled:
                return
            if page.schema.verbatim:
                message = (
                    "only an engine of ours holds strings to the page's words (x-pagemill-...)"
                )
                put([_failed(request, EngineReason.GRAMMAR_INVALID, message)])
                return
            status, body = self._ask(page, request, started)
            put([self._output(request, status, body, time.monotonic() - started)])
        except EngineError as error:
            put(error)
        except TimeoutError:
            message = "the server gave no answer in time"
            put([_failed(request, EngineReason.ENGINE_UNAVAILABLE, message)])
        except Exception as error:
            message = f"the server's answer can't be used: {_kind(error)}"
            put([_failed(request, EngineReason.ENGINE_ERROR, message)])
        finally:
            with self._lock:
                self._running.discard(request.request_id)
                self._cancelled.discard(request.request_id)

    def _ask(self, page: Prepared, request: Request, started: float) -> tuple[int, bytes]:
        """The server's answer, after as many tries as that takes and the time allows."""
        timeout_s = self._server.timeout_s
        if request.timeout_s:
            timeout_s = min(timeout_s, request.timeout_s)
        deadline = started + timeout_s
        content = orjson.dumps(self._body(page, request))
        limit = _MAX_REPLY_BYTES + _BYTES_PER_TOKEN * request.sampling.max_tokens
        pause = _FIRST_PAUSE_S
        for attempt in range(1, _TRIES + 1):
            wait_s = 0.0
            try:
                status, body, wait_s = self._call(
                    "POST", "/chat/completions", content, deadline, limit
                )
                if status not in _BUSY:
                    return status, body
                last = f"status {status}"
                if attempt == _TRIES and status == 500:
                    return status, body
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException) as error:
                last = _kind(error)
            # A little at random, so that requests that failed together don't come back together.
            pause_s = max(wait_s, pause * random.uniform(0.5, 1.0))
            pause *= 2
            if attempt == _TRIES or time.monotonic() + pause_s > deadline:
                break
            if self._closed.wait(min(pause_s, _LONGEST_PAUSE_S)):
                break
        raise EngineError(EngineReason.OVERLOADED, f"the server doesn't answer: {last}")

    def _body(self, page: Prepared, request: Request) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self._server.model,
            "messages": [
                {"role": "system", "content": page.schema.prompt.system},
                {"role": "user", "content": prompt.framed(request.page.decode())},
            ],
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "record",
                    "strict": True,
                    "schema": plain_schema(with_link_ids(page.schema.schema)),
                },
            },
        }
        if sampling.temperature > 0:
            body["seed"] = sampling.seed
        return body

    def _call(
        self, method: str, path: str, body: bytes | None, deadline: float, limit: int
    ) -> tuple[int, bytes, float]:
        """Status, body and Retry-After (seconds) of one request; OSError past `deadline`."""
        host, port = self._parts.hostname or "", self._parts.port
        timeout_s = _left(deadline)
        connection: http.client.HTTPConnection
        if self._tls is not None:
            connection = http.client.HTTPSConnection(
                host, port, timeout=timeout_s, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._server.token:
            headers["Authorization"] = f"Bearer {self._server.token}"
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
            assert connection.sock is not None
            connection.sock.settimeout(_left(deadline))
            socket = connection.sock
            reply = connection.getresponse()
            data = bytearray()
            while piece := reply.read1(65536):
                data += piece
                if len(data) > limit:
                    raise ValueError(f"a reply of more than {limit} bytes")
                # Each read has its own patience: one that trickles would have no end.
                socket.settimeout(_left(deadline))
            after = reply.headers.get("Retry-After", "")
            return reply.status, bytes(data), float(after) if after.isdigit() else 0.0
        finally:
            connection.close()

    def _check(self, status: int) -> None:
        if status in (401, 403):
            raise EngineError(
                EngineReason.MODEL_INVALID,
                f"the server refuses us (status {status}): set {TOKEN_VARIABLE}",
            )
        if status == 404:
            raise EngineError(
                EngineReason.MODEL_INVALID, "the server has no such address or model (status 404)"
            )

    def _output(self, request: Request, status: int, body: bytes, seconds: float) -> Output:
        self._check(status)
        if status != 200:
            # The server's own words may quote the page.
            return _failed(
                request, EngineReason.ENGINE_ERROR, f"the server refuses the page (status {status})"
            )
        reply = _json(body)
        choice = _list(reply["choices"])[0]
        finish = _FINISH.get(choice.get("finish_reason") or "stop")
        text = choice["message"].get("content")
        if finish is None or not isinstance(text, str):
            return _failed(request, EngineReason.ENGINE_ERROR, "the server gave no answer")
        usage = reply.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        return Output(
            request.request_id,
            tuple(self._tokenizer.encode(text).tolist()),
            finish=finish,
            usage=Usage(
                prompt_tokens=_count(usage, "prompt_tokens"),
                cached_tokens=_count(details, "cached_tokens"),
                completion_tokens=_count(usage, "completion_tokens"),
            ),
            first_token_s=seconds,
            finished_s=seconds,
        )


class _Stream(OutputStream):
    def __init__(self, engine: RemoteEngine, request_ids: Sequence[str]) -> None:
        super().__init__(request_ids)
        self._engine = engine

    def cancel(self, request_ids: list[str]) -> None:
        self._engine.cancel(request_ids)


def plain_schema(schema: Any) -> Any:
    """Return a schema without our own keywords (`x-...`), which others may refuse."""
    if isinstance(schema, Mapping):
        return {
            key: {name: plain_schema(inner) for name, inner in value.items()}
            if key in _NAMED and isinstance(value, Mapping)
            else value
            if key in _VALUES
            else plain_schema(value)
            for key, value in schema.items()
            if not key.startswith("x-")
        }
    if isinstance(schema, list | tuple):
        return [plain_schema(inner) for inner in schema]
    return schema


# Under these stand names that are the author's, and values that are no schemas.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"enum", "const", "default", "examples", "required"})


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is up")
    return left


def _kind(error: Exception) -> str:
    # Errors of reading quote what they read.
    quiet = isinstance(error, orjson.JSONDecodeError | http.client.HTTPException | LookupError)
    return type(error).__name__ if quiet else f"{type(error).__name__}: {error}"[:200]


def _json(body: bytes) -> dict[str, Any]:
    value = orjson.loads(body)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return value


def _list(value: Any) -> list[dict[str, Any]]:
    return value if isinstance(value, list) else []


def _count(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return value if isinstance(value, int) and value >= 0 else 0


def _failed(request: Request, reason: EngineReason, message: str) -> Output:
    return Output(request.request_id, finish="error", reason=reason.value, message=message)


def server_of(settings: Settings) -> RemoteServer:
    """Return the server that the settings and the environment name."""
    return RemoteServer(
        url=settings.engine_url,
        model=settings.engine_model or settings.model,
        max_model_len=settings.engine_max_model_len,
        concurrency=settings.engine_concurrency,
        timeout_s=settings.engine_timeout_s,
        token=os.environ.get(TOKEN_VARIABLE, "").strip(),
    )
