"""What an engine is told when it starts; names as vLLM's users know them.

No torch here: the command line reads these, and sets thread counts, before torch is imported.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from .errors import EngineError, EngineReason

DTYPES: dict[str, Literal["auto", "fp32", "bf16", "int8"]] = {
    "auto": "auto",
    "fp32": "fp32",
    "float32": "fp32",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "int8": "int8",
}
# fcfs: by arrival. priority: lower numbers first, and waiting counts. static: by the number alone.
# deadline: what is due first. fair: tenants take turns by tokens. prefix: equal prompt prefixes
# together.
POLICIES = ("fcfs", "priority", "static", "deadline", "fair", "prefix")
_MAX_DRAFT = 256
_MAX_PASSES = 64


def available_cpus() -> int:
    """CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class EngineConfig:
    """Sizes and switches of an engine. 0 in a size means "choose by model and memory".

    `check` is called when the engine is made; it raises EngineError(CONFIG_INVALID).
    """

    model: str = "smollm2-135m-instruct"  # name, folder, GGUF file, repository id; "fake": bytes
    executor: str = "auto"  # auto | cpu (C++ kernels) | torch (any device) | fake (no model)
    device: str = "auto"  # auto | cpu | cuda
    dtype: str = "auto"  # of the weights: auto (bf16) | fp32 | bf16 | int8 (CPU executor)
    quantization: str = "none"  # none | int8 (the same as dtype int8)
    kv_cache_dtype: str = (
        "auto"  # auto | fp32 | int8 (CPU executor; auto: int8 unless fp32 weights)
    )
    max_model_len: int = 0  # tokens of prompt and completion together
    max_num_seqs: int = 64  # requests in one step
    max_num_batched_tokens: int = 512  # tokens in one step
    block_size: int = 16  # tokens in a KV block
    kv_cache_memory_bytes: int = 0
    num_blocks: int = 0  # wins over kv_cache_memory_bytes
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    # Rows that begin with the same blocks read them together (CPU executor, int8 KV cache).
    enable_cascade_attention: bool = True
    long_prefill_token_threshold: int = 0  # most tokens of one prompt in a step; 0: no limit
    max_num_partial_prefills: int = 0  # most requests in the midst of their prompt; 0: no limit
    scheduling_policy: str = "fcfs"  # who starts first: see POLICIES
    priority_ageing_s: float = 10.0  # seconds of waiting that outweigh one level of priority
    fair_quantum: int = 2048  # tokens that a tenant may start in its turn
    prefix_group_size: int = 256  # requests of one prefix that start before others' turn
    num_scheduler_steps: int = 1  # decode passes a step; rows with drafts run one
    async_scheduling: bool = False  # plan a step while the one before it runs
    speculation: str = "auto"  # auto (both) | forced (grammar) | page (copied spans) | off
    num_speculative_tokens: int = 16  # most drafts of a request in one step
    sparse_logits: bool = True  # where few tokens are legal, only their logits (CPU executor)
    canonical_runs: bool = True  # text that a grammar forces is said in the tokenizer's own split
    max_waiting_requests: int = 4096
    max_waiting_tokens: int = 4_000_000
    close_records: bool = True  # a record ends, valid, within max_tokens
    close_loops: bool = True  # strings and numbers that repeat without end are left
    grammar_cache_bytes: int = 512 * 1024 * 1024  # automata and masks kept for reuse
    client_timeout_s: float = 120.0  # a client with requests that is silent for so long is gone
    shutdown_timeout_s: float = 5.0  # for running requests after SIGTERM
    threads: int = 0  # of the compute pools
    instruction_set: str = "auto"  # auto (the fastest) | portable | avx2 | avx512 | amx
    seed: int = 0  # enters the generator of every sampled request
    fake_step_ms: float = 0.0  # latency of the fake executor's step
    # Known to vLLM's users and not served: any value but 1 is refused.
    tensor_parallel_size: int = 1

    def check(self) -> None:
        """Raise EngineError(CONFIG_INVALID) naming the first value that can't be."""
        if self.tensor_parallel_size != 1:
            raise _invalid("tensor_parallel_size", "this engine serves only the value 1")
        _one_of("executor", self.executor, ("auto", "cpu", "torch", "fake"))
        _one_of("device", self.device, ("auto", "cpu", "cuda"))
        _one_of("quantization", self.quantization, ("none", "int8"))
        _one_of("dtype", self.dtype, tuple(DTYPES))
        _one_of("kv_cache_dtype", self.kv_cache_dtype, ("auto", "fp32", "int8"))
        _one_of("scheduling_policy", self.scheduling_policy, POLICIES)
        _one_of(
            "instruction_set",
            self.instruction_set,
            ("auto", "portable", "avx2", "avx512", "amx"),
        )
        _one_of("speculation", self.speculation, ("auto", "forced", "page", "off"))
        if not 1 <= self.num_speculative_tokens <= _MAX_DRAFT:
            raise _invalid("num_speculative_tokens", f"must lie in 1 to {_MAX_DRAFT}")
        if not 1 <= self.num_scheduler_steps <= _MAX_PASSES:
            raise _invalid("num_scheduler_steps", f"must lie in 1 to {_MAX_PASSES}")
        if self.async_scheduling and self.speculation != "off":
            raise _invalid(
                "async_scheduling",
                "drafts follow from the step before, which still runs: add --speculation off",
            )
        for name in ("fair_quantum", "prefix_group_size"):
            if getattr(self, name) < 1:
                raise _invalid(name, "must be at least 1")
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "grammar_cache_bytes"):
            if getattr(self, name) < 1:
                raise _invalid(name, "must be at least 1")
        for name in ("max_waiting_requests", "max_waiting_tokens"):
            if getattr(self, name) < 1:
                raise _invalid(name, "must be at least 1")
        for name in (
            "max_model_len",
            "kv_cache_memory_bytes",
            "num_blocks",
            "long_prefill_token_threshold",
            "max_num_partial_prefills",
            "priority_ageing_s",
            "threads",
            "shutdown_timeout_s",
            "fake_step_ms",
        ):
            if getattr(self, name) < 0:
                raise _invalid(name, "must not be negative")
        if not math.isfinite(self.priority_ageing_s):
            raise _invalid("priority_ageing_s", "must be finite")
        if self.client_timeout_s <= 0:
            raise _invalid("client_timeout_s", "must be positive")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise _invalid("max_num_batched_tokens", "must be at least max_num_seqs")
        if not 0 <= self.seed < 1 << 63:
            raise _invalid("seed", "must be in [0, 2**63)")

    def num_threads(self) -> int:
        """Threads of the compute pools: as asked, else one per CPU."""
        return self.threads or available_cpus()


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _invalid(name: str, why: str) -> EngineError:
    return EngineError(EngineReason.CONFIG_INVALID, f"{_flag(name)}: {why}")


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise _invalid(name, f"{value!r} is none of {', '.join(allowed)}")


_HELP = {
    "model": "name in the cache, local folder, GGUF file or repository id",
    "executor": "auto, cpu, torch or fake",
    "device": "auto, cpu or cuda",
    "dtype": "of the weights: auto, fp32, bf16, or int8 on the CPU (faster, answers may differ)",
    "quantization": "none, or int8: the same as --dtype int8",
    "kv_cache_dtype": "of the KV cache on the CPU: auto (int8 unless weights are fp32), fp32, int8",
    "max_model_len": "most tokens of prompt and completion (0: the model's)",
    "max_num_seqs": "most requests in one step",
    "max_num_batched_tokens": "most tokens in one step",
    "block_size": "tokens in a KV block",
    "kv_cache_memory_bytes": "memory of the KV cache (0: by free memory)",
    "num_blocks": "KV blocks; wins over the memory",
    "enable_prefix_caching": "share KV blocks of equal prefixes",
    "enable_chunked_prefill": "split long prompts over steps",
    "enable_cascade_attention": "read blocks that rows share once (CPU, int8 KV cache)",
    "long_prefill_token_threshold": "most tokens of one prompt in a step (0: no limit)",
    "max_num_partial_prefills": "most requests in the midst of their prompt (0: no limit)",
    "scheduling_policy": "fcfs, priority, static, deadline, fair or prefix",
    "priority_ageing_s": "seconds of waiting that outweigh one level of priority",
    "fair_quantum": "tokens that a tenant may start in its turn (fair)",
    "prefix_group_size": "requests of one prefix that start before others' turn (prefix)",
    "num_scheduler_steps": "decode passes in one step; rows with drafts run one",
    "async_scheduling": "plan a step while the one before it runs (needs --speculation off)",
    "speculation": "auto, forced (by the grammar), page (copied spans) or off",
    "num_speculative_tokens": "most drafted tokens of a request in one step",
    "sparse_logits": "where few tokens are legal, compute only their logits (CPU)",
    "canonical_runs": "say text that a grammar forces as the tokenizer splits it",
    "max_waiting_requests": "requests beyond this are refused",
    "max_waiting_tokens": "prompt tokens beyond this are refused",
    "close_records": "end records, valid, within max_tokens",
    "close_loops": "leave strings and numbers that repeat without end",
    "grammar_cache_bytes": "memory for compiled grammars",
    "client_timeout_s": "seconds after which a silent client's requests are cancelled",
    "shutdown_timeout_s": "seconds for running requests after SIGTERM",
    "threads": "threads of the compute pools (0: one per CPU)",
    "instruction_set": "of the CPU kernels: auto (the fastest), portable, avx2, avx512 or amx",
    "seed": "enters the generator of every sampled request",
    "fake_step_ms": "latency of the fake executor's step",
    "tensor_parallel_size": "only 1 is served",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give `parser` one flag for each field of EngineConfig."""
    for field in fields(EngineConfig):
        options: dict[str, Any] = {"default": field.default, "help": _HELP[field.name]}
        if isinstance(field.default, bool):
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["type"] = type(field.default)
            options["metavar"] = type(field.default).__name__.upper()
        parser.add_argument(_flag(field.name), **options)


def from_arguments(arguments: argparse.Namespace) -> EngineConfig:
    """Return the checked config of parsed arguments; EngineError(CONFIG_INVALID)."""
    config = EngineConfig(**{f.name: getattr(arguments, f.name) for f in fields(EngineConfig)})
    config.check()
    return config


def set_thread_environment(config: EngineConfig) -> None:
    """Fix the size of the native thread pools; has an effect only before torch is imported."""
    threads = str(config.num_threads())
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = threads
    # Torch's pool and ours take turns on the same cores: its threads must not spin for long.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
