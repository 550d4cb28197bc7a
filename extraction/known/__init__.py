"""Values that a page's metadata states plainly enough to be taken without asking the model."""

from .find import find
from .sources import KnownSource, known_sources
from .values import Known, KnownValue, put

__all__ = ["Known", "KnownSource", "KnownValue", "find", "known_sources", "put"]
