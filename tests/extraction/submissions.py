"""Pages for tests of the ledger."""

from __future__ import annotations

from collections.abc import Iterator

from pagemill.extraction.ledger import Lease, Ledger, PageSubmission


def page(number: int = 0, **changes: object) -> PageSubmission:
    fields: dict[str, object] = {
        "body": f"<p>page {number}</p>".encode(),
        "schema": "product@1",
        "url": f"https://shop.example/{number}",
        "client_id": f"c{number}",
    }
    return PageSubmission(**{**fields, **changes})  # type: ignore[arg-type]


def claim_all(ledger: Ledger, count: int = 100) -> Iterator[Lease]:
    while leases := ledger.claim("w", count):
        yield from leases


def die(ledger: Ledger) -> None:
    """Lose whatever waits until it is dead."""
    while leases := ledger.claim("w", 1):
        ledger.release(leases, "crashed", message="boom")
