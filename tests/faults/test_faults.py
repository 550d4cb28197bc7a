"""Each fault in the middle of a burst, alone and with another one; then the invariants.

The long runs are left to `make faults`: bursts of 2,000 pages, and all pairs.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from pagemill.engine.store import ModelFiles

from .catalogue import FAULTS
from .conftest import wait
from .stage import Stage, patience_s

if TYPE_CHECKING:
    from pathlib import Path
else:
    Path = Any

pytestmark = pytest.mark.model

SEED = 20261201
PAIRS = list(itertools.combinations(sorted(FAULTS), 2))
SHORT, LONG = 80, 2000


@pytest.fixture(scope="module")
def stage(model_files: ModelFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(model_files, tmp_path_factory.mktemp("journals"))
    try:
        yield stage
    finally:
        stage.close()


def name_of(number: int) -> str:
    return FAULTS[number].__name__


def run(stage: Stage, numbers: Sequence[int], pages: int) -> None:
    """Submit, let the faults happen at once in the middle of it, heal, check."""
    stage.chance = random.Random(f"{SEED} {numbers}")
    stage.heal()
    batch, journal = stage.begin()
    journal.note("faults", faults=[name_of(number) for number in numbers])
    submitter = threading.Thread(target=stage.submit, args=(batch, journal, pages))
    submitter.start()
    try:
        wait(lambda: journal.read(stage.ledger, batch) >= pages // 10, 60, "progress")
        with contextlib.ExitStack() as faults:
            for number in numbers:
                faults.enter_context(FAULTS[number](stage))
    finally:
        stage.heal()
        submitter.join(patience_s(pages))
    assert not submitter.is_alive()
    assert len(journal.accepted) == pages
    stage.check(batch, journal)


@pytest.mark.slow
@pytest.mark.parametrize("number", sorted(FAULTS), ids=name_of)
def test_alone(stage: Stage, number: int) -> None:
    before = stage.ledger.depth().zombie_commits
    run(stage, [number], SHORT)
    if number == 12:
        assert stage.ledger.depth().zombie_commits > before


@pytest.mark.slow
@pytest.mark.parametrize("pair", random.Random(SEED).sample(PAIRS, 4), ids=str)
def test_in_pairs(stage: Stage, pair: tuple[int, int]) -> None:
    run(stage, pair, SHORT)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", sorted(FAULTS), ids=name_of)
def test_alone_in_a_long_burst(stage: Stage, number: int) -> None:
    run(stage, [number], LONG)


@pytest.mark.long
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_each_pair(stage: Stage, pair: tuple[int, int]) -> None:
    run(stage, pair, SHORT)
