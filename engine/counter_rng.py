"""Random numbers by counter: a function of seed and place, with no state to keep or lose."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_U64 = NDArray[np.uint64]


def mix(values: _U64) -> _U64:
    """Scatter 64-bit integers: the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniforms(seed: int, seeds: _U64, places: _U64) -> NDArray[np.float64]:
    """Return one number in [0, 1) for each pair of a request's seed and a token's place.

    `seed` (in [0, 2**63)) is the engine's own.
    """
    with np.errstate(over="ignore"):
        base = mix(np.full(1, seed, dtype=np.uint64))
        bits = mix(mix(seeds ^ base) + places)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
