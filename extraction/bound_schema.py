"""A schema made ready for extraction: compiled grammar, validator and prompt text together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagemill import schemas
from pagemill.schemas.lowering.verbatim import spread

from .known import KnownSource, known_sources
from .links import with_link_ids
from .null_words import null_words
from .schema_prompt import SchemaPrompt
from .verbatim import has_verbatim

_CACHE_SIZE = 64


@dataclass(frozen=True, eq=False)
class BoundSchema:
    """A schema with all that a record of it needs; make one with `bind`.

    `ref` is name@version for a registered schema, else the schema's hash. `grammar.hash` names
    the table that the engine gets. `prompt` is the part of the prompt that all its pages share.
    `null_words` stand for null in its records; `known_sources` are the fields that metadata may
    answer.
    """

    ref: str
    name: str
    version: int
    hash: str
    schema: Mapping[str, Any]
    grammar: schemas.CompiledSchema
    validator: schemas.Validator
    prompt: SchemaPrompt = field(repr=False)
    null_words: frozenset[str] = field(repr=False)
    known_sources: tuple[KnownSource, ...] = field(default=(), repr=False)
    verbatim: bool = False  # some string may only be a span of the page
    links: bool = False  # some string is an address, and decoded as a link's id


_cache: OrderedDict[tuple[str, str], BoundSchema] = OrderedDict()
_lock = threading.Lock()


def bind(source: Any) -> BoundSchema:
    """Return the bound form of a `schemas.SchemaVersion`, or of an inline schema.

    An inline schema is whatever `schemas.load` takes: a dict, JSON text, a pydantic model, an
    Outlines JsonSchema. Compilation may take seconds the first time; bound schemas are kept.
    Raises `schemas.SchemaRefused`.
    """
    if isinstance(source, schemas.SchemaVersion):
        name, version, schema = source.name, source.version, source.schema
        ref = source.ref
        if source.source == "inline":
            name = ""  # a hash says nothing to a model
    else:
        schema = schemas.load(source)
        name, version, ref = "", 0, ""
    key = (ref, schemas.content_hash(schema))
    with _lock:
        found = _cache.get(key)
        if found is not None:
            _cache.move_to_end(key)
            return found
    schema = spread(schema)
    decoded = with_link_ids(schema)
    grammar = schemas.compile(decoded)
    bound = BoundSchema(
        ref=ref or key[1],
        name=name,
        version=version,
        hash=key[1],
        schema=schema,
        grammar=grammar,
        validator=schemas.Validator(schema),
        prompt=SchemaPrompt.of(schema, name=name),
        null_words=null_words(schema),
        known_sources=known_sources(schema),
        verbatim=has_verbatim(schema),
        links=decoded is not schema,
    )
    with _lock:
        _cache[key] = bound
        while len(_cache) > _CACHE_SIZE:
            _cache.popitem(last=False)
    return bound
