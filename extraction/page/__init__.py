"""Crawled bytes to visible text and metadata: decode, parse once, walk once."""

from . import barrier
from .decode import Decoded, decode
from .limits import PageLimits
from .metadata import Metadata, MetadataEntry
from .reader import Link, Page, read
from .source_map import SourcePiece

__all__ = [
    "Decoded",
    "Link",
    "Metadata",
    "MetadataEntry",
    "Page",
    "PageLimits",
    "SourcePiece",
    "barrier",
    "decode",
    "read",
]
