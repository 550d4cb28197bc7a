"""How bodies and results are kept: zstd frames, never inflated past their bound."""

from __future__ import annotations

import zstandard

_LEVEL = 1  # three times faster than the default level; pages shrink to a fifth either way


def pack(data: bytes) -> bytes:
    """Return `data` compressed."""
    return zstandard.compress(data, _LEVEL)


def unpack(frame: bytes, limit: int) -> bytes:
    """Return what was packed; ValueError when it is no frame of ours or larger than `limit`."""
    try:
        size = zstandard.frame_content_size(frame)
        if not 0 <= size <= limit:
            raise ValueError(f"a frame of {size} bytes, the limit is {limit}")
        return zstandard.decompress(frame, max_output_size=limit)
    except zstandard.ZstdError as error:
        raise ValueError(f"not a frame of the ledger: {error}") from None
