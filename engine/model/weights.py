"""A model's weights: safetensors or GGUF on disk, the decoder's fused parameters in memory."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import EngineError, EngineReason
from ..store import ModelFiles
from .config import ModelConfig
from .gguf import GgufFile

_LOADING_THREADS: Final = 4


class _Source(Protocol):
    """Weights by their name in the published checkpoints, without the leading `model.`."""

    def __contains__(self, name: str) -> bool: ...

    def get(self, name: str) -> Tensor: ...


class _Safetensors:
    """One or more safetensors files, mapped into memory."""

    def __init__(self, paths: tuple[Path, ...], stack: ExitStack) -> None:
        self._files: dict[str, Any] = {}
        for path in paths:
            try:
                file = stack.enter_context(safe_open(path, framework="pt"))
            except (OSError, SafetensorError) as error:
                raise _invalid(f"{path} isn't a whole safetensors file: {error}") from None
            self._files |= dict.fromkeys(file.keys(), file)

    def _full_name(self, name: str) -> str:
        return name if name in self._files else f"model.{name}"

    def __contains__(self, name: str) -> bool:
        return self._full_name(name) in self._files

    def get(self, name: str) -> Tensor:
        full = self._full_name(name)
        if full not in self._files:
            raise _invalid(f"the weights lack {full}")
        tensor: Tensor = self._files[full].get_tensor(full)
        return tensor


class _Gguf:
    """A GGUF file, dequantised as it is read.

    Its converter interleaves the rows of queries and keys for the `llama` architecture (pairs
    (2i, 2i + 1) turn together in llama.cpp); that is undone here.
    """

    _NAMES: Final = {
        "embed_tokens": "token_embd",
        "norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }

    def __init__(self, file: GgufFile, config: ModelConfig) -> None:
        self._file = file
        interleaved = file.metadata.get("general.architecture") == "llama"
        self._pairs = (
            {"attn_q": config.num_heads, "attn_k": config.num_kv_heads} if interleaved else {}
        )

    def _translate(self, name: str) -> tuple[str, str]:
        """The tensor's name in the file, and its part of the layer."""
        stem, _, kind = name.rpartition(".")
        if stem.startswith("layers."):
            _, index, part = stem.split(".", 2)
            return f"blk.{index}.{self._NAMES[part]}.{kind}", self._NAMES[part]
        return f"{self._NAMES[stem]}.{kind}", self._NAMES[stem]

    def __contains__(self, name: str) -> bool:
        return self._translate(name)[0] in self._file.tensors

    def get(self, name: str) -> Tensor:
        full, part = self._translate(name)
        if full not in self._file.tensors:
            raise _invalid(f"{self._file.path} lacks {full}")
        array = self._file.tensor(full)
        if (heads := self._pairs.get(part)) is not None:
            split = array.reshape(heads, array.shape[0] // heads // 2, 2, *array.shape[1:])
            array = split.swapaxes(1, 2).reshape(array.shape)
        return torch.from_numpy(array)


def iterate_weights(
    files: ModelFiles,
    config: ModelConfig,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Iterator[tuple[str, Tensor]]:
    """Yield the decoder's parameters by name, converted and fused, a few at a time in memory.

    EngineError(MODEL_INVALID) when a tensor is missing or of another shape than the
    configuration says. Embeddings that are also the head come as embedding.weight alone.
    """
    with ExitStack() as stack:
        source: _Source
        if files.weights[0].suffix == ".gguf":
            source = _Gguf(stack.enter_context(GgufFile(files.weights[0])), config)
        else:
            source = _Safetensors(files.weights, stack)

        def build(name: str, parts: list[str], shape: tuple[int, ...]) -> tuple[str, Tensor]:
            pieces = [source.get(part).to(dtype) for part in parts]
            tensor = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
            if tuple(tensor.shape) != shape:
                raise _invalid(
                    f"weight {parts[0]} is {tuple(tensor.shape)}, expected {shape}: "
                    "config.json and the weights are of different models"
                )
            return name, tensor.contiguous().to(device)

        # Dequantising and converting release the GIL.
        pool = stack.enter_context(ThreadPoolExecutor(_LOADING_THREADS))
        ahead: collections.deque[Future[tuple[str, Tensor]]] = collections.deque()
        for name, (parts, shape) in _recipes(config, source):
            ahead.append(pool.submit(build, name, parts, shape))
            if len(ahead) > 2 * _LOADING_THREADS:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def load_weights(
    files: ModelFiles,
    config: ModelConfig,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> dict[str, Tensor]:
    """Return all parameters by name; a tied head is the embedding's very tensor."""
    weights = dict(iterate_weights(files, config, dtype=dtype, device=device))
    weights.setdefault("head.weight", weights["embedding.weight"])
    return weights


def _recipes(
    config: ModelConfig, source: _Source
) -> Iterator[tuple[str, tuple[list[str], tuple[int, ...]]]]:
    """Yield each parameter's name, the checkpoint's tensors it is stacked from, and its shape."""
    hidden, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
    query, kv = config.num_heads * dim, config.num_kv_heads * dim
    yield "embedding.weight", (["embed_tokens.weight"], (config.vocab_size, hidden))
    if not config.tie_word_embeddings or "lm_head.weight" in source:
        yield "head.weight", (["lm_head.weight"], (config.vocab_size, hidden))
    yield "norm.weight", (["norm.weight"], (hidden,))
    for index in range(config.num_layers):
        old, new = f"layers.{index}", f"layers.{index}"
        qkv = [f"{old}.self_attn.{part}_proj" for part in "qkv"]
        gate_up = [f"{old}.mlp.{part}_proj" for part in ("gate", "up")]
        yield f"{new}.attention_norm.weight", ([f"{old}.input_layernorm.weight"], (hidden,))
        yield (
            f"{new}.feed_forward_norm.weight",
            ([f"{old}.post_attention_layernorm.weight"], (hidden,)),
        )
        products: list[tuple[str, list[str], int, int, bool]] = [
            ("attention.qkv", qkv, query + 2 * kv, hidden, config.qkv_bias),
            ("attention.output", [f"{old}.self_attn.o_proj"], hidden, query, config.output_bias),
            ("feed_forward.gate_up", gate_up, 2 * inner, hidden, config.mlp_bias),
            ("feed_forward.down", [f"{old}.mlp.down_proj"], hidden, inner, config.mlp_bias),
        ]
        for name, parts, rows, columns, bias in products:
            yield f"{new}.{name}.weight", ([f"{part}.weight" for part in parts], (rows, columns))
            if bias:
                yield f"{new}.{name}.bias", ([f"{part}.bias" for part in parts], (rows,))
        if config.qk_norm:
            yield f"{new}.attention.query_norm.weight", ([f"{old}.self_attn.q_norm.weight"], (dim,))
            yield f"{new}.attention.key_norm.weight", ([f"{old}.self_attn.k_norm.weight"], (dim,))


def _invalid(message: str) -> EngineError:
    return EngineError(EngineReason.MODEL_INVALID, message)
