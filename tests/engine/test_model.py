"""Reading weights, and what the decoder promises beside parity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pagemill.engine.errors import EngineError, EngineReason  # noqa: E402
from pagemill.engine.model.attention import (  # noqa: E402
    BatchLayout,
    KVCache,
    NativePagedAttention,
    PagedAttention,
    make_attention,
)
from pagemill.engine.model.decoder import Decoder, load_decoder  # noqa: E402
from pagemill.engine.store import ModelFiles  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    shapes = {"model.embed_tokens": (50, 32)}
    for layer in range(2):
        name = f"model.layers.{layer}"
        shapes |= {
            f"{name}.self_attn.q_proj": (32, 32),
            f"{name}.self_attn.k_proj": (16, 32),
            f"{name}.self_attn.v_proj": (16, 32),
            f"{name}.self_attn.o_proj": (32, 32),
            f"{name}.mlp.gate_proj": (48, 32),
            f"{name}.mlp.up_proj": (48, 32),
            f"{name}.mlp.down_proj": (32, 48),
        }
    weights = {f"{k}.weight": torch.randn(s, generator=generator) for k, s in shapes.items()}
    norms = ["model.norm.weight"]
    for layer in range(2):
        norms += [f"model.layers.{layer}.{n}.weight" for n in
                  ("input_layernorm", "post_attention_layernorm")]  # fmt: skip
    return weights | {name: torch.ones(32) for name in norms}


def write(directory: Path, weights: dict[str, torch.Tensor], **changes: Any) -> ModelFiles:
    (directory / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    save_file(weights, directory / "model.safetensors")
    return ModelFiles("tiny", directory, (directory / "model.safetensors",))


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    return write(tmp_path, tensors())


def run(decoder: Decoder, ids: list[int], indices: list[int], native: bool | None) -> torch.Tensor:
    dtype = next(decoder.parameters()).dtype
    cache = KVCache.allocate(decoder.config, 4, 16, dtype)
    attention = make_attention(decoder.config, cache, native=native)
    count = len(ids)
    layout = BatchLayout(
        slot_mapping=np.arange(count, dtype=np.int32),
        query_start=np.array([0, count], np.int32),
        context_lens=np.array([count], np.int32),
        slots=np.zeros(1, np.int32),
        block_tables=np.arange(4, dtype=np.int32)[None],
    )
    attention.begin(layout)
    return decoder(
        torch.tensor(ids), torch.arange(count), attention, torch.tensor(indices, dtype=torch.int64)
    )


def test_logits_only_where_asked(files: ModelFiles) -> None:
    decoder = load_decoder(files)
    ids = [3, 1, 4, 1, 5, 9]
    everywhere = run(decoder, ids, list(range(6)), None)
    assert everywhere.dtype == torch.float32
    torch.testing.assert_close(run(decoder, ids, [5, 2], None), everywhere[[5, 2]])
    assert run(decoder, ids, [], None).shape == (0, 50)


def test_bfloat16_stays_near_float32(files: ModelFiles) -> None:
    ids = [3, 1, 4, 1, 5, 9]
    exact = run(load_decoder(files), ids, [5], None)
    rounded = run(load_decoder(files, dtype=torch.bfloat16), ids, [5], None)
    assert rounded.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(exact, rounded).item() > 0.99


def test_tied_embeddings_are_one_tensor(files: ModelFiles) -> None:
    decoder = load_decoder(files)
    assert decoder.head.weight.data_ptr() == decoder.embedding.weight.data_ptr()
    assert not any(parameter.requires_grad for parameter in decoder.parameters())


def test_the_kernel_serves_float32_on_the_cpu(files: ModelFiles) -> None:
    decoder = load_decoder(files)
    wide = KVCache.allocate(decoder.config, 2, 16)
    narrow = KVCache.allocate(decoder.config, 2, 16, torch.bfloat16)
    assert isinstance(make_attention(decoder.config, wide), NativePagedAttention)
    assert isinstance(make_attention(decoder.config, wide, native=False), PagedAttention)
    assert isinstance(make_attention(decoder.config, narrow), PagedAttention)
    with pytest.raises(ValueError, match="float32"):
        make_attention(decoder.config, narrow, native=True)


def test_cache_size_is_told_beforehand(files: ModelFiles) -> None:
    config = load_decoder(files).config
    cache = KVCache.allocate(config, 3, 16)
    assert cache.key.nbytes + cache.value.nbytes == 3 * KVCache.bytes_per_block(
        config, 16, torch.float32
    )


@pytest.mark.parametrize("native", [False, True])
def test_a_place_outside_the_cache_is_refused(files: ModelFiles, native: bool) -> None:
    decoder = load_decoder(files)
    cache = KVCache.allocate(decoder.config, 2, 16)
    attention = make_attention(decoder.config, cache, native=native)
    layout = BatchLayout(
        slot_mapping=np.array([32], np.int32),
        query_start=np.array([0, 1], np.int32),
        context_lens=np.array([1], np.int32),
        slots=np.zeros(1, np.int32),
        block_tables=np.zeros((1, 2), np.int32),
    )
    attention.begin(layout)
    with pytest.raises((IndexError, RuntimeError)):
        decoder(torch.tensor([1]), torch.tensor([0]), attention, torch.tensor([0]))


def refused(files: ModelFiles) -> str:
    with pytest.raises(EngineError) as caught:
        load_decoder(files)
    assert caught.value.reason == EngineReason.MODEL_INVALID
    return str(caught.value)


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    weights = tensors()
    del weights["model.layers.1.mlp.up_proj.weight"]
    assert "layers.1.mlp.up_proj.weight" in refused(write(tmp_path, weights))


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    assert "expected (50, 48)" in refused(write(tmp_path, tensors(), hidden_size=48))


def test_an_untied_head_must_be_there(tmp_path: Path) -> None:
    assert "lm_head.weight" in refused(write(tmp_path, tensors(), tie_word_embeddings=False))


def test_a_cut_file_is_refused(files: ModelFiles) -> None:
    path = files.weights[0]
    path.write_bytes(path.read_bytes()[:5000])
    assert "safetensors" in refused(files)
