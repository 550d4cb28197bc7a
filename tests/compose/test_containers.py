"""The stack in containers: a record by curl's road, and no page lost when parts die or are cut off.

Needs a container engine; `make containers` builds the image and runs this.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
API = "http://127.0.0.1:8080"
PROJECT = "pagemill-test"
PAGES = 12
PAGE_SECONDS = 60  # for one page on two busy cores, with a restart in between
pytestmark = [pytest.mark.containers, pytest.mark.timeout(1200)]


def docker(*arguments: str) -> str:
    done = subprocess.run(
        ["docker", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr[-2000:]}"
    return done.stdout


def compose(*arguments: str) -> str:
    return docker("compose", "--project-name", PROJECT, *arguments)


def container(service: str) -> str:
    return f"{PROJECT}-{service}-1"


def call(method: str, path: str, body: object = None) -> Any:
    request = urllib.request.Request(
        API + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        return reply.read().decode()


@pytest.fixture(scope="module")
def stack() -> Iterator[None]:
    if shutil.which("docker") is None:
        pytest.skip("docker is not here")
    image = os.environ.get("PAGEMILL_IMAGE", "pagemill:0.1.0")
    docker("image", "inspect", "--format", "{{.Id}}", image)
    compose("up", "--detach", "--wait", "--wait-timeout", "240")
    try:
        yield
    finally:
        print(compose("logs", "--no-color", "--tail", "40"))
        compose("down", "--volumes", "--timeout", "20")


def submit(name: str) -> str:
    pages = [
        {
            "id": f"{name}-{number}",
            "url": f"http://shop.example/{name}/{number}",
            "html": f"<h1>Kettle {name} {number}</h1><p>Price: {number}.90 EUR</p>",
        }
        for number in range(PAGES)
    ]
    accepted = json.loads(call("POST", "/v1/batches", {"schema": "product", "pages": pages}))
    assert accepted["accepted"] == PAGES
    return str(accepted["id"])


def all_once(batch: str, name: str) -> None:
    """Wait for the batch; every page has one record."""
    end = time.monotonic() + PAGES * PAGE_SECONDS
    while time.monotonic() < end:
        try:
            if json.loads(call("GET", f"/v1/batches/{batch}"))["finished"]:
                break
        except (urllib.error.URLError, ConnectionError):
            pass  # the ledger is on its way up again
        time.sleep(2)
    lines = call("GET", f"/v1/batches/{batch}/records").splitlines()
    found = sorted(json.loads(line)["id"] for line in lines)
    assert found == sorted(f"{name}-{number}" for number in range(PAGES))


def test_one_call_gives_a_record(stack: None) -> None:
    page = {"schema": "product", "html": "<h1>Blue kettle</h1><p>Price: 39.90 EUR</p>"}
    answer = json.loads(call("POST", "/v1/extract", page))
    assert answer["status"] == "done"
    assert set(answer["record"]) >= {"name", "price"}


@pytest.mark.parametrize("victim", ["worker", "engine", "redis"])
def test_a_killed_container_costs_no_page(stack: None, victim: str) -> None:
    batch = submit(victim)
    time.sleep(5)
    docker("kill", "--signal", "KILL", container(victim))
    compose("up", "--detach", "--wait", "--wait-timeout", "240")
    all_once(batch, victim)


def test_a_partition_costs_no_page(stack: None) -> None:
    batch = submit("partition")
    time.sleep(3)
    network = f"{PROJECT}_inside"
    docker("network", "disconnect", network, container("worker"))
    time.sleep(15)
    docker("network", "connect", network, container("worker"))
    all_once(batch, "partition")
