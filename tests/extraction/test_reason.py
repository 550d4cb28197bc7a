"""Errors keep their reason across a process's border."""

from __future__ import annotations

import copy
import pickle

import pytest
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.extraction.reason import Reason, Refused
from pagemill.schemas.errors import SchemaReason, SchemaRefused


@pytest.mark.parametrize(
    "error",
    [
        Refused(Reason.LEDGER_FULL, "it is full", at="/a", advice="wait"),
        SchemaRefused(SchemaReason.SCHEMA_INVALID, "it is wrong", at="/b", advice="mend it"),
        EngineError(EngineReason.OVERLOADED, "no slot"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("carry", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])  # noqa: S301
def test_an_error_that_travels_is_the_same(error: Exception, carry) -> None:  # type: ignore[no-untyped-def]
    arrived = carry(error)
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)
