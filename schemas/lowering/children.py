"""What the parts of the lowering ask of the one that goes down into subschemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .layers import Conjunction, Expander
    from .terms import Term


class Children(Protocol):
    """Makes the terms of subschemas."""

    expander: Expander

    @property
    def open(self) -> bool:
        """Whether undeclared members may stand behind declared ones."""

    def term(self, layers: Conjunction) -> Term: ...

    def anything(self, depth: int) -> Term:
        """Any value, nested at most `depth` levels."""
