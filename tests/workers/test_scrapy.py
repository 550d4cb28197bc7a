"""A real Scrapy crawl of a local site: every page's record comes back as an item."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pagemill.engine.store import ModelFiles
from pagemill.extraction.config import Settings
from pagemill.extraction.stack import EmbeddedRedis, EngineProcess, WorkerProcess

pytest.importorskip("scrapy")
pytestmark = pytest.mark.model
PAGES = 40
SPIDER = """
import scrapy
from pagemill.workers.sources.scrapy import PagemillPage

class Shop(scrapy.Spider):
    name = "a shop"
    allowed_domains = ["127.0.0.1"]

    async def start(self):
        yield scrapy.Request(self.site)

    def parse(self, response):
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, self.parse_page)
        yield {"other": "item"}

    def parse_page(self, response):
        yield PagemillPage(response, id=response.url.rpartition("/")[2])
"""
SCHEMA = {
    "type": "object",
    "properties": {"in_stock": {"type": "boolean"}},
    "required": ["in_stock"],
}


class _Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/":
            body = "".join(f'<a href="/p{n}">{n}</a>' for n in range(PAGES))
        else:
            body = f"<h1>Kettle {self.path}</h1><p>In stock.</p>" if self.path != "/p7" else ""
        data = body.encode()
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        """Silent."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def crawl(
    folder: Path, site: str, redis_url: str, *options: str, schema: bool = True
) -> subprocess.Popen[bytes]:
    (folder / "spider.py").write_text(SPIDER)
    settings = {
        "ITEM_PIPELINES": json.dumps({"pagemill.workers.sources.scrapy.PagemillPipeline": 100}),
        "EXTENSIONS": json.dumps({"pagemill.workers.sources.scrapy.PagemillRecords": 500}),
        "PAGEMILL_OPTIONS": json.dumps({"max_tokens": 40}),
        "PAGEMILL_REDIS_URL": redis_url,
        "PAGEMILL_BURST": "8",
        "PAGEMILL_POLL": "0.1",
        "TELNETCONSOLE_ENABLED": "0",
        "LOG_LEVEL": "INFO",
    }
    if schema:
        settings["PAGEMILL_SCHEMA"] = json.dumps(SCHEMA)
    command = [sys.executable, "-m", "scrapy", "runspider", "spider.py", "-o", "items.jsonl"]
    command += ["-a", f"site={site}"]
    for name, value in settings.items():
        command += ["-s", f"{name}={value}"]
    command += options
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env={**os.environ})


def items(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]


def test_records_come_back_though_the_engine_dies(
    site: str, tmp_path: Path, model_files: ModelFiles
) -> None:
    endpoint = f"ipc://{tmp_path}/e"
    slow = ["--executor", "fake", "--fake-step-ms", "20"]
    with EmbeddedRedis() as server, EngineProcess(endpoint=endpoint, options=slow) as engine:
        settings = Settings(
            redis_url=server.url, engine_endpoint=endpoint, burst_size=8, lease_s=3.0
        )
        with WorkerProcess(settings, options=["--pool", "threads"]):
            process = crawl(tmp_path, site, server.url)
            deadline = time.monotonic() + 60
            found = tmp_path / "items.jsonl"
            while not (found.exists() and found.stat().st_size) and time.monotonic() < deadline:
                time.sleep(0.05)
            engine.kill()
            time.sleep(0.5)
            engine.start()
            assert process.wait(200) == 0, (tmp_path / "log").read_text()
    records = [item for item in items(tmp_path) if "status" in item]
    assert sorted(str(item["id"]) for item in records) == sorted(f"p{n}" for n in range(PAGES))
    failed = {item["id"]: item["error"] for item in records if item["status"] != "done"}
    assert list(failed) == ["p7"]  # The empty page.
    assert all(isinstance(item["record"], dict) for item in records if item["id"] != "p7")
    assert [item for item in items(tmp_path) if "status" not in item] == [{"other": "item"}]
    log = (tmp_path / "log").read_text()
    assert f"'pagemill/pages': {PAGES}" in log
    assert f"'pagemill/records/done': {PAGES - 1}" in log
    assert "ERROR" not in log


def test_a_crawl_need_not_wait(site: str, tmp_path: Path, redis_server: object) -> None:
    from pagemill.extraction.assembly import open_ledger

    with EmbeddedRedis() as server:
        process = crawl(tmp_path, site, server.url, "-s", "EXTENSIONS={}",
                        "-s", "PAGEMILL_BATCH=night")  # fmt: skip
        assert process.wait(120) == 0
        status = open_ledger(Settings(redis_url=server.url)).batch("night")
        assert status is not None
        assert (status.total, status.pending) == (PAGES, PAGES)
    assert items(tmp_path) == [{"other": "item"}]


def test_a_crawl_without_schema_or_redis_says_so(site: str, tmp_path: Path) -> None:
    with EmbeddedRedis() as server:
        process = crawl(tmp_path, site, server.url, schema=False)
        process.wait(120)
        log = (tmp_path / "log").read_text()
        assert "set PAGEMILL_SCHEMA, or give PagemillPage a schema" in log
    process = crawl(tmp_path, site, f"unix://{tmp_path}/none.sock")
    process.wait(120)
    assert "check that the server runs" in (tmp_path / "log").read_text()
