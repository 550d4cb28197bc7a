"""A worker outlives what lies in its list, and works on when Redis is full."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from pagemill.extraction.assembly import open_ledger
from pagemill.extraction.child import wait_until
from pagemill.extraction.config import Settings
from pagemill.extraction.intake import fix_schema, parse_options, submission
from pagemill.extraction.ledger import connect
from pagemill.extraction.stack import EmbeddedRedis, EngineProcess, WorkerProcess
from pagemill.schemas import SchemaRegistry
from pagemill.workers.transport import MAX_BURIED, buried_key, fault_of

from .conftest import SCHEMA

WAIT_S = 60


def message(**changes: Any) -> dict[str, Any]:
    """A task message as Celery writes it, with changes; None takes a part away."""
    parts = {
        "body": base64.b64encode(b"[[], {}, {}]").decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": "pagemill.drain", "id": "1", "argsrepr": "()"},
        "properties": {
            "body_encoding": "base64",
            "delivery_tag": "t1",
            "delivery_info": {"exchange": "", "routing_key": "q"},
        },
    }
    parts.update(changes)
    return {name: part for name, part in parts.items() if part is not None}


def first_protocol(body: object) -> dict[str, Any]:
    return message(headers={}, body=base64.b64encode(json.dumps(body).encode()).decode())


def test_what_celery_sends_has_no_fault(redis_client: redis.Redis, redis_server: Any) -> None:
    app = Celery("crawler", broker=redis_server.broker_url)
    app.send_task("pagemill.drain", queue="q")
    app.send_task("pagemill.extract", kwargs={"html": "\U0001f642"}, queue="q")
    for item in redis_client.lrange("q", 0, -1):
        assert fault_of(json.loads(item)) == ""
    assert fault_of(first_protocol({"task": "pagemill.drain", "id": "1", "args": []})) == ""
    app.close()


FOREIGN: list[Any] = [
    1,
    None,
    "text",
    [],
    [1],
    {},
    {"url": "https://shop.example/", "html": "<p>an item of a crawler</p>"},
    message(properties=None),
    message(properties={}),
    message(properties={"delivery_tag": 1, "delivery_info": {"exchange": "", "routing_key": ""}}),
    message(properties={"delivery_tag": "t"}),
    message(properties={"delivery_tag": "t", "delivery_info": {}}),
    message(headers=None),
    message(headers=[]),
    message(headers={"task": "pagemill.drain"}),
    message(headers={"task": 1, "id": "1"}),
    message(headers={"task": "pagemill.drain", "id": "1", "timelimit": "x"}),
    message(headers={"task": "pagemill.drain", "id": "1", "timelimit": ["x", None]}),
    message(headers={"task": "pagemill.drain", "id": "1", "timelimit": [1]}),
    message(headers={"task": "pagemill.drain", "id": "1", "stamped_headers": 1}),
    message(headers={"task": "pagemill.drain", "id": "1", "retries": "x"}),
    message(body=None),
    message(body=1),
    message(body="%%%"),
    first_protocol([1]),
    first_protocol({"task": "pagemill.drain"}),
    message(headers={}, body="x"),
]


@pytest.mark.parametrize("item", FOREIGN, ids=lambda item: repr(item)[:40])
def test_what_is_no_message_has_one(item: Any) -> None:
    assert fault_of(item)


@pytest.fixture(scope="module", params=["prefork", "solo"])
def worker(request: pytest.FixtureRequest, model_files: object) -> Iterator[WorkerProcess]:
    with (
        EmbeddedRedis() as server,
        EngineProcess(options=["--executor", "fake"]) as engine,
    ):
        settings = Settings(
            redis_url=server.url, engine_endpoint=engine.endpoint, burst_size=4, lease_s=5.0
        )
        with WorkerProcess(settings, options=["--pool", request.param]) as worker:
            yield worker


def settings_of(worker: WorkerProcess) -> Settings:
    return worker._settings


def works(worker: WorkerProcess, name: str) -> None:
    """The very same worker process extracts a page."""
    settings = settings_of(worker)
    app = Celery("crawler", broker=settings.broker_url, backend=settings.broker_url)
    arguments = {"html": f"<p>{name}</p>", "schema": SCHEMA, "max_tokens": 64}
    sent = app.send_task("pagemill.extract", kwargs=arguments, queue=settings.queue)
    assert sent.get(timeout=WAIT_S)["status"] == "done"
    sent.forget()
    app.close()
    assert worker.is_running()


@pytest.mark.model
def test_foreign_items_are_buried_and_the_worker_lives(worker: WorkerProcess) -> None:
    settings = settings_of(worker)
    client = connect(settings.redis_url)
    raw = [json.dumps(item).encode() for item in FOREIGN]
    raw += [b"", b"not json", b"\xff\xfe", b"{" * 50, b"[" * 50_000, b'"' + b"x" * 1_000_000 + b'"']
    # Lost, not kept: kombu's JSON can't even be read.
    odd = json.dumps({"__type__": "uuid", "__value__": 5}).encode()
    client.lpush(settings.queue, odd, *raw)
    assert wait_until(lambda: client.llen(settings.queue) == 0, WAIT_S)
    works(worker, "after foreign items")
    kept = client.lrange(buried_key(settings.queue), 0, -1)
    assert len(raw) - 1 <= len(kept) <= len(raw)  # what is nested too deeply may be lost
    assert b"not json" in kept
    assert "\ufffd\ufffd".encode() in kept  # kombu has replaced what is no UTF-8
    assert max(map(len, kept)) <= 65_536
    log = worker.stderr_path.read_bytes() + worker.stdout_path.read_bytes()
    assert b"foreign_item" in log
    assert b"an item of a crawler" not in log
    assert wait_until(lambda: client.hlen("unacked") == 0, WAIT_S)
    client.lpush(settings.queue, *[b"x"] * (MAX_BURIED + 20))
    assert wait_until(lambda: client.llen(settings.queue) == 0, WAIT_S)
    works(worker, "after many")
    assert client.llen(buried_key(settings.queue)) == MAX_BURIED


@pytest.mark.model
def test_a_task_nobody_knows_and_arguments_nobody_takes(worker: WorkerProcess) -> None:
    settings = settings_of(worker)
    app = Celery("crawler", broker=settings.broker_url, backend=settings.broker_url)
    app.send_task("no.such.task", queue=settings.queue)
    app.send_task("pagemill.drain", args=[1, 2, 3], queue=settings.queue)
    client = connect(settings.redis_url)
    for odd in (b"gzip", b"[1]", b"{}", b"null"):
        body = base64.b64encode(odd).decode()
        client.lpush(settings.queue, json.dumps(message(body=body)))
    client.lpush(settings.queue, json.dumps(message(**{"content-type": "application/x-pickle"})))
    headers = message()["headers"]
    for change in ({"eta": "x"}, {"expires": []}, {"compression": "zzz"}, {"id": "x" * 100_000}):
        client.lpush(settings.queue, json.dumps(message(headers={**headers, **change})))
    app.close()
    works(worker, "after odd tasks")


@pytest.mark.model
def test_work_goes_on_when_redis_is_full(worker: WorkerProcess) -> None:
    settings = settings_of(worker)
    client = connect(settings.redis_url)
    ledger = open_ledger(settings)
    works(worker, "before")
    registry = SchemaRegistry(client, settings.namespace)
    pages = [
        submission(
            f"<p>full {n}</p>".encode(),
            schema=fix_schema(registry, SCHEMA),
            model=settings.model,
            options=parse_options({"max_tokens": 64}),
        )
        for n in range(20)
    ]
    ledger.submit(pages, batch="full")
    client.config_set("maxmemory", 1)
    try:
        # No message was sent: the reconciler has to ring, and the pool to take the message.
        assert wait_until(lambda: done(ledger, "full") == 20, WAIT_S), ledger.depth()
        assert worker.is_running()
        time.sleep(2.5)  # a search for messages to deliver again
        assert worker.is_running()
    finally:
        client.config_set("maxmemory", 0)
    works(worker, "after")


def done(ledger: Any, batch: str) -> int:
    status = ledger.batch(batch)
    return 0 if status is None else int(status.done)
