"""Our own API in the place of a remote server: the same records as its engine gives."""

from __future__ import annotations

import contextlib

import pytest
from celery import Celery
from pagemill.engine.client import EngineClient
from pagemill.engine.store import ModelFiles
from pagemill.engine.tokenizer import Tokenizer
from pagemill.extraction.bound_schema import bind
from pagemill.extraction.config import Settings
from pagemill.extraction.extractor import Extractor
from pagemill.extraction.record import ExtractOptions, PageInput, Result
from pagemill.extraction.remote_engine import RemoteEngine, RemoteServer
from pagemill.extraction.stack import WorkerProcess

from .conftest import STOCK

pytestmark = pytest.mark.model

OPTIONS = ExtractOptions(max_tokens=64, known_values=False)


def pages() -> list[PageInput]:
    lines = "".join(f"<p>Line {n} of a long page.</p>" for n in range(700))
    short = [f"<h1>Kettle {n}</h1><p>{n} left</p>" for n in range(20)]
    return [PageInput(id=str(n), body=html.encode()) for n, html in enumerate([*short, lines])]


def records(results: list[Result]) -> dict[str, tuple[object, int, int]]:
    assert all(result.status == "done" for result in results)
    return {
        result.id: (result.record, result.windows, result.usage.prompt_tokens) for result in results
    }


def test_records_are_those_of_the_engine_behind_it(
    settings: Settings, api_url: str, model_files: ModelFiles
) -> None:
    tokenizer = Tokenizer.load(model_files.directory)
    schema = bind(STOCK)
    work = [(page, schema) for page in pages()]
    with contextlib.closing(EngineClient.connect(settings.engine_endpoint)) as engine:
        info = engine.info
        extractor = Extractor(tokenizer, model=info.model, max_model_len=info.max_model_len)
        expected = records(list(extractor.run(engine, work, OPTIONS)))
    server = RemoteServer(f"{api_url}/v1", model=info.model, max_model_len=info.max_model_len)
    with contextlib.closing(RemoteEngine.connect(server, tokenizer)) as remote:
        assert records(list(extractor.run(remote, work, OPTIONS))) == expected
    assert expected["20"][1] > 1


def test_a_worker_asks_a_remote_server(
    settings: Settings, api_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket leads nowhere, and the server's answers are enough."""
    monkeypatch.setenv("PAGEMILL_ENGINE_TOKEN", "any")
    changes = {
        "engine_url": f"{api_url}/v1",
        "engine_endpoint": "ipc:///nowhere/engine.sock",
        "namespace": "remote",
        "queue": "remote",
    }
    remote = Settings(**{**settings.model_dump(exclude_unset=True), **changes})
    app = Celery("crawler", broker=remote.broker_url, backend=remote.broker_url)
    with WorkerProcess(remote, options=["--pool", "solo"]):
        asked = {"schema": STOCK, "html": "<h1>Kettle</h1>", "max_tokens": 64}
        answer = app.send_task("pagemill.extract", kwargs=asked, queue=remote.queue).get(timeout=60)
    app.close()
    assert answer["status"] == "done"
    assert isinstance(answer["record"]["in_stock"], bool)
