"""The OpenAPI document: what FastAPI knows, and the problems that every call may answer."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from ..reason import Reason
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
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for operations in made["paths"].values():
            for operation in operations.values():
                answers = operation["responses"]
                answers.pop("422", None)  # FastAPI's own form of it, which is never sent
                answers["default"] = {"description": "A problem", "content": content}
        app.openapi_schema = made
    return app.openapi_schema
