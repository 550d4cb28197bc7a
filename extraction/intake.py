"""What submitters say, as submissions of the ledger: one place for API, Celery and command line.

The schema's version is fixed here, at the door.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pagemill import schemas

from .ledger import Ledger, PageSubmission, QueueClass, redis_errors
from .prompt import PROMPT_VERSION
from .reason import Reason, Refused
from .record import ExtractOptions

_INLINE_KEPT_S = 86_400.0


def fix_schema(registry: schemas.SchemaRegistry, schema: str | Mapping[str, Any]) -> str:
    """Return name@version for a schema's name, or for an inline schema, which is kept for a while.

    Raises schemas.SchemaRefused, and Refused(LEDGER_UNAVAILABLE) when Redis can't serve.
    """
    with redis_errors():
        if isinstance(schema, str):
            version = registry.get(schema)
        else:
            version = registry.inline.put(dict(schema))
    return version.ref


def drop_unused_schemas(
    registry: schemas.SchemaRegistry, ledger: Ledger, *, unused_s: float = _INLINE_KEPT_S
) -> int:
    """Drop inline schemas that no page needs and nobody has used for long; how many.

    A submitter's own use comes before its page is in the ledger, and counts for `unused_s`.
    Raises Refused when Redis can't serve.
    """
    dropped = 0
    with redis_errors():
        for ref in registry.inline.idle(unused_s):
            if ledger.needs_schema(ref):
                registry.inline.get(ref)
            else:
                dropped += registry.inline.forget(ref, unused_s=unused_s)
    return dropped


def parse_options(options: ExtractOptions | Mapping[str, Any] | None) -> bytes:
    """Return extraction options as the ledger keeps them; Refused names what is wrong."""
    if options is None:
        options = ExtractOptions()
    elif not isinstance(options, ExtractOptions):
        try:
            options = msgspec.convert(dict(options), ExtractOptions)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            raise Refused(Reason.REQUEST_INVALID, f"extraction options: {error}") from None
    return msgspec.json.encode(options)


def submission(
    body: bytes,
    *,
    schema: str,
    model: str,
    url: str | None = None,
    client_id: str = "",
    content_type: str | None = None,
    encoding: str | None = None,
    options: bytes = b"",
    queue_class: QueueClass = "bulk",
) -> PageSubmission:
    """Return a page as the ledger takes it. `schema` comes from `fix_schema`, `options` from
    `parse_options`; `model` is the engine's model, to which the prompt's version is added.
    """
    return PageSubmission(
        body=body,
        schema=schema,
        url=url,
        content_type=content_type,
        encoding=encoding,
        options=options or parse_options(None),
        model=f"{model}+prompt{PROMPT_VERSION}",
        client_id=client_id,
        queue_class=queue_class,
    )
