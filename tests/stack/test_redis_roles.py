"""Each role of the compose stack can do its work at the server, and nothing else."""

from __future__ import annotations

import socket
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from celery import Celery
from pagemill.engine.store import ModelFiles
from pagemill.extraction import redis_roles
from pagemill.extraction.config import Settings
from pagemill.extraction.ledger import Ledger, PageSubmission
from pagemill.extraction.stack import ApiProcess, EmbeddedRedis, EngineProcess, WorkerProcess

SCHEMA = {
    "type": "object",
    "properties": {"in_stock": {"type": "boolean"}},
    "required": ["in_stock"],
}


class GuardedRedis(EmbeddedRedis):
    """A server with users, on a port of the loopback interface too, as it has in compose."""

    def __init__(self, users: Path, port: int) -> None:
        super().__init__()
        self._users, self._port = users, port

    def command(self, lifeline: int) -> Sequence[str]:
        command = list(super().command(lifeline))
        command[command.index("--port") + 1] = str(self._port)
        return [*command, "--bind", "127.0.0.1", "--aclfile", str(self._users)]


@dataclass(frozen=True)
class Guarded:
    folder: Path
    port: int

    def url(self, role: str) -> str:
        text = redis_roles._path(self.folder, role).read_text()
        return text.split('"')[1] if '"' in text else text.strip()

    def client(self, role: str) -> redis.Redis:
        return redis.Redis.from_url(self.url(role))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("roles")
    redis_roles.write(folder, "127.0.0.1", Settings())
    for path in folder.rglob("*"):
        if path.name in ("pagemill.toml", "redis-url"):
            path.write_text(path.read_text().replace(":6379/", f":{port}/"))
    with GuardedRedis(folder / "redis" / "users.acl", port):
        yield Guarded(folder, port)


Deed = Callable[[redis.Redis], Any]


def submit(client: redis.Redis) -> None:
    page = PageSubmission(body=b"<p>x</p>", url="https://a.example/", schema="s@1")
    Ledger(client).submit([page])


def subscribe(client: redis.Redis) -> None:
    subscription = client.pubsub()
    subscription.subscribe("celery-task-meta-1")
    assert subscription.get_message(timeout=5) is not None


DEEDS: dict[str, Deed] = {
    "submit": submit,
    "claim": lambda client: Ledger(client).claim("w", 1),
    "read keys": lambda client: client.hgetall("pagemill:api-keys"),
    "ring": lambda client: client.lpush("pagemill", b"{}"),
    "put aside": lambda client: client.lpush("pagemill:foreign", b"x"),
    "unacked": lambda client: client.hset("unacked", "a", "b"),
    "store a page": lambda client: client.hset("crawl:1", "html", b"<p>x</p>"),
    "result": lambda client: client.get("celery-task-meta-1"),
    "subscribe": subscribe,
    "control workers": lambda client: client.publish("/0.celery.pidbox", b"{}"),
    "figures": lambda client: client.info("memory"),
    "queue length": lambda client: client.llen("pagemill"),
    "foreign key": lambda client: client.set("other:1", b"x"),
    "script": lambda client: client.eval("return redis.call('GET', KEYS[1])", 1, "other:1"),
    "list": lambda client: client.scan(0),
    "flush": lambda client: client.flushall(),
    "configure": lambda client: client.config_get("*"),
    "users": lambda client: client.acl_list(),
    "stop": lambda client: client.shutdown(nosave=True),
    "listen in": lambda client: client.client_list(),
    "lua of all keys": lambda client: client.eval("return redis.call('KEYS', '*')", 0),
    "functions": lambda client: client.execute_command("FUNCTION", "FLUSH"),
}
ALLOWED = {
    "api": {"submit", "claim", "read keys", "ring", "put aside", "queue length"},
    "worker": {
        "submit", "claim", "read keys", "ring", "queue length", "put aside", "unacked",
        "store a page", "result", "subscribe", "control workers", "list",
    },
    "producer": {"ring", "store a page", "result", "subscribe", "queue length"},
    "monitor": {"figures", "queue length"},
}  # fmt: skip


@pytest.mark.parametrize("role", ALLOWED)
@pytest.mark.parametrize("deed", DEEDS)
def test_a_role_does_its_work_and_nothing_else(guarded: Guarded, role: str, deed: str) -> None:
    client = guarded.client(role)
    if deed in ALLOWED[role]:
        DEEDS[deed](client)
        return
    with pytest.raises(Exception, match=r"(?i)no permission|NOPERM|can't access|ACL failure") as no:
        DEEDS[deed](client)
    assert guarded.url(role).split(":")[2].split("@")[0] not in str(no.value)


def test_who_does_not_log_in_may_only_knock(guarded: Guarded) -> None:
    client = redis.Redis(port=guarded.port)
    assert client.ping()
    with pytest.raises(redis.exceptions.NoPermissionError):
        client.get("pagemill:schemas")
    with pytest.raises(redis.exceptions.AuthenticationError):
        redis.Redis(port=guarded.port, username="worker", password="worker").ping()


def test_files_are_private_and_passwords_stay(tmp_path: Path) -> None:
    redis_roles.write(tmp_path, "redis", Settings())
    first = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    redis_roles.write(tmp_path, "redis", Settings())
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == first
    acl = first.pop(tmp_path / "redis" / "users.acl")
    passwords = {text.split(":")[2].split("@")[0] for text in first.values()}
    assert len(passwords) == len(redis_roles.ROLES)
    assert not any(password in acl for password in passwords)
    assert {stat.S_IMODE(path.stat().st_mode) for path in first} == {0o600}


@pytest.mark.model
def test_a_page_goes_through_with_roles(guarded: Guarded, model_files: ModelFiles) -> None:
    """API, worker and crawler each with their own user."""
    with EngineProcess(options=["--executor", "fake"]) as engine:
        of = {
            role: Settings(redis_url=guarded.url(role), engine_endpoint=engine.endpoint)
            for role in ("api", "worker")
        }
        app = Celery("crawler", broker=guarded.url("producer"), backend=guarded.url("producer"))
        with WorkerProcess(of["worker"]), ApiProcess(of["api"]) as api:
            asked = {"schema": SCHEMA, "html": "<h1>Lamp</h1>", "max_tokens": 32}
            task = app.send_task("pagemill.extract", kwargs=asked, queue=of["worker"].queue)
            assert task.get(timeout=60)["status"] == "done"
            pages = [{"id": "1", "html": "<h1>Kettle</h1>"}]
            with httpx.Client(base_url=api.url, timeout=60, trust_env=False) as client:
                assert client.get("/readyz").status_code == 200
                batch = client.post("/v1/batches", json={"schema": SCHEMA, "pages": pages}).json()
                end = time.monotonic() + 60
                while not client.get(batch["status"]).json()["finished"]:
                    assert time.monotonic() < end
                    time.sleep(0.1)
                assert client.get(batch["records"]).json()["status"] == "done"
        app.close()
