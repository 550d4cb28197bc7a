"""How long a request may be and how many KV blocks there are, by model and memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .config import EngineConfig
from .errors import EngineError, EngineReason

_DEFAULT_MODEL_LEN = 8192
# What a request is taken to need when nobody says: a page and its record.
_TOKENS_PER_REQUEST = 2048
_MEMORY_SHARE = 0.25
_MAX_CPU_BYTES = 2 << 30


@dataclass(frozen=True)
class Sizes:
    """`blocks_per_seq` blocks hold a request of `max_model_len` tokens."""

    max_model_len: int
    num_blocks: int
    blocks_per_seq: int


def choose_sizes(
    config: EngineConfig, *, model_len: int, bytes_per_block: int, free_bytes: int, on_cpu: bool
) -> Sizes:
    """Choose what the config leaves open; EngineError(CONFIG_INVALID) when it can't be served.

    Left open, the cache holds `max_num_seqs` requests of 2,048 tokens, within a quarter of the
    free memory, and on the CPU within 2 GiB; but always one request of `max_model_len`.
    """
    if config.max_model_len > model_len:
        raise _invalid(f"--max-model-len: the model was made for {model_len} tokens")
    size = config.block_size
    max_model_len = config.max_model_len or min(model_len, _DEFAULT_MODEL_LEN)
    per_seq = -(-max_model_len // size)
    if config.num_blocks:
        num_blocks = config.num_blocks
    elif config.kv_cache_memory_bytes:
        num_blocks = config.kv_cache_memory_bytes // bytes_per_block
    else:
        allowed = int(free_bytes * _MEMORY_SHARE)
        allowed = min(allowed, _MAX_CPU_BYTES) if on_cpu else allowed
        wanted = config.max_num_seqs * -(-min(max_model_len, _TOKENS_PER_REQUEST) // size)
        num_blocks = max(min(wanted, allowed // bytes_per_block), per_seq)
        if num_blocks * bytes_per_block > free_bytes:
            raise _invalid("--max-model-len: the KV cache of one request exceeds the free memory")
    if num_blocks < per_seq:
        if config.max_model_len:
            raise _invalid(
                f"--max-model-len {max_model_len} needs {per_seq} KV blocks, there are {num_blocks}"
            )
        if num_blocks < 1:
            raise _invalid("the KV cache has no room for a single block")
        max_model_len, per_seq = num_blocks * size, num_blocks
    return Sizes(max_model_len, num_blocks, per_seq)


def free_memory() -> int:
    """Bytes that this process may still take: the machine's, or less where a cgroup limits it."""
    free = 1 << 62
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit = _read(Path("/sys/fs/cgroup/memory.max")).strip()
    used = _read(Path("/sys/fs/cgroup/memory.current")).strip()
    if limit.isdigit() and used.isdigit():
        free = min(free, max(0, int(limit) - int(used)))
    return free if free < 1 << 62 else 4 << 30


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _invalid(message: str) -> EngineError:
    return EngineError(EngineReason.CONFIG_INVALID, message)
