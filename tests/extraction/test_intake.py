"""Inline schemas live as long as a page may need them."""

from __future__ import annotations

import time

import pytest
import redis
from pagemill.extraction.intake import drop_unused_schemas, fix_schema, submission
from pagemill.extraction.ledger import Ledger
from pagemill.schemas import SchemaRefused, SchemaRegistry

SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}


def test_a_schema_goes_with_the_last_page_that_needs_it(redis_client: redis.Redis) -> None:
    ledger, registry = Ledger(redis_client), SchemaRegistry(redis_client)
    ref = fix_schema(registry, SCHEMA)
    assert drop_unused_schemas(registry, ledger) == 0  # its submitter is just about to send pages
    done, dead = ledger.submit(
        [submission(b"<p>1</p>", schema=ref, model="m"), submission(b"2", schema=ref, model="m")]
    )
    time.sleep(0.02)
    assert drop_unused_schemas(registry, ledger, unused_s=0.01) == 0
    [lease] = ledger.claim("w", 1, want=done.page_id)
    ledger.commit(lease, b"{}", "done")
    while leases := ledger.claim("w", 1):
        ledger.release(leases, "crashed")
    time.sleep(0.02)
    assert drop_unused_schemas(registry, ledger, unused_s=0.01) == 0  # a dead page may be retried
    ledger.drop([dead.page_id])
    time.sleep(0.02)
    assert drop_unused_schemas(registry, ledger, unused_s=0.01) == 1
    with pytest.raises(SchemaRefused):
        registry.get(ref)
    assert fix_schema(registry, SCHEMA) == ref


def test_a_fresh_schema_a_run_fills_nothing(redis_client: redis.Redis) -> None:
    ledger, registry = Ledger(redis_client), SchemaRegistry(redis_client)
    for number in range(20):
        schema = {**SCHEMA, "description": f"run {number}"}
        [accepted] = ledger.submit(
            [submission(b"x", schema=fix_schema(registry, schema), model="m")]
        )
        [lease] = ledger.claim("w", 1, want=accepted.page_id)
        ledger.commit(lease, b"{}", "done")
    before = len(registry.list())
    time.sleep(0.01)
    assert drop_unused_schemas(registry, ledger, unused_s=0.005) == 20
    assert not redis_client.hlen("pagemill:inline_schemas")
    assert len(registry.list()) == before
