"""The OpenAPI document is whole, and its examples are good."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pagemill.extraction.api.openapi_examples import BODIES
from pagemill.extraction.reason import Reason

pytestmark = pytest.mark.model


@pytest.fixture
def document(api: httpx.Client) -> dict[str, Any]:
    return dict(api.get("/openapi.json").json())


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for reference in set(references(document)):
        node: Any = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
        assert node


def test_every_body_has_an_example_and_every_call_its_problems(document: dict[str, Any]) -> None:
    problem = document["components"]["schemas"]["Problem"]
    assert problem["properties"]["reason"]["enum"] == [str(reason) for reason in Reason]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert "application/problem+json" in operation["responses"]["default"]["content"]
            assert "422" not in operation["responses"], (method, path)
            for content in operation.get("requestBody", {}).get("content", {}).values():
                assert "example" in content, (method, path)


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [(method, path, kind) for (method, path), bodies in BODIES.items() for kind in bodies],
)
def test_an_example_works(api: httpx.Client, method: str, path: str, kind: str) -> None:
    body = BODIES[method, path][kind]
    content = body if isinstance(body, str) else json.dumps(body)
    query = {"schema": "product"} if kind != "application/json" else {}
    if (path, kind) == ("/v1/extract", "text/html"):
        query["max_tokens"] = "400"
    reply = api.request(
        method,
        path.replace("{name}", "of-the-document"),
        content=content,
        params=query,
        headers={"content-type": kind},
    )
    assert reply.status_code in (200, 201, 202), reply.text
