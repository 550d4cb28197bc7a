"""How bodies and results are kept: zstd frames, never inflated past their bound."""

from __future__ import annotations

import threading

import zstandard

_LEVEL = 1  # three times faster than the default level; pages shrink to a fifth either way


class _Contexts(threading.local):
    """One thread's: they may not be shared, and making one costs as much as a small page."""

    def __init__(self) -> None:
        self.packing = zstandard.ZstdCompressor(_LEVEL)
        self.unpacking = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def pack(data: bytes) -> bytes:
    """Return `data` compressed."""
    return _contexts.packing.compress(data)


def unpack(frame: bytes, limit: int) -> bytes:
    """Return what was packed; ValueError when it is no frame of ours or larger than `limit`."""
    try:
        size = zstandard.frame_content_size(frame)
        if not 0 <= size <= limit:
            raise ValueError(f"a frame of {size} bytes, the limit is {limit}")
        return _contexts.unpacking.decompress(frame, max_output_size=limit)
    except zstandard.ZstdError as error:
        raise ValueError(f"not a frame of the ledger: {error}") from None
