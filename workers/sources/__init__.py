"""Where crawled pages come from: each source gives pages, and hears when the ledger has them.

`python -m pagemill.workers.sources` pumps one into the ledger.
"""

from .decoding import decode_body
from .files import FileSource
from .pump import PumpReport, Source, SourcedPage, pump
from .redis_hash import RedisHashSource
from .redis_list import FieldMap, RedisListSource
from .warc import WarcSource

__all__ = [
    "FieldMap",
    "FileSource",
    "PumpReport",
    "RedisHashSource",
    "RedisListSource",
    "Source",
    "SourcedPage",
    "WarcSource",
    "decode_body",
    "pump",
]
