"""One request of each kind for the OpenAPI document; tests send every one of them."""

from __future__ import annotations

from typing import Any

_STOCK = {
    "title": "Stock",
    "description": "Whether the thing that the page sells can be bought.",
    "type": "object",
    "properties": {
        "in_stock": {"type": ["boolean", "null"], "description": "Can be bought now"},
    },
    "required": ["in_stock"],
    "additionalProperties": False,
}
_HTML = "<h1>Kettle</h1><p>EUR 39.90, in stock</p>"
_FORMAT = {"type": "json_schema", "json_schema": {"name": "stock", "schema": _STOCK}}
_MODEL = "smollm2-135m-instruct"

# Method and path -> content type -> a body.
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("post", "/v1/extract"): {
        "application/json": {
            "html": _HTML,
            "url": "https://shop.example/kettle",
            "schema": "product",
            "options": {"max_tokens": 400},
        },
        "text/html": _HTML,
    },
    ("post", "/v1/batches"): {
        "application/json": {
            "schema": "product",
            "pages": [{"id": "kettle", "url": "https://shop.example/kettle", "html": _HTML}],
        },
        "application/x-ndjson": '{"id": "kettle", "schema": "product", "html": "<p>Tea</p>"}\n',
    },
    ("post", "/v1/chat/completions"): {
        "application/json": {
            "model": _MODEL,
            "messages": [{"role": "user", "content": "The kettle is in stock."}],
            "max_tokens": 40,
            "temperature": 0,
            "response_format": _FORMAT,
        }
    },
    ("post", "/v1/completions"): {
        "application/json": {"model": _MODEL, "prompt": "A kettle is", "max_tokens": 16}
    },
    ("put", "/v1/schemas/{name}"): {"application/json": _STOCK},
    ("post", "/v1/schemas:check"): {"application/json": _STOCK},
    ("post", "/v1/schemas:infer"): {
        "application/json": {"records": [{"name": "Kettle", "price": 39.9}, {"name": "Cup"}]}
    },
}
# Names of parameters -> values that mean something.
PARAMETERS = {
    "schema": "product",
    "name": "product",
    "ref": "product@1",
    "url": "https://shop.example/kettle",
    "from": 1,
    "to": 1,
}
