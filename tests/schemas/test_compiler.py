"""The compiling process and the caches around it, with real processes."""

from __future__ import annotations

import os
import random
import string
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pagemill._core import ByteDfa
from pagemill.schemas import SchemaReason, SchemaRefused
from pagemill.schemas.compiler import CompiledSchema, Compiler

STRING = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 2000}}}
# Determinising it takes ages.
CATASTROPHE = {"type": "string", "pattern": "^(.*a.{30}b|.*b.{29}c|.*c.{28}d.*){5}$"}
ROOMY_S = 60.0
MEMORY = 1 << 30


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Compiler]:
    made = Compiler(tmp_path)
    yield made
    made.close()


def compiled(compiler: Compiler, schema: Any, timeout_s: float = ROOMY_S) -> CompiledSchema:
    return compiler.compile(schema, timeout_s, MEMORY)


def refusal(compiler: Compiler, schema: Any, timeout_s: float = ROOMY_S) -> SchemaRefused:
    with pytest.raises(SchemaRefused) as refused:
        compiler.compile(schema, timeout_s, MEMORY)
    return refused.value


def test_a_table_that_the_core_reads(compiler: Compiler) -> None:
    made = compiled(compiler, STRING)
    dfa = ByteDfa.from_bytes(made.table)
    assert dfa.num_states == made.num_states < 100, "a bound of 2000 costs no states"
    assert dfa.has_counters
    assert dfa.accepts(b'{"a":"' + b"x" * 2000 + b'"}')
    assert not dfa.accepts(b'{"a":"' + b"x" * 2001 + b'"}')
    assert made.compile_ms > 0


def test_found_again_in_memory_and_on_disk(compiler: Compiler, tmp_path: Path) -> None:
    first = compiled(compiler, STRING)
    assert compiled(compiler, STRING).compile_ms == 0
    other = Compiler(tmp_path)
    again = compiled(other, STRING)
    assert (again.hash, again.table, again.compile_ms) == (first.hash, first.table, 0)
    assert other._process._child is None, "no process was needed"


def test_a_damaged_file_is_compiled_anew(compiler: Compiler, tmp_path: Path) -> None:
    first = compiled(compiler, STRING)
    (path,) = tmp_path.glob("*.pmdf")
    path.write_bytes(path.read_bytes()[:-1] + b"\x00\x00")
    other = Compiler(tmp_path)
    again = compiled(other, STRING)
    assert again.table == first.table
    assert again.compile_ms > 0
    other.close()


def test_old_files_make_room(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, young = tmp_path / "old.pmdf", tmp_path / "young.pmdf"
    for age, path in enumerate((young, old)):
        path.write_bytes(b"x" * 2000)
        os.utime(path, (1e9 - age, 1e9 - age))
    monkeypatch.setattr("pagemill.schemas.compiled_store.MAX_FOLDER_BYTES", 3500)
    compiled(compiler, {"type": "null"})
    assert young.exists()
    assert not old.exists()
    assert len(list(tmp_path.glob("*.pmdf"))) == 2


def test_refusals_are_remembered(compiler: Compiler, tmp_path: Path) -> None:
    schema = {"properties": {"a": {"maxContains": 2}}}
    first = refusal(compiler, schema)
    assert (first.reason, first.at) == (
        SchemaReason.KEYWORD_UNSUPPORTED,
        "/properties/a/maxContains",
    )
    other = Compiler(tmp_path)
    again = refusal(other, schema)
    assert (str(again), again.at, again.advice) == (str(first), first.at, first.advice)
    assert other._process._child is None


def test_outcomes_are_shared_through_redis(
    compiler: Compiler, tmp_path: Path, redis_client: redis.Redis
) -> None:
    compiler.share(redis_client, "ns")
    refused = {"properties": {"a": {"maxContains": 2}}}
    first, first_refusal = compiled(compiler, STRING), refusal(compiler, refused)
    other = Compiler(tmp_path / "elsewhere")
    other.share(redis_client, "ns")
    again = compiled(other, STRING)
    assert (again.table, again.builder, again.compile_ms) == (first.table, first.builder, 0)
    assert str(refusal(other, refused)) == str(first_refusal)
    assert other._process._child is None, "no process was needed"
    assert len(list((tmp_path / "elsewhere").glob("*.pmdf"))) == 2, "nearer for the next time"


def test_the_shared_cache_is_bounded(
    compiler: Compiler, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagemill.schemas.compiled_store.MAX_SHARED", 3)
    compiler.share(redis_client, "ns")
    for length in range(1, 6):
        compiled(compiler, {"type": "string", "maxLength": length})
    assert len(redis_client.keys("ns:grammar:*")) == redis_client.zcard("ns:grammars") == 3
    monkeypatch.setattr("pagemill.schemas.compiled_store.MAX_SHARED_BYTES", 10)
    compiled(compiler, {"type": "string", "maxLength": 50})
    assert len(redis_client.keys("ns:grammar:*")) == 3


def test_damage_and_silence_of_redis_cost_a_compilation(
    tmp_path: Path, redis_client: redis.Redis
) -> None:
    made = Compiler(tmp_path)
    made.share(redis_client, "ns")
    table = compiled(made, STRING).table
    (name,) = redis_client.keys("ns:grammar:*")
    redis_client.set(name, b"rubbish")
    other = Compiler(tmp_path / "b")
    other.share(redis_client, "ns")
    assert compiled(other, STRING).table == table
    third = Compiler(tmp_path / "c")
    third.share(redis.Redis(port=1, socket_connect_timeout=0.2), "ns")
    assert compiled(third, STRING).table == table
    for each in (made, other, third):
        each.close()


def test_key_order_makes_another_language(compiler: Compiler) -> None:
    one, two = {"type": "integer"}, {"type": "null"}
    a = compiled(compiler, {"type": "object", "properties": {"a": one, "b": two}})
    b = compiled(compiler, {"type": "object", "properties": {"b": two, "a": one}})
    assert a.hash != b.hash


def test_a_late_compilation_is_killed_and_the_next_one_works(compiler: Compiler) -> None:
    compiled(compiler, {"type": "null"})
    late = refusal(compiler, CATASTROPHE, timeout_s=0.5)
    assert late.reason in (SchemaReason.SCHEMA_COMPILE_TIMEOUT, SchemaReason.SCHEMA_TOO_LARGE)
    assert compiled(compiler, {"type": "boolean"}).num_states > 1


def test_memory_is_bounded(compiler: Compiler) -> None:
    schema = {"type": "string", "pattern": "^(((é|[а-я]){1,3000}){1,100}x)$"}
    with pytest.raises(SchemaRefused) as hungry:
        compiler.compile(schema, ROOMY_S, MEMORY // 4)
    assert hungry.value.reason is SchemaReason.SCHEMA_TOO_LARGE
    assert compiled(compiler, {"type": "boolean"}).num_states > 1


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def bomb() -> dict[str, Any]:
    """Each level doubles: 2 ** 20 alternatives."""
    definitions: dict[str, Any] = {"d0": {"type": "null"}}
    for level in range(1, 21):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"anyOf": [below, {"type": "array", "items": below}]}
    return {"$defs": definitions, "$ref": "#/$defs/d20"}


def negations(levels: int) -> dict[str, Any]:
    """Each level asks for one of two ways to break the one below."""
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    for level in range(levels):
        other = {"type": "object", "properties": {f"b{level}": {"type": "integer"}}}
        schema = {"type": "object", "oneOf": [{"not": schema}, {"not": other}, schema]}
    return schema


ENTRIES = random.Random(7)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(nested(90), id="deep"),
        pytest.param(bomb(), id="bomb"),
        pytest.param({"enum": ["x" * 1_100_000]}, id="large"),
        pytest.param(
            {
                "oneOf": [
                    {"oneOf": [{"type": "object", "minProperties": n}] * 20} for n in range(20)
                ]
            },
            id="oneOf",
        ),
        pytest.param(negations(14), id="negations"),
        pytest.param(
            {
                "type": "object",
                "properties": {f"k{n}": {"type": "null"} for n in range(40)},
                "dependentRequired": {f"k{n}": [f"k{(n * 7) % 40}"] for n in range(40)},
            },
            id="dependencies",
        ),
        pytest.param(
            {"type": "string", "allOf": [{"pattern": f"a.{{{n}}}b"} for n in range(15, 22)]},
            id="patterns",
        ),
        pytest.param(
            {"enum": ["".join(ENTRIES.choices(string.ascii_letters, k=9)) for _ in range(80_000)]},
            id="enum",
        ),
        pytest.param(
            {"type": "string", "pattern": "((((a{1,90}){1,90}){1,90}){1,90})"}, id="repeat"
        ),
    ],
)
def test_hostile_schemas_are_refused_within_the_caps(compiler: Compiler, schema: Any) -> None:
    refused = refusal(compiler, schema, timeout_s=5)
    assert refused.reason in (
        SchemaReason.SCHEMA_TOO_LARGE,
        SchemaReason.SCHEMA_COMPILE_TIMEOUT,
        SchemaReason.KEYWORD_UNSUPPORTED,
    )


def test_a_long_enum_compiles(compiler: Compiler) -> None:
    made = compiled(compiler, {"enum": [f"value {number}" for number in range(3000)]})
    assert ByteDfa.from_bytes(made.table).accepts(b'"value 2999"')


def test_equal_schemas_compile_once(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(compiler, {"type": "null"})
    calls = []
    whole = compiler._process.compile

    def slowly(*args: Any) -> Any:
        calls.append(args)
        time.sleep(0.2)
        return whole(*args)

    monkeypatch.setattr(compiler._process, "compile", slowly)
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.append(compiled(compiler, STRING).hash))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len(set(made)) == 1
    assert len(made) == 8


def test_a_forked_child_starts_its_own_process(compiler: Compiler) -> None:
    """As in a Celery pool, whose children are daemons of multiprocessing."""
    compiled(compiler, {"type": "null"})
    child = compiler._process._child
    assert child is not None
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            made = compiler.compile({"type": "boolean"}, ROOMY_S, MEMORY)
            own = compiler._process._child
            status = 0 if made.num_states > 1 and own is not None and own.pid != child.pid else 2
            compiler.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert child.poll() is None, "the parent's process lives on"
    assert compiled(compiler, {"type": "integer"}).num_states > 1


def test_a_killed_process_is_replaced(compiler: Compiler) -> None:
    compiled(compiler, {"type": "null"})
    child = compiler._process._child
    assert child is not None
    child.kill()
    child.wait()
    assert compiled(compiler, {"type": "integer"}).num_states > 1
