"""The dashboard shows figures that are exported, and Prometheus asks who exports them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from pagemill.engine.metrics import _SCHEDULER_NAMES
from pagemill.engine.protocol import EngineStats
from pagemill.extraction.api.metrics import Metrics
from pagemill.extraction.ledger import QueueDepth
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "grafana" / "pagemill.json").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())


def exported() -> dict[str, set[str]]:
    """Each metric's samples with the labels they have."""
    metrics = Metrics()
    metrics.observe_request("GET", "/healthz", 200, 0.1)
    metrics.extractions.labels("done", "").inc()
    metrics.submitted.labels("true").inc()
    metrics.rejected.labels("page_empty").inc()
    # The other counters of an engine depend on its settings.
    counters = dict.fromkeys(_SCHEDULER_NAMES.values(), 1)
    stats = EngineStats(1, 1, 1, 2, 1, 0.1, counters, {"s": (2, 1)})
    fields = dict.fromkeys(QueueDepth.__struct_fields__, 1)
    text = metrics.render(stats, QueueDepth(**fields)).decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def queries() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_every_metric_of_the_dashboard_is_exported() -> None:
    known = exported()
    named = {name for query in queries() for name in re.findall(r"pagemill_\w+", query)}
    assert len(named) > 12
    assert named <= set(known)
    for query in queries():
        [name, *_] = re.findall(r"pagemill_\w+", query)
        used = set(re.findall(r"(\w+)=~?\"", query))
        for group in re.findall(r"by \(([^)]*)\)", query):
            used |= {label.strip() for label in group.split(",")}
        assert used <= known[name] | {"le"}, query


def test_panels_are_whole_and_apart() -> None:
    places = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        places |= {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert panel["title"]
        assert panel["datasource"]["uid"] == "prometheus"
    areas = [panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in DASHBOARD["panels"]]
    assert len(places) == sum(areas)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_files_meet() -> None:
    """Prometheus asks the API's port; Grafana knows Prometheus; what is mounted is there."""
    scraped = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    assert scraped[0]["static_configs"][0]["targets"] == ["api:8080"]
    [source] = yaml.safe_load((MONITORING / "grafana" / "datasource.yml").read_text())[
        "datasources"
    ]
    assert (source["uid"], source["url"]) == ("prometheus", "http://prometheus:9090")
    for name in ("prometheus", "grafana"):
        service = COMPOSE["services"][name]
        assert service["profiles"] == ["monitoring"]
        mounted = [volume for volume in service["volumes"] if volume.startswith("./")]
        assert mounted
        for volume in mounted:
            assert (ROOT / volume.split(":")[0]).is_file()
