"""Settings: sources in order, unknown and wrong keys named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagemill.engine import store
from pagemill.extraction.config import Settings, load_settings, redact_url
from pagemill.extraction.reason import Reason, Refused
from pagemill.schemas.compiler import Compiler


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for key in list(os.environ):
        if key.startswith("PAGEMILL_"):
            monkeypatch.delenv(key)


def test_environment_goes_before_file_goes_before_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "pagemill.toml"
    path.write_text('port = 9000\nburst_size = 7\nnamespace = "file"\n')
    monkeypatch.setenv("PAGEMILL_CONFIG", str(path))
    monkeypatch.setenv("PAGEMILL_BURST_SIZE", "9")
    settings = load_settings(namespace="option", queue=None)
    assert (settings.port, settings.burst_size, settings.namespace) == (9000, 9, "option")
    assert settings.queue == "pagemill"


@pytest.mark.parametrize(
    ("variable", "hint"),
    [("PAGEMILL_REDIS_ULR", "PAGEMILL_REDIS_URL"), ("PAGEMILL_ENGINE_ENDPOINTS", "ENDPOINT")],
)
def test_an_unknown_variable_is_refused_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, hint: str
) -> None:
    monkeypatch.setenv(variable, "x")
    with pytest.raises(Refused, match=hint) as caught:
        load_settings()
    assert variable in str(caught.value)
    assert caught.value.reason == Reason.INPUT_INVALID


def test_an_unknown_key_of_the_file_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "pagemill.toml"
    path.write_text("lease = 5\n")
    monkeypatch.setenv("PAGEMILL_CONFIG", str(path))
    with pytest.raises(Refused, match="lease_s"):
        load_settings()


@pytest.mark.parametrize("content", ["port = ", None])
def test_a_file_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "pagemill.toml"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("PAGEMILL_CONFIG", str(path))
    with pytest.raises(Refused, match=r"pagemill\.toml"):
        load_settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "70000"),
        ("LEASE_S", "soon"),
        ("LEASE_S", "inf"),
        ("LEASE_S", "nan"),
        ("ENGINE_TIMEOUT_S", "inf"),
        ("NAMESPACE", "a:b"),
        ("REDIS_URL", "zzz"),
        ("REDIS_URL", "http://127.0.0.1"),
        ("REDIS_URL", "redis://127.0.0.1:port/0"),
        ("REDIS_URL", "redis:///0"),
        ("REDIS_URL", "unix://relative.sock"),
        ("ENGINE_ENDPOINT", "zzz"),
        ("ENGINE_ENDPOINT", "ipc://relative.sock"),
        ("ENGINE_ENDPOINT", "tcp://127.0.0.1"),
    ],
)
def test_a_wrong_value_names_its_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"PAGEMILL_{name}", value)
    with pytest.raises(Refused, match=name.lower()):
        load_settings()


@pytest.mark.parametrize(
    "url", ["redis://:sec/ret@host/0", "http://:secret@host", "redis://:se:cret"]
)
def test_a_wrong_address_shows_no_password(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("PAGEMILL_REDIS_URL", url)
    with pytest.raises(Refused) as refused:
        load_settings()
    assert "sec" not in str(refused.value)
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://127.0.0.1:6379/3", "redis://127.0.0.1:6379/3"),
        ("unix:///run/a b/s.sock", "redis+socket:///run/a%20b/s.sock?virtual_host=0"),
        ("unix:///run/s.sock?db=2", "redis+socket:///run/s.sock?virtual_host=2"),
    ],
)
def test_the_broker_url_is_celerys_form(url: str, broker: str) -> None:
    assert Settings(redis_url=url).broker_url == broker


def test_a_child_reads_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(redis_url="unix:///run/s.sock", burst_size=3)
    for key, value in settings.environment().items():
        monkeypatch.setenv(key, value)
    assert load_settings() == settings


def test_a_files_cache_reaches_those_who_know_no_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pagemill.toml"
    file.write_text(f'cache = "{tmp_path}/models"\n')
    monkeypatch.setenv("PAGEMILL_CACHE", "unset again below, and restored afterwards")
    monkeypatch.delenv("PAGEMILL_CACHE")
    monkeypatch.setenv("PAGEMILL_CONFIG", str(file))
    load_settings()
    assert store.cache_directory() == tmp_path / "models"


def test_no_password_is_shown() -> None:
    assert redact_url("redis://user:secret@host:6379/0") == "redis://user:***@host:6379/0"
    assert redact_url("redis://:secret@host/0") == "redis://:***@host/0"
    assert redact_url("unix:///run/s.sock") == "unix:///run/s.sock"


def test_the_schema_builder_reaches_the_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PAGEMILL_SCHEMA_BUILDER", "core")
    load_settings()
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    made = Compiler(tmp_path).compile(schema, 2.0, 1 << 30)
    assert made.builder == "core"
    monkeypatch.setenv("PAGEMILL_SCHEMA_BUILDER", "corn")
    with pytest.raises(Refused, match="schema_builder"):
        load_settings()
