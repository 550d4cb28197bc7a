"""Prometheus metrics: this process's own, the engine's and the ledger's at the moment of asking.

Engine figures carry the names that vLLM's users know, under our prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pagemill.engine.protocol import EngineStats
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ..ledger import QueueDepth

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metrics of one API process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "pagemill_http_requests",
            "HTTP requests by outcome",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "pagemill_http_request_seconds",
            "Time from a request's first byte to the last of its answer",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.extractions = Counter(
            "pagemill_extractions",
            "Pages extracted directly, by outcome",
            ["state", "reason"],
            registry=self.registry,
        )
        self.submitted = Counter(
            "pagemill_submitted_pages",
            "Pages handed to the ledger, by whether they were new",
            ["created"],
            registry=self.registry,
        )
        self.rejected = Counter(
            "pagemill_rejected_pages",
            "Pages of batches that could not be read, by reason",
            ["reason"],
            registry=self.registry,
        )

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        # A made-up method would make a label of its own.
        known = method if method in ("GET", "PUT", "POST", "HEAD", "DELETE") else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def render(self, engine: EngineStats | None, depth: QueueDepth | None) -> bytes:
        """The text exposition; a part that didn't answer shows as `..._up 0`."""
        moment = CollectorRegistry()
        moment.register(_Moment([*_engine(engine), *_ledger(depth)]))
        return generate_latest(self.registry) + generate_latest(moment)


class _Moment:
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"pagemill_{name}", text, value=value)


def _engine(stats: EngineStats | None) -> Iterator[Metric]:
    yield _gauge("engine_up", "1 when the engine's step loop answers", stats is not None)
    if stats is None:
        return
    used = 1 - stats.free_blocks / stats.total_blocks if stats.total_blocks else 0.0
    yield _gauge("num_requests_running", "Requests in the engine's batch", stats.running)
    yield _gauge("num_requests_waiting", "Requests in the engine's queue", stats.waiting)
    yield _gauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1", used)
    yield _gauge("engine_credit", "Requests that the engine would take now", stats.credit)
    yield _gauge("engine_last_step_age_seconds", "Since the last step", stats.last_step_age_s)
    for name, value in sorted(stats.counters.items()):
        plain = re.sub(r"[^a-zA-Z0-9_]", "_", name).removesuffix("_total")
        text = f"The engine's counter {plain}"
        yield CounterMetricFamily(f"pagemill_{plain}", text, value=value)
    asked = CounterMetricFamily(
        "pagemill_prefix_cache_schema_queries",
        "Prompt tokens looked up in the prefix cache, by schema",
        labels=["schema"],
    )
    found = CounterMetricFamily(
        "pagemill_prefix_cache_schema_hits",
        "Prompt tokens found in the prefix cache, by schema",
        labels=["schema"],
    )
    for schema, (queries, hits) in sorted(stats.prefix_cache.items()):
        asked.add_metric([schema], queries)
        found.add_metric([schema], hits)
    yield asked
    yield found


def _ledger(depth: QueueDepth | None) -> Iterator[Metric]:
    yield _gauge("ledger_up", "1 when Redis serves the ledger", depth is not None)
    if depth is None:
        return
    pages = GaugeMetricFamily(
        "pagemill_pages",
        "Pages queued and leased now; done, failed, dead and cancelled ever",
        labels=["state"],
    )
    for state in ("queued", "leased", "done", "failed", "dead", "cancelled"):
        pages.add_metric([state], getattr(depth, state))
    yield pages
    yield _gauge("queue_oldest_seconds", "Age of the page that waits longest", depth.oldest_s)
    yield _gauge("ledger_bytes", "Compressed bodies and results in Redis", depth.bytes)
    counters = {
        "lease_lost": (depth.lost, "Leases that ended without a commit"),
        "zombie_commits": (depth.zombie_commits, "Commits refused for an old lease token"),
        "pages_resubmitted": (depth.resubmitted, "Submissions of pages that were known"),
    }
    for name, (value, text) in counters.items():
        yield CounterMetricFamily(f"pagemill_{name}", text, value=value)
