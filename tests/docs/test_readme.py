"""Every snippet of README.md and of the pages on the doors runs, against real services."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pagemill.engine.store import ModelFiles
from pagemill.extraction.config import Settings
from pagemill.extraction.reason import Reason
from pagemill.extraction.stack import ApiProcess, EmbeddedRedis, EngineProcess, WorkerProcess

pytestmark = pytest.mark.model
ROOT = Path(__file__).resolve().parents[2]
API = "http://127.0.0.1:8080"


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def environment(
    model_files: ModelFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Server, engine (fake executor), worker and API; `pagemill` on the path finds them."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "pagemill"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m pagemill.extraction.cli "$@"\n')
    program.chmod(0o755)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis())
        engine = stack.enter_context(EngineProcess(options=["--executor", "fake"]))
        settings = Settings(redis_url=server.url, engine_endpoint=engine.endpoint)
        stack.enter_context(WorkerProcess(settings, options=["--pool", "solo"]))
        api = stack.enter_context(ApiProcess(settings))
        yield {
            **os.environ,
            **settings.environment(),
            "PATH": f"{folder}:{os.environ['PATH']}",
            "API": api.url,
            "BROKER": settings.broker_url,
            "no_proxy": "127.0.0.1",
        }


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder like a checkout, with pages to extract."""
    (tmp_path / "demo").symlink_to(ROOT / "demo")
    (tmp_path / "crawl").mkdir()
    for number in range(3):
        (tmp_path / "crawl" / f"{number}.html").write_text(f"<h1>Kettle {number}</h1>")
    return tmp_path


def shell(script: str, here: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace(API, environment["API"])],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md", "docs/rest.md"])
def test_the_shell_snippets_run(page: str, here: Path, environment: dict[str, str]) -> None:
    scripts = [script for script in blocks(page, "sh") if not script.startswith("make ")]
    assert scripts
    for script in scripts:
        done = shell(script, here, environment)
        told = f"{script}\n{done.stdout}\n{done.stderr}"
        # The fake executor writes noise: a record may be cut off, which is status 1.
        assert done.returncode in (0, 1), told
        if "extract" in script and "curl" not in script:
            assert " pages, " in done.stderr, told
        if "curl" in script:
            assert answered(done.stdout), told


def answered(text: str) -> bool:
    """The last JSON document is an answer of the API, not a refusal of what was asked."""
    answer = json.loads(text[text.rindex("\n{") + 1 :] if "\n{" in text else text)
    return answer.get("reason", "record_truncated") in ("record_truncated", "record_invalid")


def test_the_extract_example_writes_a_line(here: Path, environment: dict[str, str]) -> None:
    (script,) = [text for text in blocks("README.md", "sh") if "pagemill extract" in text]
    shell(script, here, environment)
    (line,) = (here / "records.jsonl").read_text().splitlines()
    assert json.loads(line)["id"] == "demo/pages/product-kettle.html"


def test_the_celery_example_gets_a_status(here: Path, environment: dict[str, str]) -> None:
    (script,) = blocks("README.md", "python")
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=here,
        env={**environment, "PAGEMILL_BROKER": environment["BROKER"]},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.strip() in ("done", "failed"), done.stderr


def test_the_compose_example_names_what_is_there() -> None:
    (script,) = blocks("README.md", "compose")
    assert API in script
    assert '"127.0.0.1:8080:8080"' in (ROOT / "compose.yaml").read_text()


def test_every_documented_reason_exists() -> None:
    text = (ROOT / "docs" / "rest.md").read_text()
    table = text[text.index("| status | reasons |") :]
    words = set(re.findall(r"`([a-z_]+)`", table)) - {"gzip", "deflate", "zstd"}
    assert words <= {str(reason) for reason in Reason}


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page.name, target)


def test_the_documented_statuses_are_the_codes() -> None:
    from pagemill.extraction.cli.exit_status import ExitStatus

    text = (ROOT / "docs" / "cli.md").read_text()
    documented = {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert documented == {int(status) for status in ExitStatus}


def test_every_documented_setting_exists() -> None:
    names = {f"PAGEMILL_{name.upper()}" for name in Settings.model_fields}
    known = names | {"PAGEMILL_CONFIG", "PAGEMILL_BROKER", "PAGEMILL_ENGINE_TOKEN"}
    # Of a Scrapy project, not of our processes.
    source = (ROOT / "workers" / "sources" / "scrapy.py").read_text(encoding="utf-8")
    known |= set(re.findall(r'"(PAGEMILL_[A-Z_]+)"', source))
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        found = set(re.findall(r"PAGEMILL_[A-Z_]+", page.read_text(encoding="utf-8")))
        assert found <= known, (page.name, found - known)
        assert page.name != "operations.md" or names <= found, names - found


def test_every_task_is_documented() -> None:
    from pagemill.workers import tasks

    text = (ROOT / "docs" / "celery.md").read_text()
    documented = set(re.findall(r"^\| `(pagemill\.\w+)` \|", text, re.MULTILINE))
    assert documented == {task.name for task in (tasks.extract, tasks.submit, tasks.drain)}
