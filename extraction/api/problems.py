"""Errors as `application/problem+json` (RFC 9457), each with its code of `Reason`.

Besides the standard members a problem has `reason`, and where they help `at` (a JSON pointer),
`advice`, `errors` (a list of places) and `error`, the shape that OpenAI's clients read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import redis
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pagemill.engine.errors import EngineError
from pagemill.schemas.errors import SchemaRefused
from pagemill.schemas.walk import escape
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..config import nearest
from ..key_usage import QuotaExceeded
from ..ledger import refusal_of
from ..reason import Reason, Refused

_ModelT = TypeVar("_ModelT", bound=BaseModel)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5

_STATUS: Mapping[Reason, int] = {
    Reason.API_KEY_INVALID: 401,
    Reason.SCOPE_MISSING: 403,
    Reason.BATCH_UNKNOWN: 404,
    Reason.MODEL_UNKNOWN: 404,
    Reason.SCHEMA_UNKNOWN: 404,
    Reason.BODY_ENCODING_INVALID: 400,
    Reason.INPUT_INVALID: 400,
    Reason.REQUEST_INVALID: 400,
    Reason.PAGE_TOO_LARGE: 413,
    Reason.REQUEST_TOO_LARGE: 413,
    Reason.UNSUPPORTED_CONTENT_TYPE: 415,
    Reason.OVERLOADED: 429,
    Reason.ENGINE_UNAVAILABLE: 503,
    Reason.LEDGER_UNAVAILABLE: 503,
    Reason.LEDGER_FULL: 503,
    Reason.RATE_LIMITED: 429,
    Reason.TOKENIZER_MISMATCH: 503,
    Reason.VERSION_MISMATCH: 503,
    Reason.MODEL_INVALID: 503,
    Reason.CONFIG_INVALID: 503,
    Reason.DEADLINE: 504,
    Reason.CANCELLED: 503,
    Reason.INTERNAL_ERROR: 500,
    Reason.ENGINE_ERROR: 500,
    Reason.GRAMMAR_INVALID: 500,
    Reason.GRAMMAR_MISSING: 500,
    Reason.MESSAGE_INVALID: 500,
}
_BY_HTTP_STATUS = {
    413: Reason.REQUEST_TOO_LARGE,
    415: Reason.UNSUPPORTED_CONTENT_TYPE,
    500: Reason.INTERNAL_ERROR,
}


def status_of(reason: Reason) -> int:
    """The HTTP status of a reason; 422 for what is wrong with a page, a schema or a record."""
    return _STATUS.get(reason, 422)


class HttpRefused(HTTPException):
    """A `Refused` that passes through the framework's own reading of a request."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(status_code=status_of(refused.reason), detail=str(refused))
        self.refused = refused


def problem(
    reason: Reason,
    detail: str,
    *,
    status: int | None = None,
    at: str = "",
    advice: str = "",
    errors: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """Build the response of one problem; 429 and 503 say when to come back."""
    code = status if status is not None else status_of(reason)
    members: dict[str, Any] = {
        "type": f"urn:pagemill:problem:{reason}",
        "title": reason.replace("_", " ").capitalize(),
        "status": code,
        "detail": detail,
        "reason": str(reason),
    }
    members.update({"at": at} if at else {})
    members.update({"advice": advice} if advice else {})
    members.update({"errors": list(errors)} if errors else {})
    members.update(more)
    members["error"] = {
        "message": detail,
        "type": "server_error" if code >= 500 else "invalid_request_error",
        "code": str(reason),
        "param": at or None,
    }
    fields = dict(headers or {})
    if code in (429, 503):
        fields.setdefault("Retry-After", str(RETRY_AFTER_S))
    return JSONResponse(members, status_code=code, headers=fields, media_type=MEDIA_TYPE)


def reason_of(error: BaseException) -> tuple[Reason, str, str, str]:
    """Code, sentence, place and advice of any error of ours; INTERNAL_ERROR for others."""
    if isinstance(error, HttpRefused):
        error = error.refused
    elif isinstance(error, redis.exceptions.RedisError):
        error = refusal_of(error)
    if isinstance(error, Refused):
        return error.reason, str(error), error.at, error.advice
    if isinstance(error, SchemaRefused):
        return Reason(error.reason), str(error), error.at, error.advice
    if isinstance(error, EngineError):
        return Reason(error.reason), str(error), "", ""
    return Reason.INTERNAL_ERROR, "an error of the server; its log has the request id", "", ""


def problem_of(error: BaseException, **more: Any) -> Response:
    """The response for any error, without anything of the server's inside."""
    reason, detail, at, advice = reason_of(error)
    headers = {}
    if isinstance(error, QuotaExceeded):
        headers["Retry-After"] = str(error.retry_after_s)
    return problem(reason, detail, at=at, advice=advice, headers=headers, **more)


def refuse(reason: Reason, message: str, *, at: str = "", advice: str = "") -> NoReturn:
    """Raise the refusal of this request."""
    raise HttpRefused(Refused(reason, message, at=at, advice=advice))


class BodyInvalid(Exception):
    """A JSON body that isn't what `model` describes; read by a route itself."""

    def __init__(self, model: type[BaseModel], error: ValidationError) -> None:
        super().__init__(str(error))
        self.model = model
        self.items = [
            {**item, "loc": ("body", *item["loc"])}
            for item in error.errors(include_url=False, include_context=True, include_input=False)
        ]


def parse_body(model: type[_ModelT], body: bytes) -> _ModelT:
    """Read a JSON body; BodyInvalid names the places that are wrong."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise BodyInvalid(model, error) from None


def _validation(items: Sequence[Mapping[str, Any]], known: Sequence[str]) -> Response:
    places = []
    for item in items:
        where, *path = item["loc"]
        message = str(item["msg"]).removeprefix("Value error, ")
        if item["type"] == "extra_forbidden" and path:
            message = f"unknown field {path[-1]!r}"
            if hint := nearest(str(path[-1]), list(known)):
                message += f": {hint}"
        elif item["type"] == "json_invalid":
            message = f"the body isn't JSON: {item.get('ctx', {}).get('error', message)}"
        pointer = "".join(f"/{escape(str(part))}" for part in path)
        places.append({"in": str(where), "pointer": pointer, "message": message})
    first = places[0]
    detail = f"{first['in']} {first['pointer']}: {first['message']}".replace(" :", ":")
    if len(places) > 1:
        detail += f" (and {len(places) - 1} more)"
    malformed = any(item["type"] == "json_invalid" for item in items)
    return problem(
        Reason.REQUEST_INVALID,
        detail,
        status=400 if malformed else 422,
        at=first["pointer"],
        errors=places[:20],
    )


def _http(error: HTTPException) -> Response:
    if isinstance(error, HttpRefused):
        return problem_of(error)
    reason = _BY_HTTP_STATUS.get(error.status_code, Reason.REQUEST_INVALID)
    return problem(
        reason, str(error.detail), status=error.status_code, headers=dict(error.headers or {})
    )


def check_query(request: Request) -> None:
    """Refuse parameters of the query that the route doesn't have, or that come twice.

    A dependency of all routes: the framework would leave them unread.
    """
    known = _parameter_names(request, "query_params")
    given = [name for name, _ in request.query_params.multi_items()]
    items = [
        {"type": "extra_forbidden", "loc": ("query", name), "msg": ""}
        for name in dict.fromkeys(given)
        if name not in known
    ]
    items += [
        {"type": "repeated", "loc": ("query", name), "msg": f"{name!r} is given more than once"}
        for name in known
        if given.count(name) > 1
    ]
    if items:
        raise RequestValidationError(items)


def _known_names(request: Request, items: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names that might have been meant, in the query or in the body."""
    in_query = items and items[0]["loc"][0] == "query"
    return _parameter_names(request, "query_params" if in_query else "body_params")


def _parameter_names(request: Request, kind: str) -> list[str]:
    dependant = getattr(request.scope.get("route"), "dependant", None)
    names: list[str] = []
    for parameter in getattr(dependant, kind, ()):
        fields = getattr(parameter.field_info.annotation, "model_fields", {})
        names += [field.alias or name for name, field in fields.items()] or [parameter.alias]
    return names


def install(app: FastAPI) -> None:
    """Answer every error of `app` with a problem."""

    async def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, RequestValidationError):
            return _validation(error.errors(), _known_names(request, error.errors()))
        if isinstance(error, BodyInvalid):
            return _validation(error.items, list(error.model.model_fields))
        if isinstance(error, HTTPException):
            return _http(error)
        return problem_of(error)

    for kind in (
        RequestValidationError,
        BodyInvalid,
        HTTPException,
        Refused,
        SchemaRefused,
        EngineError,
        redis.exceptions.RedisError,
        Exception,
    ):
        app.add_exception_handler(kind, answer)
