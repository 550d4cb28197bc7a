"""`/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Response
from pagemill.engine.errors import EngineError
from pagemill.engine.protocol import EngineStats

from ..ledger import QueueDepth
from ..reason import Refused
from .metrics import CONTENT_TYPE
from .models import EngineStatus, QueueStatus, Status
from .problems import problem, reason_of
from .services import Services, in_thread, services_of

router = APIRouter(tags=["operations"])

_PING_TIMEOUT_S = 2.0
_T = TypeVar("_T")


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers; nothing is said about Redis or the engine."""
    return {"status": "ok"}


@router.get("/readyz", response_model=None)
async def readyz(services: Annotated[Services, Depends(services_of)]) -> Response | dict[str, str]:
    """Redis serves the ledger, and the engine's step loop has answered a ping just now."""
    redis, engine = await asyncio.gather(
        _outcome(in_thread(services.ledger.ping)), _outcome(engine_stats(services))
    )
    checks = {
        "redis": _word(redis),
        "engine": _word(engine),
    }
    for outcome in (redis, engine):
        if isinstance(outcome, Exception):
            reason, detail, _, advice = reason_of(outcome)
            return problem(reason, detail, status=503, advice=advice, checks=checks)
    return {"status": "ready", **checks}


async def engine_stats(services: Services) -> EngineStats:
    """A moment of the engine; EngineError when it is silent."""
    engine = await services.engine()
    return await engine.stats(_PING_TIMEOUT_S)


async def _outcome(work: Awaitable[_T]) -> _T | Exception:
    try:
        return await work
    except (Refused, EngineError) as error:
        return error


def _word(outcome: object) -> str:
    return str(reason_of(outcome)[0]) if isinstance(outcome, Exception) else "ok"


@router.get("/v1/status")
async def status(services: Annotated[Services, Depends(services_of)]) -> Status:
    """Queue and engine at this moment; null for what doesn't answer."""
    stats, depth = await asyncio.gather(
        _outcome(engine_stats(services)), _outcome(in_thread(services.ledger.depth))
    )
    return Status(
        engine=EngineStatus.of(stats) if isinstance(stats, EngineStats) else None,
        queue=QueueStatus.of(depth) if isinstance(depth, QueueDepth) else None,
    )


@router.get("/metrics", response_class=Response)
async def metrics(services: Annotated[Services, Depends(services_of)]) -> Response:
    """Prometheus text. The engine and the ledger are asked now; their absence is a figure too."""
    stats, depth = await asyncio.gather(
        _outcome(engine_stats(services)), _outcome(in_thread(services.ledger.depth))
    )
    body = services.metrics.render(
        stats if isinstance(stats, EngineStats) else None,
        depth if isinstance(depth, QueueDepth) else None,
    )
    return Response(body, media_type=CONTENT_TYPE)
