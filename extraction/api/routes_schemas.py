"""`/v1/schemas`: registered schemas in immutable versions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query, Response
from pagemill import schemas

from ..bound_schema import bind
from .models import (
    SchemaChange,
    SchemaChecked,
    SchemaCompiled,
    SchemaDetail,
    SchemaDiff,
    SchemaInferred,
    SchemaInferRequest,
    SchemaList,
    SchemaRegistered,
    SchemaSummary,
    SchemaWarning,
)
from .services import Services, services_of

router = APIRouter(prefix="/v1/schemas", tags=["schemas"])
verbs = APIRouter(tags=["schemas"])  # what is no schema's own

_EXAMPLE = {
    "type": "object",
    "description": "A book as a shop shows it.",
    "properties": {
        "title": {"type": "string", "maxLength": 120, "description": "The book's title"},
        "price": {"type": ["number", "null"], "description": "The price now, without currency"},
    },
    "required": ["title", "price"],
    "additionalProperties": False,
}


def _summary(version: schemas.SchemaVersion) -> dict[str, Any]:
    return {
        "name": version.name,
        "version": version.version,
        "hash": version.hash,
        "source": version.source,
    }


def _warnings(schema: dict[str, Any]) -> list[SchemaWarning]:
    return [
        SchemaWarning(code=found.code, pointer=found.pointer, message=found.message)
        for found in schemas.lint(schema)
    ]


@router.get("")
def list_schemas(services: Annotated[Services, Depends(services_of)]) -> SchemaList:
    """The latest version of every schema."""
    return SchemaList(
        schemas=[SchemaSummary(**_summary(version)) for version in services.registry.list()]
    )


@router.put("/{name}", status_code=201, responses={200: {"model": SchemaRegistered}})
def put_schema(
    name: str,
    schema: Annotated[dict[str, Any], Body(examples=[_EXAMPLE])],
    response: Response,
    services: Annotated[Services, Depends(services_of)],
) -> SchemaRegistered:
    """Register a JSON Schema: 201 for a new version, 200 when it is the latest already.

    It is compiled first, so that a schema that can't be decoded is refused here, not later.
    """
    compiled = bind(schema).grammar
    before = _latest(services, name)
    version = services.registry.put(name, schema)
    created = before is None or before.version != version.version
    if not created:
        response.status_code = 200
    return SchemaRegistered(
        **_summary(version),
        schema=version.schema,
        versions=[known.version for known in services.registry.versions(name)],
        warnings=_warnings(version.schema),
        created=created,
        compiled=_compiled(compiled),
    )


def _compiled(compiled: schemas.CompiledSchema) -> SchemaCompiled:
    return SchemaCompiled(
        states=compiled.num_states,
        table_bytes=len(compiled.table),
        compile_ms=round(compiled.compile_ms, 1),
    )


def _latest(services: Services, name: str) -> schemas.SchemaVersion | None:
    try:
        return services.registry.get(name)
    except schemas.SchemaRefused:
        return None


@router.get("/{name}/diff")
def diff_schema(
    name: str,
    services: Annotated[Services, Depends(services_of)],
    before: Annotated[int | None, Query(alias="from", ge=1)] = None,
    after: Annotated[int | None, Query(alias="to", ge=1)] = None,
) -> SchemaDiff:
    """What changed between two versions: by default the latest and the one before it."""
    new = services.registry.get(name if after is None else f"{name}@{after}")
    number = max(1, new.version - 1) if before is None else before
    old = services.registry.get(f"{name}@{number}")
    changes = schemas.diff(old.schema, new.schema)
    return SchemaDiff(
        name=name,
        from_version=old.version,
        to_version=new.version,
        verdict=schemas.verdict(changes),
        changes=[
            SchemaChange(effect=one.effect, pointer=one.pointer, message=one.message)
            for one in changes
        ],
    )


@verbs.post("/v1/schemas:check")
def check_schema(schema: Annotated[dict[str, Any], Body(examples=[_EXAMPLE])]) -> SchemaChecked:
    """Advice on a schema, and what decoding it takes, without registering it."""
    compiled = bind(schema).grammar
    return SchemaChecked(warnings=_warnings(schemas.load(schema)), compiled=_compiled(compiled))


@verbs.post("/v1/schemas:infer")
def infer_schema(asked: SchemaInferRequest) -> SchemaInferred:
    """Propose a schema from example records; the advice says what is left to a human."""
    schema = schemas.infer(asked.records)
    return SchemaInferred(schema=schema, warnings=_warnings(schema))


@router.get("/{ref}")
def get_schema(ref: str, services: Annotated[Services, Depends(services_of)]) -> SchemaDetail:
    """A version of a schema: `name` (the latest), `name@2` or `name@latest`."""
    version = services.registry.get(ref)
    return SchemaDetail(
        **_summary(version),
        schema=version.schema,
        versions=[known.version for known in services.registry.versions(version.name)],
        warnings=_warnings(version.schema),
    )
