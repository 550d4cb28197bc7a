"""`/` and `/console/...`: a page of ours for trying out and for looking at what runs.

It loads nothing from elsewhere and shows pages as text, so that nothing of them is ever run.
"""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Response

from ..reason import Reason
from .problems import problem

router = APIRouter(include_in_schema=False)

_FOLDER = files(__package__) / "static"
_KINDS = {".js": "text/javascript", ".css": "text/css"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def _asset(name: str, kind: str) -> Response:
    body = (_FOLDER / name).read_bytes()
    return Response(body, media_type=f"{kind}; charset=utf-8", headers=_HEADERS)


@router.get("/")
def index() -> Response:
    """The console."""
    return _asset("index.html", "text/html")


@router.get("/console/{name}")
def asset(name: str) -> Response:
    """Its scripts and styles, by the names that exist."""
    suffix = name[name.rfind(".") :]
    if suffix not in _KINDS or name not in {path.name for path in _FOLDER.iterdir()}:
        return problem(Reason.REQUEST_INVALID, "there is no such file", status=404)
    return _asset(name, _KINDS[suffix])
