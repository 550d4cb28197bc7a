"""The faults by number. Each is a block: it holds inside, and what it broke is whole after it."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import redis
import zmq
from pagemill.engine.protocol import Hello, encode
from pagemill.extraction.intake import parse_options, submission
from pagemill.extraction.ledger import connect
from pagemill.extraction.reason import Reason, Refused
from pagemill.extraction.stack import WorkerProcess

from .conftest import wait
from .stage import OPTIONS, Stage, settle

Fault = Callable[[Stage], contextlib.AbstractContextManager[None]]
LEASE_S = 1.0


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return []


def client(stage: Stage) -> redis.Redis:
    return connect(stage.redis.url)


@contextlib.contextmanager
def f01_kill_a_worker_child(stage: Stage) -> Iterator[None]:
    for pid in children(stage.worker.pid)[:1]:
        os.kill(pid, signal.SIGKILL)
    yield


@contextlib.contextmanager
def f02_kill_a_worker(stage: Stage) -> Iterator[None]:
    stage.worker.kill()
    yield


@contextlib.contextmanager
def f03_end_a_worker_in_order(stage: Stage) -> Iterator[None]:
    stage.worker.stop()
    yield


@contextlib.contextmanager
def f04_kill_the_engine(stage: Stage) -> Iterator[None]:
    stage.engine.kill()
    wait(lambda: not stage.is_ready(), 15, "red readyz")
    yield


@contextlib.contextmanager
def f05_no_memory_for_the_engine(stage: Stage) -> Iterator[None]:
    """The next allocations fail; it may end or answer with errors, and it may not hang."""
    pid = stage.engine.pid
    with contextlib.suppress(ProcessLookupError):
        before = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, before[1]))
        yield
        resource.prlimit(pid, resource.RLIMIT_AS, before)
        return
    yield


@contextlib.contextmanager
def f06_stop_the_engine(stage: Stage) -> Iterator[None]:
    """A hang, not a death: longer than its silence is borne with."""
    pid = stage.engine.pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    settle(stage.settings.engine_timeout_s + 1)
    yield
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _half_a_request(stage: Stage) -> socket.socket:
    url = urlsplit(stage.api.url)
    wire = socket.create_connection((str(url.hostname), int(url.port or 0)), timeout=10)
    wire.sendall(
        b"POST /v1/batches?schema=product HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson"
        b'\r\nContent-Length: 100000\r\n\r\n{"id":"half","html":"<p>half a page'
    )
    return wire


@contextlib.contextmanager
def f07_kill_the_api_while_it_reads(stage: Stage) -> Iterator[None]:
    wire = _half_a_request(stage)
    stage.api.kill()
    wire.close()
    yield


@contextlib.contextmanager
def f08_kill_redis(stage: Stage) -> Iterator[None]:
    """With appendfsync always; everysec may lose the last second of what wasn't acknowledged."""
    stage.redis.kill()
    wait(lambda: not stage.is_ready(), 15, "red readyz")
    yield


@contextlib.contextmanager
def f09_redis_loads_for_long(stage: Stage) -> Iterator[None]:
    """Its file has grown by 300,000 commands."""
    fill = "for n = 1, 300000 do redis.call('SET', 'fill:' .. n % 1000, n) end"
    client(stage).eval(fill, 0)
    stage.redis.kill()
    stage.redis.start()
    yield
    client(stage).delete(*[f"fill:{n}" for n in range(1000)])


def _broker_keys(stage: Stage) -> list[bytes]:
    ours = (b"{", stage.settings.namespace.encode() + b":")
    return [key for key in client(stage).scan_iter("*") if not key.startswith(ours)]


@contextlib.contextmanager
def f10_the_broker_forgets_everything(stage: Stage) -> Iterator[None]:
    for key in _broker_keys(stage):
        client(stage).delete(key)
    yield


@contextlib.contextmanager
def f11_redis_pauses(stage: Stage) -> Iterator[None]:
    client(stage).client_pause(2000)
    yield


@contextlib.contextmanager
def f12_workers_cut_off_from_redis(stage: Stage) -> Iterator[None]:
    """For longer than their leases, which others take over: what they send late is refused."""
    stage.redis_wire.hold()
    settle(1.5 * LEASE_S)
    stage.ledger.reap()
    yield
    stage.redis_wire.release()


@contextlib.contextmanager
def f13_workers_cut_off_from_the_engine(stage: Stage) -> Iterator[None]:
    stage.engine_wire.hold()
    settle(stage.settings.engine_timeout_s + 0.5)
    yield
    stage.engine_wire.release()


@contextlib.contextmanager
def f14_clients_that_dawdle_and_leave(stage: Stage) -> Iterator[None]:
    wires = [_half_a_request(stage) for _ in range(20)]
    for wire in wires[::2]:
        wire.close()
    assert stage.is_ready()
    yield
    for wire in wires[1::2]:
        wire.close()


@contextlib.contextmanager
def f15_poison(stage: Stage) -> Iterator[None]:
    """Pages and schemas that are no good: each ends in a state or at the door."""
    bodies = {
        "deep": b"<div>" * 200_000,
        "nuls": b"\0" * 10_000,
        "not utf-8": b"\xff\xfe\xfd" * 1000,
        "unclosed": b"<table>" * 50_000 + b"<!--",
        "attributes": b"<p " + b"a='b' " * 100_000 + b">x",
    }
    pages = [
        submission(
            text,
            schema=stage.schema,
            model=stage.settings.model,
            client_id=name,
            options=parse_options(OPTIONS),
        )
        for name, text in bodies.items()
    ]
    batch = f"poison-{time.monotonic_ns()}"
    stage.ledger.submit(pages, batch=batch)
    with pytest.raises(Refused) as refused:
        stage.ledger.submit([submission(b"x" * (50 << 20), schema=stage.schema, model="m")])
    assert refused.value.reason == Reason.PAGE_TOO_LARGE
    bomb = {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 50}}}
    reply = httpx.post(
        f"{stage.api.url}/v1/extract",
        json={"html": "<p>x</p>", "schema": bomb},
        timeout=60,
        trust_env=False,
    )
    assert 400 <= reply.status_code < 500, reply.text
    yield
    stage.heal()

    def ended() -> bool:
        with contextlib.suppress(Refused):
            progress = stage.ledger.batch(batch)
            return progress is not None and progress.finished
        return False

    wait(ended, 120, "end of the poison")


@contextlib.contextmanager
def f16_redis_is_full(stage: Stage) -> Iterator[None]:
    server = client(stage)
    server.config_set("maxmemory", "1mb")
    with pytest.raises(Refused) as refused:
        stage.ledger.submit([submission(b"one more", schema=stage.schema, model="m")])
    assert refused.value.reason == Reason.LEDGER_FULL
    yield
    server.config_set("maxmemory", "1gb")


@contextlib.contextmanager
def f17_no_room_for_the_file(stage: Stage) -> Iterator[None]:
    """The append-only file can't grow: the server ends rather than acknowledge what isn't there."""
    before = resource.prlimit(stage.redis.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(stage.redis.pid, resource.RLIMIT_FSIZE, (4096, before[1]))
    with contextlib.suppress(redis.exceptions.RedisError):
        client(stage).set("fill:1", b"x" * 5000)
    wait(lambda: not stage.redis.is_running(), 15, "end of the server")
    yield
    stage.heal()
    client(stage).delete("fill:1")


@contextlib.contextmanager
def f18_a_worker_whose_clock_is_wrong(stage: Stage) -> Iterator[None]:
    """Another worker that is an hour ahead, or behind: deadlines are the server's."""
    hours = stage.chance.choice((-3600, 3600))
    folder = stage.redis_wire.path.parent
    (folder / "sitecustomize.py").write_text(
        f"import time\n_real = time.time\ntime.time = lambda: _real() + {hours}\n"
    )
    path = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with WorkerProcess(
        stage.worker_settings, options=["--pool", "solo"], environment={"PYTHONPATH": path}
    ):
        yield


@contextlib.contextmanager
def f19_messages_come_twice(stage: Stage) -> Iterator[None]:
    server, queue = client(stage), stage.settings.queue
    for _ in range(50):
        for item in server.lrange(queue, 0, 0):  # type: ignore[union-attr]
            server.lpush(queue, item, item)
        settle(0.01)
    yield


@contextlib.contextmanager
def f20_answers_come_too_late(stage: Stage) -> Iterator[None]:
    """The engine's answers arrive when their bursts have been given up."""
    stage.engine_wire.hold(answers_only=True)
    settle(stage.settings.engine_timeout_s + 1)
    yield
    stage.engine_wire.release()


@contextlib.contextmanager
def f21_messages_get_lost(stage: Stage) -> Iterator[None]:
    """Every doorbell of a second, then one in twenty."""
    server, over = client(stage), threading.Event()

    def steal() -> None:
        until = time.monotonic() + 1
        while not over.wait(0.002):
            with contextlib.suppress(redis.exceptions.RedisError):
                if time.monotonic() < until or stage.chance.random() < 0.05:
                    server.rpop(stage.settings.queue)

    thief = threading.Thread(target=steal)
    thief.start()
    settle(1)
    yield
    over.set()
    thief.join()


@contextlib.contextmanager
def f22_everything_is_restarted(stage: Stage) -> Iterator[None]:
    """One after the other, each in order."""
    for child in (stage.worker, stage.engine, stage.api, stage.redis):
        if child.is_running():
            child.stop()
        child.start()
    yield


@contextlib.contextmanager
def f23_another_version_speaks(stage: Stage) -> Iterator[None]:
    """To the engine: an older and a newer message, and none at all."""
    context = zmq.Context()
    try:
        wire = context.socket(zmq.DEALER)
        wire.connect(stage.engine.endpoint)
        frame = encode(Hello("another"))
        for other in (frame[0] - 1, frame[0] + 1):
            wire.send(bytes([other]) + frame[1:])
        wire.send(b"")
        if stage.engine.is_running():
            assert wire.poll(10_000), "no answer to another version"
            assert b"version_mismatch" in wire.recv()
    finally:
        context.destroy(linger=0)
    yield


@contextlib.contextmanager
def f24_no_connection_is_left(stage: Stage) -> Iterator[None]:
    """Redis takes no more clients, and those that it has are cut off."""
    server = client(stage)
    server.config_set("maxclients", 40)
    wires = []
    with contextlib.suppress(OSError):
        for _ in range(60):
            wire = socket.socket(socket.AF_UNIX)
            wire.connect(str(stage.redis.socket_path))
            wires.append(wire)
    stage.redis_wire.cut()
    settle(1)
    yield
    for wire in wires:
        wire.close()
    with contextlib.suppress(redis.exceptions.RedisError):
        server.config_set("maxclients", 10_000)


@contextlib.contextmanager
def f25_wires_are_slow_and_lose(stage: Stage) -> Iterator[None]:
    for wire in (stage.redis_wire, stage.engine_wire):
        wire.delay_s, wire.loss = 0.02, 0.02
    settle(2)
    yield


FAULTS: dict[int, Fault] = {
    int(name[1:3]): fault
    for name, fault in sorted(globals().items())
    if name[0] == "f" and name[1:3].isdigit()
}
