"""`multipleOf` as an automaton over the digits of a number."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

MAX_STATES = 4000
MAX_DECIMALS = 12


@dataclass(frozen=True)
class Digits:
    """An automaton: edges (from, lowest byte, highest byte, to), state 0 is the start."""

    num_states: int
    edges: list[tuple[int, int, int, int]]
    finals: list[int]


def is_small(factor: Decimal) -> bool:
    """Whether an automaton for the multiples of a positive factor is of reasonable size."""
    decimals, unit = _parts(factor)
    return decimals <= MAX_DECIMALS and unit * (decimals + 2) <= MAX_STATES


def _parts(factor: Decimal) -> tuple[int, int]:
    """(k, n) with factor = n / 10**k and the smallest k."""
    exponent = factor.normalize().as_tuple().exponent
    decimals = max(-int(exponent), 0)
    return decimals, int(factor.scaleb(decimals))


def automaton(factor: Decimal) -> Digits:
    """Return the texts of multiples: sign, digits, point and further digits, no exponent.

    With factor = n / 10**k, a state is the remainder modulo n of the digits so far, in row 0
    before the point, in row 1 right behind it, in row 1 + j behind j decimals; behind k of them
    only zeros may follow, which leave the state as it is.
    """
    decimals, unit = _parts(factor)
    last = max(1 + decimals, 2)
    edges: list[tuple[int, int, int, int]] = [(0, 0x2D, 0x2D, 1)]
    finals: list[int] = []

    def place(row: int, remainder: int) -> int:
        return 2 + row * unit + remainder  # behind the start and the sign

    def digits(source: int, row: int, remainder: int) -> None:
        for digit in range(10):
            to = place(row, (remainder * 10 + digit) % unit)
            edges.append((source, 0x30 + digit, 0x30 + digit, to))

    digits(0, 0, 0)
    digits(1, 0, 0)
    for row in range(last + 1):
        missing = decimals - min(max(row - 1, 0), decimals)
        for remainder in range(unit):
            here = place(row, remainder)
            if row != 1 and remainder * 10**missing % unit == 0:
                finals.append(here)
            if row == 0:
                edges.append((here, 0x2E, 0x2E, place(1, remainder)))
                digits(here, 0, remainder)
            elif row <= decimals:
                digits(here, row + 1, remainder)
            else:
                edges.append((here, 0x30, 0x30, place(last, remainder)))
    return Digits(place(last + 1, 0), sorted(edges), finals)
