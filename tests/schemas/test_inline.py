"""Schemas that come with submissions: by content, in no list, kept as long as they are used."""

from __future__ import annotations

import pytest
from pagemill.schemas import SchemaReason, SchemaRefused, SchemaRegistry, inline

from .test_registry import schema


@pytest.fixture
def schemas(redis_client) -> SchemaRegistry:
    return SchemaRegistry(redis_client)


def test_equal_content_is_one_schema_and_in_no_list(schemas):
    first = schemas.inline.put(schema("b", "a"))
    assert (first.version, first.source) == (1, "inline")
    assert schemas.inline.put(schema("b", "a")).ref == first.ref
    assert schemas.inline.put(schema("a", "b")).ref != first.ref
    assert list(schemas.get(first.ref).schema["properties"]) == ["b", "a"]
    for ref in (first.ref, first.name, f"{first.name}@latest"):
        assert schemas.get(ref).ref == first.ref
    assert [found.ref for found in schemas.versions(first.name)] == [first.ref]
    assert not any(found.name.startswith("inline") for found in schemas.list())


@pytest.mark.parametrize("ref", ["inline-", "inline-x@1", f"inline-{'0' * 24}", "inline-a@2"])
def test_an_unknown_one_is_refused(schemas, ref):
    with pytest.raises(SchemaRefused) as refused:
        schemas.get(ref)
    assert refused.value.reason is SchemaReason.SCHEMA_UNKNOWN


def test_their_names_are_nobody_elses(schemas):
    with pytest.raises(SchemaRefused) as refused:
        schemas.put("inline-mine", schema("a"))
    assert refused.value.reason is SchemaReason.SCHEMA_INVALID


def test_what_cannot_be_served_is_not_kept(schemas, redis_client):
    with pytest.raises(SchemaRefused):
        schemas.inline.put({"type": "nonsense"})
    assert not redis_client.keys("*inline*")


def test_they_are_bounded_and_fill_no_registry(schemas, monkeypatch):
    monkeypatch.setattr(inline, "MAX_INLINE", 2)
    kept = schemas.inline.put(schema("a"))
    schemas.inline.put(schema("b"))
    with pytest.raises(SchemaRefused) as refused:
        schemas.inline.put(schema("c"))
    assert refused.value.reason is SchemaReason.SCHEMA_TOO_LARGE
    assert schemas.inline.put(schema("a")).ref == kept.ref
    assert schemas.put("lamp", schema("c")).version == 1


def test_what_is_used_stays(schemas, redis_client):
    old, used = schemas.inline.put(schema("a")), schemas.inline.put(schema("b"))
    (uses,) = redis_client.keys("*:inline_schemas:used")
    for name in (old.name, used.name):  # both as if put two hours ago
        redis_client.zincrby(uses, -2 * 3600 * 1000, name)
    schemas.get(used.ref)
    assert schemas.inline.idle(3600) == [old.ref]
    assert not schemas.inline.forget(used.ref, unused_s=3600)
    assert schemas.inline.forget(old.ref, unused_s=3600)
    assert not schemas.inline.forget(old.ref, unused_s=3600)
    assert schemas.get(used.ref).ref == used.ref
    with pytest.raises(SchemaRefused):
        schemas.get(old.ref)


def test_a_full_redis_still_gives_them_out(schemas, redis_client):
    """Pages that wait need them, and only work makes room."""
    kept = schemas.inline.put(schema("a"))
    redis_client.config_set("maxmemory", 1)
    try:
        assert schemas.get(kept.ref).schema == kept.schema
    finally:
        redis_client.config_set("maxmemory", 0)
