"""`/v1/schemas`: versions, advice, and what can't be registered."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from .conftest import STOCK, expect_problem

pytestmark = pytest.mark.model


def test_the_library_is_there_from_the_start(api: httpx.Client) -> None:
    names = {schema["name"]: schema for schema in api.get("/v1/schemas").json()["schemas"]}
    assert {"product", "article", "job_posting", "recipe"} <= set(names)
    assert names["product"]["source"] == "library"
    detail = api.get("/v1/schemas/product").json()
    assert detail["schema"]["type"] == "object"
    assert detail["versions"] == [1]


def test_a_new_content_is_a_new_version(api: httpx.Client) -> None:
    wider = {**STOCK, "description": "Whether a shop has it."}
    first = api.put("/v1/schemas/availability", json=STOCK)
    assert (first.status_code, first.json()["version"]) == (201, 1)
    assert first.json()["created"] is True
    assert first.json()["compiled"]["states"] > 0
    again = api.put("/v1/schemas/availability", json=STOCK)
    assert (again.status_code, again.json()["version"]) == (200, 1)
    assert again.json()["created"] is False
    second = api.put("/v1/schemas/availability", json=wider)
    assert (second.status_code, second.json()["version"]) == (201, 2)
    assert second.json()["versions"] == [1, 2]
    old = api.get("/v1/schemas/availability@1").json()
    assert old["schema"]["description"] == STOCK["description"]
    latest = api.get("/v1/schemas/availability@latest").json()
    assert latest["version"] == 2
    assert latest["hash"] != old["hash"]


def test_advice_comes_with_its_place(api: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    warnings = api.put("/v1/schemas/loose", json=schema).json()["warnings"]
    assert any(warning["pointer"] == "/properties/a" for warning in warnings)


@pytest.mark.parametrize(
    ("name", "schema", "status", "reason"),
    [
        ("Bad Name", STOCK, 422, "schema_invalid"),
        ("x", {"type": "nonsense"}, 422, "schema_invalid"),
        ("x", [1], 422, "request_invalid"),
        ("x", {"type": "object", "properties": {"a": {"$ref": "http://a/"}}}, 422, None),
    ],
)
def test_what_cannot_be_registered(
    api: httpx.Client, name: str, schema: Any, status: int, reason: str | None
) -> None:
    reply = api.put(f"/v1/schemas/{name}", json=schema)
    assert reply.status_code == status, reply.text
    expect_problem(reply, status, reason or reply.json()["reason"])


@pytest.mark.parametrize("ref", ["nothing", "product@99", "product@x"])
def test_an_unknown_schema_is_a_problem(api: httpx.Client, ref: str) -> None:
    reply = api.get(f"/v1/schemas/{ref}")
    assert reply.status_code in (404, 422)
    assert reply.json()["reason"] in ("schema_unknown", "schema_invalid")


def test_a_check_registers_nothing(api: httpx.Client) -> None:
    reply = api.post("/v1/schemas:check", json={"properties": {"a": {"type": "string"}}})
    assert reply.status_code == 200
    assert "unbounded-string" in {warning["code"] for warning in reply.json()["warnings"]}
    assert reply.json()["compiled"]["states"] > 0
    refused = api.post("/v1/schemas:check", json={"type": "nonsense"})
    expect_problem(refused, 422, "schema_invalid")


def test_a_schema_is_proposed_from_records(api: httpx.Client) -> None:
    records = [{"title": "A", "price": 1.5}, {"title": "B", "price": None}]
    reply = api.post("/v1/schemas:infer", json={"records": records}).json()
    assert list(reply["schema"]["properties"]) == ["title", "price"]
    assert {warning["code"] for warning in reply["warnings"]} == {"no-description"}
    expect_problem(api.post("/v1/schemas:infer", json={"records": []}), 422, "request_invalid")
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    refused = api.post("/v1/schemas:infer", json={"records": [deep]})
    expect_problem(refused, 422, "schema_invalid", "deeper")


def test_versions_are_compared(api: httpx.Client) -> None:
    longer = {**STOCK, "properties": {**STOCK["properties"], "shop": {"type": "string"}}}
    for schema in (STOCK, longer, {**longer, "required": []}):
        assert api.put("/v1/schemas/compared", json=schema).status_code == 201
    latest = api.get("/v1/schemas/compared/diff").json()
    assert (latest["from_version"], latest["to_version"]) == (2, 3)
    assert latest["verdict"] == "breaking"
    first = api.get("/v1/schemas/compared/diff", params={"from": 1, "to": 2}).json()
    assert first["verdict"] == "additive"
    assert first["changes"][0]["pointer"] == "/properties/shop"
    unknown = api.get("/v1/schemas/compared/diff", params={"from": 9})
    expect_problem(unknown, 404, "schema_unknown")
    expect_problem(api.get("/v1/schemas/nothing/diff"), 404, "schema_unknown")
