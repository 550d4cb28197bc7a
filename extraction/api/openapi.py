"""The OpenAPI document: what FastAPI knows, and the problems that every call may answer."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from ..reason import Reason
from .models import BatchRequest, ExtractRequest
from .openapi_examples import BODIES, PARAMETERS
from .problems import MEDIA_TYPE

_EXAMPLE = {
    "type": "urn:pagemill:problem:schema_unknown",
    "title": "Schema unknown",
    "status": 404,
    "detail": "there is no schema 'prodcut': did you mean product?",
    "reason": "schema_unknown",
    "error": {
        "message": "there is no schema 'prodcut': did you mean product?",
        "type": "invalid_request_error",
        "code": "schema_unknown",
        "param": None,
    },
}
_PROBLEM: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "Why a call was refused, and what to do (RFC 9457).",
    "required": ["type", "title", "status", "detail", "reason", "error"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong"},
        "reason": {"type": "string", "enum": [str(reason) for reason in Reason]},
        "at": {"type": "string", "description": "JSON pointer into the request or the schema"},
        "advice": {"type": "string", "description": "What to do"},
        "errors": {
            "type": "array",
            "items": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "error": {
            "type": "object",
            "description": "The same in the shape that OpenAI's clients read",
            "required": ["message", "type", "code", "param"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "code": {"type": "string"},
                "param": {"type": ["string", "null"]},
            },
        },
    },
    "example": _EXAMPLE,
}
# Bodies that routes read themselves, since they take other content types too.
_READ_BY_ROUTES = (ExtractRequest, BatchRequest)
_UNUSED = ("HTTPValidationError", "ValidationError")


def document(app: FastAPI) -> dict[str, Any]:
    """Return the document of `app`'s routes, made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        for name in _UNUSED:
            schemas.pop(name, None)
        schemas["Problem"] = _PROBLEM
        for model in _READ_BY_ROUTES:
            described = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(described.pop("$defs", {}))
            schemas[model.__name__] = described
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for path, operations in made["paths"].items():
            for method, operation in operations.items():
                _add_examples(operation, BODIES.get((method, path), {}))
                answers = operation["responses"]
                answers.pop("422", None)  # FastAPI's own form of it, which is never sent
                answers["default"] = {"description": "A problem", "content": content}
        app.openapi_schema = made
    return app.openapi_schema


def _add_examples(operation: dict[str, Any], bodies: dict[str, Any]) -> None:
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        if kind in bodies:
            content["example"] = bodies[kind]
    for parameter in operation.get("parameters", []):
        if parameter["name"] in PARAMETERS:
            parameter["example"] = PARAMETERS[parameter["name"]]
