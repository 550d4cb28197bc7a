"""From a config to a core: model, memory, scheduler, executor. Torch is imported only if needed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pagemill import _core

from .config import DTYPES, EngineConfig
from .core import EngineCore
from .errors import EngineError, EngineReason
from .executor.base import Executor
from .executor.batch import Batch
from .executor.fake import FakeExecutor
from .grammar_store import GrammarStore
from .model.config import ModelConfig
from .sizing import Sizes, choose_sizes, free_memory
from .store import ModelFiles, resolve
from .tokenizer import Tokenizer
from .vocabulary import FAKE_MODEL, Vocabulary

if TYPE_CHECKING:
    import torch

    from .model.native import KvKind, WeightKind

_log = logging.getLogger(__name__)

_FAKE_MODEL_LEN = 8192
_FAKE_BYTES_PER_BLOCK = 64 * 1024
# A scheduler keeps so many blocks for requests that run when it admits another one.
_WATERMARK_SHARE = 0.01


def build_core(config: EngineConfig) -> EngineCore:
    """Load the model and return an engine core; EngineError: CONFIG_INVALID, MODEL_INVALID."""
    config.check()
    if config.model == FAKE_MODEL:
        if config.executor not in ("auto", "fake"):
            raise _invalid("--model fake runs with --executor fake")
        return _fake(config, FAKE_MODEL, Vocabulary.of_bytes(), _FAKE_MODEL_LEN)
    files = resolve(config.model)
    vocabulary = Vocabulary.of(Tokenizer.load(files.directory))
    model = ModelConfig.load(files.directory)
    if vocabulary.size > model.vocab_size:
        raise EngineError(
            EngineReason.MODEL_INVALID,
            f"the tokenizer has {vocabulary.size} tokens, the model {model.vocab_size} embeddings",
        )
    if config.executor == "fake":
        return _fake(config, files.name, vocabulary, model.max_position)
    return _real(config, files, vocabulary, model)


def _fake(config: EngineConfig, name: str, vocabulary: Vocabulary, model_len: int) -> EngineCore:
    sizes = choose_sizes(
        config,
        model_len=model_len,
        bytes_per_block=_FAKE_BYTES_PER_BLOCK,
        free_bytes=free_memory(),
        on_cpu=True,
    )
    executor = FakeExecutor(
        _batch(config, sizes, vocabulary),
        sizes.num_blocks,
        vocabulary.eos_ids,
        config.fake_step_ms / 1000,
    )
    return assemble(config, name, sizes, vocabulary, executor)


def _real(
    config: EngineConfig, files: ModelFiles, vocabulary: Vocabulary, model: ModelConfig
) -> EngineCore:
    import torch

    device = _device(config)
    native = config.executor != "torch" and device.type == "cpu"
    if config.executor == "cpu" and not native:
        raise _invalid("--executor cpu runs on the CPU: use --executor torch")
    if not native:
        if weight_kind(config) == "int8":
            raise _invalid("int8 weights are for --executor cpu")
        if config.kv_cache_dtype == "int8":
            raise _invalid("--kv-cache-dtype int8 is for --executor cpu")
    torch.set_num_threads(config.num_threads())
    _core.set_num_threads(config.num_threads())
    if config.instruction_set != "auto":
        try:
            _core.use_instruction_set(config.instruction_set)
        except ValueError as error:
            raise _invalid(f"--instruction-set: {error}") from None
    make = _native if native else _torch
    return make(config, files, vocabulary, model, device)


def _native(
    config: EngineConfig,
    files: ModelFiles,
    vocabulary: Vocabulary,
    model: ModelConfig,
    device: torch.device,
) -> EngineCore:
    from .executor.cpu import CpuExecutor
    from .model.native import NativeDecoder

    decoder = NativeDecoder(files, weight_kind(config))
    decoder.share_prefixes(config.enable_cascade_attention)
    kind = kv_kind(config, model)
    sizes = choose_sizes(
        config,
        model_len=model.max_position,
        bytes_per_block=_core.KvCache.bytes_per_block(
            model.num_layers, config.block_size, model.num_kv_heads, model.head_dim, kind
        ),
        free_bytes=free_memory(),
        on_cpu=True,
    )
    cache = decoder.allocate_cache(sizes.num_blocks, config.block_size, kind)
    executor = CpuExecutor(
        _batch(config, sizes, vocabulary), decoder, cache, sparse_logits=config.sparse_logits
    )
    return assemble(config, files.name, sizes, vocabulary, executor)


def _torch(
    config: EngineConfig,
    files: ModelFiles,
    vocabulary: Vocabulary,
    model: ModelConfig,
    device: torch.device,
) -> EngineCore:
    import torch

    from .executor.torch import TorchExecutor
    from .model.attention import KVCache
    from .model.decoder import load_decoder

    on_cpu = device.type == "cpu"
    dtype = torch.float32 if weight_kind(config) == "fp32" else torch.bfloat16
    decoder = load_decoder(files, dtype=dtype, device=device)
    sizes = choose_sizes(
        config,
        model_len=model.max_position,
        bytes_per_block=KVCache.bytes_per_block(model, config.block_size, dtype),
        free_bytes=free_memory() if on_cpu else torch.cuda.mem_get_info(device)[0],
        on_cpu=on_cpu,
    )
    cache = KVCache.allocate(model, sizes.num_blocks, config.block_size, dtype, device)
    executor = TorchExecutor(_batch(config, sizes, vocabulary), decoder, cache)
    return assemble(config, files.name, sizes, vocabulary, executor)


def weight_kind(config: EngineConfig) -> WeightKind:
    """What `--dtype` and `--quantization` come to."""
    if config.quantization == "int8":
        return "int8"
    kind = DTYPES[config.dtype]
    return "bf16" if kind == "auto" else kind


def kv_kind(config: EngineConfig, model: ModelConfig) -> KvKind:
    """What `--kv-cache-dtype` comes to on the CPU: float32 beside float32 weights, else int8."""
    served = _core.KvCache.serves("int8", config.block_size, model.head_dim)
    if config.kv_cache_dtype == "int8" and not served:
        raise _invalid(
            "--kv-cache-dtype int8 wants blocks and heads whose sizes are multiples of 16"
        )
    if config.kv_cache_dtype == "auto":
        return "int8" if served and weight_kind(config) != "fp32" else "fp32"
    return "int8" if config.kv_cache_dtype == "int8" else "fp32"


def _batch(config: EngineConfig, sizes: Sizes, vocabulary: Vocabulary) -> Batch:
    return Batch(
        config.max_num_seqs,
        sizes.blocks_per_seq,
        config.block_size,
        vocabulary.size,
        seed=config.seed,
        close_records=config.close_records,
        close_loops=config.close_loops,
    )


def assemble(
    config: EngineConfig, model: str, sizes: Sizes, vocabulary: Vocabulary, executor: Executor
) -> EngineCore:
    """Put a core around an executor."""

    def make_scheduler() -> _core.Scheduler:
        return _core.Scheduler(
            _core.SchedulerConfig(
                num_blocks=sizes.num_blocks,
                block_size=config.block_size,
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                max_model_len=sizes.max_model_len,
                enable_prefix_caching=config.enable_prefix_caching,
                enable_chunked_prefill=config.enable_chunked_prefill,
                long_prefill_token_threshold=config.long_prefill_token_threshold,
                max_partial_prefills=config.max_num_partial_prefills,
                policy=config.scheduling_policy,
                ageing_s=config.priority_ageing_s,
                fair_quantum=config.fair_quantum,
                group_size=config.prefix_group_size,
                num_scheduler_steps=config.num_scheduler_steps,
                max_outstanding_plans=2 if config.async_scheduling else 1,
                watermark_blocks=int(sizes.num_blocks * _WATERMARK_SHARE),
                max_waiting_requests=config.max_waiting_requests,
                max_waiting_tokens=config.max_waiting_tokens,
            )
        )

    executor.batch.drafter = make_drafter(config, vocabulary, executor.batch)
    try:
        make_scheduler()
    except ValueError as error:
        raise _invalid(str(error)) from None
    _log.info(
        "model %s, %d KV blocks of %d tokens, requests of %d tokens",
        model,
        sizes.num_blocks,
        config.block_size,
        sizes.max_model_len,
    )
    trie = _core.TokenTrie(vocabulary.tokens, vocabulary.eos_ids)
    pairs = vocabulary.byte_pairs
    encoder = pairs.encoder() if pairs is not None and config.canonical_runs else None
    return EngineCore(
        config,
        model=model,
        max_model_len=sizes.max_model_len,
        num_blocks=sizes.num_blocks,
        vocabulary=vocabulary,
        grammars=GrammarStore(trie, config.grammar_cache_bytes, encoder),
        executor=executor,
        make_scheduler=make_scheduler,
    )


def make_drafter(
    config: EngineConfig, vocabulary: Vocabulary, batch: Batch
) -> _core.Drafter | None:
    """What guesses tokens for a batch; None where speculation is off or can't be served."""
    if config.speculation == "off":
        return None
    if vocabulary.byte_pairs is None:
        _log.warning("no drafts: the tokenizer is no byte-level BPE of the kind that is served")
        return None
    return _core.Drafter(
        batch.grammar_rows,
        vocabulary.byte_pairs.encoder(),
        most_tokens=config.num_speculative_tokens,
        forced=config.speculation in ("auto", "forced"),
        page=config.speculation in ("auto", "page"),
    )


def _device(config: EngineConfig) -> torch.device:
    import torch

    available = torch.cuda.is_available()
    if config.device == "cuda" and not available:
        raise _invalid("--device cuda: torch finds no CUDA device")
    return torch.device("cuda" if available and config.device != "cpu" else "cpu")


def _invalid(message: str) -> EngineError:
    return EngineError(EngineReason.CONFIG_INVALID, message)
