"""`pagemill schema`, `model`, `doctor`, and the frame around all commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import STOCK, Command, Services


def test_help_names_every_command(pagemill: Command) -> None:
    done = pagemill("--help")
    assert done.status == 0
    for name in (
        "extract",
        "serve",
        "worker",
        "engine",
        "schema",
        "model",
        "dead",
        "key",
        "doctor",
    ):
        assert name.encode() in done.out


@pytest.mark.parametrize("arguments", [["nonsense"], ["schema", "nonsense"], ["--nonsense"]])
def test_an_unknown_command_is_a_usage_error(pagemill: Command, arguments: list[str]) -> None:
    done = pagemill(*arguments)
    assert done.status == 2
    assert done.err.startswith("pagemill: usage: ")


class TestSchema:
    def test_the_library_needs_no_redis(self, pagemill: Command) -> None:
        names = {line["name"] for line in pagemill("schema", "list").lines}
        assert {"product", "article", "recipe"} <= names
        shown = json.loads(pagemill("schema", "show", "product").out)
        assert shown["type"] == "object"

    @pytest.mark.model
    def test_a_registered_schema_is_found_again(
        self, with_services: Command, tmp_path: Path
    ) -> None:
        (tmp_path / "stock.json").write_text(json.dumps(STOCK))
        for _ in range(2):
            done = with_services("schema", "register", "stock", "stock.json")
            assert done.status == 0, done.err
            assert done.lines[0]["version"] == 1
        assert json.loads(with_services("schema", "show", "stock@1").out) == STOCK
        assert "stock" in {line["name"] for line in with_services("schema", "list").lines}

    def test_advice_is_status_1(self, pagemill: Command, tmp_path: Path) -> None:
        loose = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
        (tmp_path / "loose.json").write_text(json.dumps(loose))
        done = pagemill("schema", "lint", "loose.json")
        assert done.status == 1
        assert b"/properties/a" in done.out

    def test_compile_says_what_it_took(self, pagemill: Command, tmp_path: Path) -> None:
        (tmp_path / "stock.json").write_text(json.dumps(STOCK))
        done = pagemill("schema", "compile", "stock.json", "--out", "table")
        assert done.status == 0, done.err
        assert done.lines[0]["states"] > 10
        assert (tmp_path / "table").stat().st_size == done.lines[0]["table_bytes"]

    def test_a_schema_is_proposed_from_results(self, pagemill: Command, tmp_path: Path) -> None:
        done = {"id": "1", "status": "done", "error": None, "record": {"title": "A", "n": 1}}
        failed = {"id": "2", "status": "failed", "error": {"reason": "x"}, "record": None}
        (tmp_path / "records.ndjson").write_text(f"{json.dumps(done)}\n{json.dumps(failed)}\n")
        proposed = pagemill("schema", "infer", "records.ndjson")
        assert proposed.status == 0, proposed.err
        assert list(json.loads(proposed.out)["properties"]) == ["title", "n"]
        assert "describe what the field holds" in proposed.err
        (tmp_path / "broken.ndjson").write_text('{"title": 1}\n{"title":')
        broken = pagemill("schema", "infer", "broken.ndjson")
        assert broken.status == 2
        assert "broken.ndjson, line 2" in broken.err
        assert pagemill("schema", "infer", "nowhere.json").status == 2

    def test_differences_have_a_verdict(self, pagemill: Command, tmp_path: Path) -> None:
        (tmp_path / "old.json").write_text(json.dumps(STOCK))
        (tmp_path / "new.json").write_text(json.dumps({**STOCK, "required": []}))
        same = pagemill("schema", "diff", "old.json", "old.json")
        assert (same.status, same.err) == (0, "pagemill: identical\n")
        broken = pagemill("schema", "diff", "old.json", "new.json", "--json")
        assert broken.status == 1
        assert broken.lines[0]["effect"] == "breaking"

    @pytest.mark.parametrize("command", ["show", "lint", "compile"])
    def test_an_unknown_name_is_an_error(self, pagemill: Command, command: str) -> None:
        done = pagemill("schema", command, "nothing")
        assert (done.status, done.out) == (2, b"")
        assert done.err.startswith("pagemill: schema_unknown: ")

    @pytest.mark.model
    def test_a_full_redis_is_told_as_such(
        self, with_services: Command, services: Services, tmp_path: Path
    ) -> None:
        import redis

        (tmp_path / "stock.json").write_text(json.dumps(STOCK))
        client = redis.Redis.from_url(services.redis_url)
        client.config_set("maxmemory", 1)
        try:
            done = with_services("schema", "register", "full", "stock.json")
        finally:
            client.config_set("maxmemory", 0)
        assert done.status == 4
        assert done.err.startswith("pagemill: ledger_full: ")

    def test_registering_needs_a_redis(self, pagemill: Command, tmp_path: Path) -> None:
        (tmp_path / "stock.json").write_text(json.dumps(STOCK))
        url = f"unix://{tmp_path}/none.sock"
        done = pagemill("schema", "register", "stock", "stock.json", "--redis-url", url)
        assert done.status == 4
        assert done.err.startswith("pagemill: ledger_unavailable: ")


@pytest.mark.model
class TestDoctor:
    def checks(self, command: Command, *arguments: object) -> tuple[int, dict[str, str]]:
        done = command("doctor", "--json", *arguments)
        return done.status, {line["name"]: line["outcome"] for line in done.lines}

    def test_all_is_well(self, with_services: Command) -> None:
        status, outcomes = self.checks(with_services)
        assert status == 0
        for name in ("core", "model", "redis", "redis eviction", "redis durability", "engine"):
            assert outcomes[name] == "ok", outcomes
        assert outcomes["redis socket"] == outcomes["engine socket"] == "ok"

    def test_what_isnt_named_is_skipped(self, pagemill: Command) -> None:
        status, outcomes = self.checks(pagemill, "--only", "engine")
        assert (status, outcomes) == (0, {"engine": "skipped"})

    def test_a_redis_that_evicts_or_forgets_fails(
        self, with_services: Command, services: Services
    ) -> None:
        import redis

        client = redis.Redis.from_url(services.redis_url)
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("appendonly", "no")
        try:
            status, outcomes = self.checks(with_services, "--only", "redis")
        finally:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("appendonly", "yes")
        assert status == 1
        assert outcomes["redis eviction"] == outcomes["redis durability"] == "failed"

    def test_services_that_are_down_fail_with_advice(
        self, pagemill: Command, tmp_path: Path
    ) -> None:
        done = pagemill(
            "doctor",
            "--redis-url",
            f"unix://{tmp_path}/none.sock",
            "--engine",
            f"ipc://{tmp_path}/none.ipc",
        )
        assert done.status == 1
        assert done.out.count(b"FAIL") == 2
        assert b"-> " in done.out

    def test_an_unknown_part_is_a_usage_error(self, pagemill: Command) -> None:
        assert pagemill("doctor", "--only", "weather").status == 2


@pytest.mark.model
def test_keys_are_made_listed_and_revoked(with_services: Command) -> None:
    made = with_services("key", "create", "crawler", "--scope", "read", "--valid-days", "1")
    assert made.status == 0, made.err
    token = made.out.decode().strip()
    key_id = token.split("_")[1]
    [row] = [row for row in with_services("key", "list").lines if row["id"] == key_id]
    assert (row["tenant"], row["scopes"]) == ("crawler", ["read"])
    assert row["expires_s"] > row["created_s"]
    assert with_services("key", "revoke", key_id).status == 0
    assert with_services("key", "revoke", key_id).status == 2
    assert with_services("key", "create", "crawler", "--scope", "root").status == 2
