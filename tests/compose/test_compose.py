"""compose.yaml and Dockerfile: hardened, private, and naming what is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from pagemill.extraction import redis_roles
from pagemill.extraction.config import CONFIG_VARIABLE, Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_hardened_and_bounded(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"].split(":")[0] not in ("", "0", "root")
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert service["healthcheck"]["test"]


def test_ours_run_as_one_user_who_owns_the_socket() -> None:
    for name in ("engine", "announcer", "api", "worker"):
        assert SERVICES[name]["user"] == "10001:10001"
        assert "engine-socket:/run/pagemill" in SERVICES[name]["volumes"]
    assert "USER 10001:10001" in DOCKERFILE
    assert "-o 10001 -g 10001 -m 700 /run/pagemill" in DOCKERFILE


def test_only_what_people_see_is_published_and_on_loopback() -> None:
    published = {name: service.get("ports", []) for name, service in SERVICES.items()}
    assert published.pop("api") == ["127.0.0.1:8080:8080"]
    assert published.pop("grafana") == ["127.0.0.1:3000:3000"]
    assert not any(published.values())
    assert COMPOSE["networks"]["inside"]["internal"] is True
    assert "outside" not in SERVICES["redis"]["networks"] + SERVICES["worker"]["networks"]


def test_redis_evicts_nothing_and_appends() -> None:
    command = " ".join(SERVICES["redis"]["command"])
    assert "--maxmemory-policy noeviction" in command
    assert "--appendonly yes" in command


def test_each_service_sees_the_password_of_its_own_role() -> None:
    """The engine sees none; Redis has hashes."""
    seen = {
        name: {volume.split(":")[0] for volume in service.get("volumes", []) if "role-" in volume}
        for name, service in SERVICES.items()
    }
    assert seen.pop("roles") == {"role-redis"} | {f"role-{role}" for role in redis_roles.ROLES}
    assert {name: volumes for name, volumes in seen.items() if volumes} == {
        "redis": {"role-redis"},
        "announcer": {"role-worker"},
        "api": {"role-api"},
        "worker": {"role-worker"},
    }
    for name in ("announcer", "api", "worker"):
        assert SERVICES[name]["environment"]["PAGEMILL_CONFIG"] == "/run/role/pagemill.toml"
    assert "--aclfile /run/acl/users.acl" in " ".join(SERVICES["redis"]["command"])


def test_every_setting_exists() -> None:
    known = {f"PAGEMILL_{name.upper()}" for name in Settings.model_fields} | {CONFIG_VARIABLE}
    named = set(re.findall(r"PAGEMILL_[A-Z_]+", DOCKERFILE + (ROOT / "compose.yaml").read_text()))
    assert named <= known


def test_the_image_gets_every_package() -> None:
    copied = set(re.findall(r"^COPY (\w+) \w+$", DOCKERFILE, re.MULTILINE))
    assert {"csrc", "engine", "extraction", "schemas", "workers"} == copied
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert all(f"!{name}" in ignored for name in copied)


@pytest.mark.parametrize("profile", [[], ["--profile", "monitoring"]], ids=["plain", "monitoring"])
def test_docker_compose_reads_it(profile: list[str]) -> None:
    docker = shutil.which("docker") or pytest.skip("docker is not here")
    version = [docker, "compose", "version"]
    if subprocess.run(version, capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not here")
    done = subprocess.run(
        [docker, "compose", *profile, "--file", str(ROOT / "compose.yaml"), "config", "--quiet"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
