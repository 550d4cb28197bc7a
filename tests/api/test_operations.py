"""Health, metrics, and the API without its engine or its Redis."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
import pytest
from pagemill._core import Scheduler, SchedulerConfig
from pagemill.extraction.config import Settings
from pagemill.extraction.ledger import connect
from pagemill.extraction.stack import ApiProcess, EmbeddedRedis

from .conftest import HTML, STOCK, expect_problem

pytestmark = pytest.mark.model


def test_ready_means_redis_and_the_step_loop_answer(api: httpx.Client) -> None:
    reply = api.get("/readyz")
    assert reply.json() == {"status": "ready", "redis": "ok", "engine": "ok"}


def test_metrics_have_the_names_that_dashboards_know(api: httpx.Client) -> None:
    api.post("/v1/extract", json={"html": HTML, "schema": STOCK})
    text = api.get("/metrics").text
    for name in (
        "pagemill_engine_up 1.0",
        "pagemill_ledger_up 1.0",
        "pagemill_num_requests_running",
        "pagemill_num_requests_waiting",
        "pagemill_kv_cache_usage_perc",
        "pagemill_prefix_cache_queries",
        "pagemill_prefix_cache_hits",
        'pagemill_pages{state="queued"}',
        "pagemill_queue_oldest_seconds",
        'pagemill_http_requests_total{method="POST",route="/v1/extract",status="200"}',
        'pagemill_extractions_total{reason="",state="done"}',
    ):
        assert name in text, text
    assert "unmatched" not in text or "/v1/nothing" not in text


def test_each_of_the_scheduler_s_counters_is_a_family_of_its_own(api: httpx.Client) -> None:
    def values() -> dict[str, float]:
        lines = [line.rpartition(" ") for line in api.get("/metrics").text.splitlines()]
        return {name: float(value) for name, _, value in lines if not name.startswith("#")}

    before = values()
    renamed = {
        "preemptions": "num_preemptions",
        "prefix_queries": "prefix_cache_queries",
        "prefix_hits": "prefix_cache_hits",
    }
    counters = Scheduler(SchedulerConfig(num_blocks=1, max_num_seqs=1)).stats()
    assert {f"pagemill_{renamed.get(name, f'scheduler_{name}')}_total" for name in counters} <= set(
        before
    )
    model = api.get("/v1/models").json()["data"][0]["id"]
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "The kettle is in stock."}],
        "max_tokens": 6,
        "n": 3,
    }
    assert api.post("/v1/chat/completions", json=body).status_code == 200
    after = values()
    moved = {name for name in after if after[name] > before.get(name, 0)}
    assert {
        "pagemill_scheduler_forks_total",
        "pagemill_scheduler_forks_shared_total",
        "pagemill_scheduler_blocks_copied_total",
        "pagemill_scheduler_requests_started_total",
        "pagemill_scheduler_plans_total",
        "pagemill_scheduler_output_tokens_total",
        'pagemill_prefix_cache_schema_queries_total{schema=""}',
    } <= moved


def test_openapi_describes_what_is_served(api: httpx.Client) -> None:
    paths = api.get("/openapi.json").json()["paths"]
    assert {"/v1/extract", "/v1/batches", "/v1/chat/completions", "/readyz"} <= set(paths)


@pytest.fixture(scope="module")
def bare() -> Iterator[tuple[httpx.Client, EmbeddedRedis]]:
    """An API with a Redis that comes and goes, and no engine."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis())
        settings = Settings(redis_url=server.url, engine_endpoint="ipc:///nonexistent/engine.sock")
        url = stack.enter_context(ApiProcess(settings)).url
        client = httpx.Client(base_url=url, timeout=60, trust_env=False)
        yield stack.enter_context(client), server


def test_without_an_engine(bare: tuple[httpx.Client, EmbeddedRedis]) -> None:
    api, _ = bare
    assert api.get("/healthz").status_code == 200
    ready = api.get("/readyz")
    expect_problem(ready, 503, "engine_unavailable")
    assert ready.json()["checks"] == {"redis": "ok", "engine": "engine_unavailable"}
    reply = api.post("/v1/extract", json={"html": HTML, "schema": STOCK})
    expect_problem(reply, 503, "engine_unavailable")
    assert int(reply.headers["retry-after"]) > 0
    chat = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    expect_problem(api.post("/v1/chat/completions", json=chat), 503, "engine_unavailable")
    # The ledger takes pages all the same.
    batch = api.post("/v1/batches", json={"schema": STOCK, "pages": [{"html": HTML}]})
    assert batch.status_code == 202
    assert "pagemill_engine_up 0.0" in api.get("/metrics").text


def test_with_a_full_redis(bare: tuple[httpx.Client, EmbeddedRedis]) -> None:
    api, server = bare
    redis = connect(server.url)
    redis.config_set("maxmemory", 1)
    try:
        for reply in (
            api.put("/v1/schemas/full", json=STOCK),
            api.post("/v1/batches", json={"schema": STOCK, "pages": [{"html": HTML}]}),
            api.post("/v1/batches", json={"schema": "product", "pages": [{"html": HTML}]}),
        ):
            expect_problem(reply, 503, "ledger_full", "raise maxmemory")
            assert int(reply.headers["retry-after"]) > 0
    finally:
        redis.config_set("maxmemory", 0)
    assert api.put("/v1/schemas/full", json=STOCK).status_code == 201


def test_without_redis(bare: tuple[httpx.Client, EmbeddedRedis]) -> None:
    api, server = bare
    server.kill()
    try:
        assert api.get("/healthz").status_code == 200
        expect_problem(api.get("/readyz"), 503, "ledger_unavailable")
        for reply in (
            api.get("/v1/schemas"),
            api.get("/v1/batches/x"),
            api.post("/v1/batches", json={"schema": STOCK, "pages": [{"html": HTML}]}),
            api.post("/v1/extract", json={"html": HTML, "schema": "product"}),
        ):
            expect_problem(reply, 503, "ledger_unavailable")
            assert int(reply.headers["retry-after"]) > 0
        assert "pagemill_ledger_up 0.0" in api.get("/metrics").text
    finally:
        server.start()
    assert api.get("/v1/schemas").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "parameter"),
    [
        ("GET", "/v1/schemas", "limit"),
        ("GET", "/v1/schemas/product", "version"),
        ("PUT", "/v1/schemas/product", "force"),
        ("GET", "/v1/batches/nothing", "cursor"),
        ("GET", "/v1/batches/nothing/records", "cursr"),
        ("GET", "/v1/models", "id"),
        ("POST", "/v1/chat/completions", "model"),
        ("POST", "/v1/extract", "schma"),
        ("POST", "/v1/batches", "schma"),
        ("GET", "/healthz", "verbose"),
    ],
)
def test_a_query_parameter_that_the_route_does_not_have_is_refused(
    api: httpx.Client, method: str, path: str, parameter: str
) -> None:
    reply = api.request(method, path, params={parameter: "1"})
    expect_problem(reply, 422, "request_invalid", f"unknown field '{parameter}'")
    assert reply.json()["errors"][0]["in"] == "query"


def test_a_misspelt_query_parameter_is_told_its_name(api: httpx.Client) -> None:
    reply = api.get("/v1/batches/nothing/records?cursr=1")
    expect_problem(reply, 422, "request_invalid", "did you mean cursor?")


def test_a_query_parameter_may_come_once(api: httpx.Client) -> None:
    reply = api.get("/v1/batches/nothing/records?limit=1&limit=2")
    expect_problem(reply, 422, "request_invalid", "more than once")
