"""The console: nothing from elsewhere, and a walk through it in a real browser."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pagemill.extraction.api_keys import ApiKeys
from pagemill.extraction.config import Settings
from pagemill.extraction.stack import ApiProcess
from redis import Redis

from .conftest import STOCK

pytestmark = pytest.mark.model

STATIC = Path(__file__).parents[2] / "extraction/api/static"
NAMES = sorted(path.name for path in STATIC.iterdir() if path.suffix in (".js", ".css"))


def test_the_page_loads_nothing_from_elsewhere(api: httpx.Client) -> None:
    page = api.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    named = re.findall(r'(?:src|href)="([^"#][^"]*)"', page.text)
    assert named
    for name in named:
        assert api.get(f"/{name}").status_code == 200, name
    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        for address in re.findall(r"https?://[^\s\"'`/]+", text):
            assert address.endswith(".example"), (path.name, address)


@pytest.mark.parametrize("name", NAMES)
def test_assets_have_their_kind(api: httpx.Client, name: str) -> None:
    reply = api.get(f"/console/{name}")
    kind = {"js": "text/javascript", "css": "text/css"}[name.rpartition(".")[2]]
    assert reply.headers["content-type"].startswith(kind)
    assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["nothing.js", "..%2fauth.py", "index.html", "x", "%00.js"])
def test_nothing_else_is_served(api: httpx.Client, name: str) -> None:
    assert api.get(f"/console/{name}").status_code == 404


def test_the_status_has_queue_and_engine(api: httpx.Client) -> None:
    found = api.get("/v1/status").json()
    assert found["queue"]["queued"] >= 0
    assert 0 <= found["engine"]["kv_cache_usage"] <= 1


class Browser:
    """Chromium through chromedriver's HTTP interface (W3C WebDriver)."""

    def __init__(self, client: httpx.Client, session: str) -> None:
        self._client = client
        self._session = session

    def _call(self, command: str, **body: Any) -> Any:
        reply = self._client.post(f"/session/{self._session}/{command}", json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()["value"]

    def open(self, url: str) -> None:
        self._call("url", url=url)

    def run(self, script: str) -> Any:
        return self._call("execute/sync", script=script, args=[])

    def until(self, script: str, holds: Callable[[Any], bool] = bool) -> Any:
        deadline = time.monotonic() + 30
        while not holds(value := self.run(script)):
            if time.monotonic() > deadline:
                raise AssertionError((script, value))
            time.sleep(0.05)
        return value


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or chromium is None:
        pytest.skip("no chromium and chromedriver here")
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1280,900",
        f"--user-data-dir={tmp_path_factory.mktemp('browser')}",
    ]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL)
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False
        ) as client:
            for _ in range(200):
                with contextlib.suppress(httpx.TransportError):
                    if client.get("/status").json()["value"]["ready"]:
                        break
                time.sleep(0.05)
            options = {"args": flags, "binary": chromium}
            wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
            session = client.post("/session", json=wanted).json()["value"]["sessionId"]
            yield Browser(client, session)
            client.delete(f"/session/{session}")
    finally:
        process.terminate()
        process.wait(timeout=30)


FILL = """
document.getElementById('page').value = {page};
const schema = document.getElementById('schema');
schema.value = [...schema.options].at(-1).value;
schema.dispatchEvent(new Event('change'));
document.getElementById('own-schema').value = {schema};
document.getElementById('extract-form').requestSubmit();
"""


@pytest.mark.slow
class TestBrowser:
    def test_from_the_first_page_to_a_record(
        self, browser: Browser, api: httpx.Client, api_url: str
    ) -> None:
        browser.open(f"{api_url}/")
        browser.until("return document.querySelectorAll('#schema option').length > 5")
        browser.run("document.getElementById('sample').click()")
        html = "<h1>Kettle</h1><p>In stock.</p><script>document.title = 'run'</script>"
        own = json.dumps(STOCK)
        browser.run(FILL.replace("{page}", repr(html)).replace("{schema}", repr(own)))
        state = browser.until(
            "return document.getElementById('state').textContent", lambda text: " s ·" in text
        )
        assert "written" in state
        record = browser.run("return document.getElementById('record').textContent")
        assert '"in_stock": ' in record
        assert "Kettle" in browser.run("return document.getElementById('text').textContent")
        assert browser.run("return document.title") == "pagemill"  # the page was not run

    def test_a_mistake_is_told(self, browser: Browser, api_url: str) -> None:
        browser.open(f"{api_url}/#extract")
        browser.until("return document.querySelectorAll('#schema option').length > 5")
        browser.run(FILL.replace("{page}", "'<p>x</p>'").replace("{schema}", "'{'"))
        browser.until("return document.getElementById('state').textContent.includes('not JSON')")
        assert browser.run("return document.getElementById('state').className") == "bad"

    def test_schemas_and_their_versions(
        self, browser: Browser, api: httpx.Client, api_url: str
    ) -> None:
        api.put("/v1/schemas/seen", json=STOCK)
        api.put("/v1/schemas/seen", json={**STOCK, "required": []})
        browser.open(f"{api_url}/#schemas")
        browser.until(
            "const b = [...document.querySelectorAll('#schema-list button')]"
            ".find((b) => b.textContent === 'seen'); b?.click(); return Boolean(b)"
        )
        browser.until(
            "const s = document.getElementById('schema-before');"
            "if (s.options.length < 2) return false;"
            "s.value = '1'; s.dispatchEvent(new Event('change')); return true"
        )
        browser.until("return document.getElementById('verdict').textContent.includes('breaking')")

    def test_the_status_moves(self, browser: Browser, api_url: str) -> None:
        browser.open(f"{api_url}/#status")
        browser.until("return document.getElementById('ready').textContent === 'Ready'")
        assert browser.run("return document.querySelectorAll('#figures div').length") == 10

    def test_a_key_is_asked_for(self, browser: Browser, settings: Settings) -> None:
        with (
            ApiProcess(settings.model_copy(update={"require_api_key": True})) as guarded,
            Redis.from_url(settings.redis_url) as redis,
        ):
            token, _ = ApiKeys(redis, settings.namespace).create("console", ["read"])
            browser.open(f"{guarded.url}/")
            browser.until("return !document.getElementById('key-form').hidden")
            browser.run(
                f"document.getElementById('key').value = '{token}';"
                "document.getElementById('key-form').requestSubmit()"
            )
            browser.until("return document.querySelectorAll('#schema option').length > 5")
