"""API keys: nothing without one, scopes, and tenants who see nothing of each other."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest
from pagemill.extraction.api_keys import ApiKeys, Scope
from pagemill.extraction.config import Settings
from pagemill.extraction.key_usage import KeyUsage, QuotaExceeded
from pagemill.extraction.reason import Refused
from pagemill.extraction.stack import ApiProcess
from redis import Redis

from .conftest import HTML, STOCK, expect_problem

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def keys(settings: Settings) -> Iterator[ApiKeys]:
    with Redis.from_url(settings.redis_url) as redis:
        yield ApiKeys(redis, settings.namespace)


@pytest.fixture(scope="module")
def guarded(settings: Settings) -> Iterator[str]:
    with ApiProcess(settings.model_copy(update={"require_api_key": True})) as api:
        yield api.url


def client(url: str, keys: ApiKeys, tenant: str, *scopes: Scope) -> httpx.Client:
    token, _ = keys.create(tenant, scopes)
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, timeout=60, trust_env=False, headers=headers)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Bearer",
        "Bearer pm_000000000000_nonsense",
        "Basic cG1fOnBt",
        "pm_000000000000_x",
        "Bearer \xff\xfe",
        "Bearer " + "x" * 4000,
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/extract"),
        ("POST", "/v1/batches"),
        ("GET", "/v1/schemas"),
        ("GET", "/metrics"),
        ("GET", "/nothing"),
        ("POST", "/v1/batches/any/cancel"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
    ],
)
def test_without_a_valid_key_there_is_nothing(
    guarded: str, method: str, path: str, header: str | None
) -> None:
    headers = {b"Authorization": header.encode("latin-1")} if header is not None else {}
    reply = httpx.request(method, guarded + path, headers=headers, trust_env=False)
    expect_problem(reply, 401, "api_key_invalid", "pagemill key create")
    assert reply.headers["www-authenticate"] == "Bearer"


def test_health_needs_no_key(guarded: str) -> None:
    assert httpx.get(f"{guarded}/healthz", trust_env=False).status_code == 200
    document = httpx.get(f"{guarded}/openapi.json", trust_env=False).json()
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


def test_scopes(guarded: str, keys: ApiKeys) -> None:
    page = {"html": HTML, "schema": STOCK}
    with client(guarded, keys, "crawl", "submit") as submitter:
        assert submitter.post("/v1/extract", json=page).status_code == 200
        expect_problem(submitter.get("/v1/schemas"), 403, "scope_missing", "'read'", "submit")
    with client(guarded, keys, "crawl", "read") as reader:
        assert reader.get("/v1/schemas").status_code == 200
        assert reader.post("/v1/schemas:check", json=STOCK).status_code == 200
        expect_problem(reader.post("/v1/extract", json=page), 403, "scope_missing")
        expect_problem(reader.put("/v1/schemas/x", json=STOCK), 403, "scope_missing")
    with client(guarded, keys, "crawl", "admin") as admin:
        assert admin.put("/v1/schemas/by-admin", json=STOCK).status_code == 201
        assert admin.post("/v1/extract", json=page).status_code == 200


def test_tenants_do_not_see_each_others_batches(guarded: str, keys: ApiKeys) -> None:
    body = {"schema": STOCK, "pages": [{"id": "1", "html": HTML}]}
    headers = {"Idempotency-Key": "the-same"}
    with (
        client(guarded, keys, "one", "submit", "read") as one,
        client(guarded, keys, "two", "submit", "read") as two,
        client(guarded, keys, "boss", "admin") as boss,
    ):
        first = one.post("/v1/batches", json=body, headers=headers).json()
        second = two.post("/v1/batches", json=body, headers=headers).json()
        assert first["id"] != second["id"]
        assert (first["created"], second["created"]) == (1, 1)  # pages are apart, too
        for path in (first["status"], first["records"]):
            assert one.get(path).status_code == 200
            assert boss.get(path).status_code == 200
            expect_problem(two.get(path), 404, "batch_unknown")


def test_a_revoked_key_ends(guarded: str, keys: ApiKeys) -> None:
    token, key = keys.create("short", ["read"])
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{guarded}/v1/schemas"
    assert httpx.get(url, headers=headers, trust_env=False).status_code == 200
    assert key.id in {known.id for known in keys.list()}
    assert keys.revoke(key.id)
    assert not keys.revoke(key.id)
    for _ in range(100):
        if httpx.get(url, headers=headers, trust_env=False).status_code == 401:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the key is still taken")


def test_keys_expire_and_secrets_are_not_stored(settings: Settings, keys: ApiKeys) -> None:
    token, key = keys.create("late", ["read"], valid_s=0.05)
    time.sleep(0.06)
    assert keys.find(token) is None
    with Redis.from_url(settings.redis_url) as redis:
        stored = redis.hget(f"{settings.namespace}:api-keys", key.id)
    assert token.rpartition("_")[2].encode() not in stored


@pytest.mark.parametrize(("tenant", "scopes"), [("", ["read"]), ("a b", ["read"]), ("a", [])])
def test_what_cannot_be_a_key(keys: ApiKeys, tenant: str, scopes: list[Scope]) -> None:
    with pytest.raises(Refused):
        keys.create(tenant, scopes)


def test_a_key_has_its_pages_for_a_day(guarded: str, keys: ApiKeys) -> None:
    token, _ = keys.create("frugal", ["submit"], pages_per_day=3)
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=guarded, timeout=60, trust_env=False, headers=headers) as frugal:
        page = {"html": HTML, "schema": STOCK}
        assert frugal.post("/v1/extract", json=page).status_code == 200
        pages = [{"id": str(n), "html": f"{HTML}<p>frugal {n}"} for n in range(3)]
        # Begun below the bound, it counts in whole.
        batch = {"schema": STOCK, "pages": pages}
        assert frugal.post("/v1/batches", json=batch).status_code == 202
        refused = frugal.post("/v1/extract", json=page)
        expect_problem(refused, 429, "rate_limited", "3 pages", "come again")
        assert 1 <= int(refused.headers["retry-after"]) <= 86_400


def test_a_key_has_its_calls_for_a_second(redis_client: Redis) -> None:
    usage, keys = KeyUsage(redis_client, "quotas"), ApiKeys(redis_client, "quotas")
    _, key = keys.create("quick", ["submit"], calls_per_s=2)
    for _ in range(2):
        usage.admit(key, now=1000.2)
    with pytest.raises(QuotaExceeded) as refused:
        usage.admit(key, now=1000.9)
    assert refused.value.retry_after_s == 1
    usage.admit(key, now=1001.0)


def test_a_day_ends_at_midnight(redis_client: Redis) -> None:
    usage, keys = KeyUsage(redis_client, "quotas"), ApiKeys(redis_client, "quotas")
    _, key = keys.create("daily", ["submit"], pages_per_day=5)
    late = 86_400 * 3 - 10
    usage.count(key, 4, now=late)
    usage.admit(key, now=late)
    usage.count(key, 4, now=late)
    assert usage.pages([key.id, "other"], now=late) == [8, 0]
    with pytest.raises(QuotaExceeded) as refused:
        usage.admit(key, now=late)
    assert refused.value.retry_after_s == 10
    usage.admit(key, now=late + 10)
