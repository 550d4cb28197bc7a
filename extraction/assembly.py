"""The parts that the command line, the API and the workers are all made of, by the settings."""

from __future__ import annotations

from pagemill.engine.protocol import Welcome
from pagemill.engine.tokenizer import Tokenizer
from redis import Redis

from .config import Settings
from .extractor import Extractor
from .ledger import Ledger, LedgerLimits, connect
from .page import PageLimits
from .templates import SiteTemplates


def open_ledger(settings: Settings, *, timeout_s: float = 10.0) -> Ledger:
    """Return a ledger with the limits that the settings name, on a connection of its own."""
    return Ledger(
        connect(settings.redis_url, timeout_s=timeout_s),
        namespace=settings.namespace,
        limits=LedgerLimits(
            max_page_bytes=settings.max_page_bytes,
            max_queued=settings.max_queued_pages,
            max_attempts=settings.max_attempts,
            retention_s=settings.result_ttl_s,
            max_site_in_flight=settings.max_site_in_flight,
            tenant_pages_per_s=settings.tenant_pages_per_s,
            tenant_tokens_per_s=settings.tenant_tokens_per_s,
        ),
    )


def make_extractor(
    settings: Settings, tokenizer: Tokenizer, engine: Welcome, redis: Redis | None = None
) -> Extractor:
    """Return the extractor for an engine that has introduced itself.

    `redis` keeps what is learnt of sites; without it nothing is.
    """
    return Extractor(
        tokenizer,
        model=engine.model,
        max_model_len=engine.max_model_len,
        limits=PageLimits(max_bytes=settings.max_page_bytes),
        sites=SiteTemplates(redis, settings.namespace) if redis is not None else None,
    )
