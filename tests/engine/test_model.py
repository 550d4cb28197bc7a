"""Reading weights, and what the decoder promises beside parity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pagemill import _core  # noqa: E402
from pagemill.engine.errors import EngineError, EngineReason  # noqa: E402
from pagemill.engine.model.attention import BatchLayout, KVCache, PagedAttention  # noqa: E402
from pagemill.engine.model.decoder import Decoder, load_decoder  # noqa: E402
from pagemill.engine.model.native import KvKind, NativeDecoder, WeightKind  # noqa: E402
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


def tensors(head_dim: int = 8) -> dict[str, torch.Tensor]:
    query, kv = 4 * head_dim, 2 * head_dim
    generator = torch.Generator().manual_seed(5)
    shapes = {"model.embed_tokens": (50, 32)}
    for layer in range(2):
        name = f"model.layers.{layer}"
        shapes |= {
            f"{name}.self_attn.q_proj": (query, 32),
            f"{name}.self_attn.k_proj": (kv, 32),
            f"{name}.self_attn.v_proj": (kv, 32),
            f"{name}.self_attn.o_proj": (32, query),
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


def layout_of(count: int, **changes: list[int]) -> BatchLayout:
    """One row of `count` tokens in the first blocks."""
    arrays = {
        "slot_mapping": list(range(count)),
        "query_start": [0, count],
        "context_lens": [count],
        "slots": [0],
    } | changes
    table = np.arange(4, dtype=np.int32)[None]
    return BatchLayout(
        **{name: np.array(values, np.int32) for name, values in arrays.items()}, block_tables=table
    )


def run(decoder: Decoder, ids: list[int], indices: list[int]) -> torch.Tensor:
    dtype = next(decoder.parameters()).dtype
    attention = PagedAttention(decoder.config, KVCache.allocate(decoder.config, 4, 16, dtype))
    attention.begin(layout_of(len(ids)))
    chosen = torch.tensor(indices, dtype=torch.int64)
    return decoder(torch.tensor(ids), torch.arange(len(ids)), attention, chosen)


def run_natively(
    decoder: NativeDecoder,
    ids: list[int],
    indices: list[int],
    kv: KvKind = "fp32",
    **changes: list[int],
) -> torch.Tensor:
    layout = layout_of(len(ids), **changes)
    tokens = np.array(ids, np.int32)
    positions = np.arange(len(ids), dtype=np.int32)
    cache = decoder.allocate_cache(4, 16, kv)
    return decoder.forward(cache, tokens, positions, layout, np.array(indices, np.int32)).clone()


IDS = [3, 1, 4, 1, 5, 9]


def test_logits_only_where_asked(files: ModelFiles) -> None:
    decoder, native = load_decoder(files), NativeDecoder(files, "fp32")
    everywhere = run(decoder, IDS, list(range(6)))
    assert everywhere.dtype == torch.float32
    torch.testing.assert_close(run(decoder, IDS, [5, 2]), everywhere[[5, 2]])
    assert run(decoder, IDS, []).shape == (0, 50)
    torch.testing.assert_close(
        run_natively(native, IDS, [5, 2]), everywhere[[5, 2]], atol=2e-3, rtol=1e-4
    )
    assert run_natively(native, IDS, []).shape == (0, 50)


def test_bfloat16_stays_near_float32(files: ModelFiles) -> None:
    exact = run(load_decoder(files), IDS, [5])
    rounded = run(load_decoder(files, dtype=torch.bfloat16), IDS, [5])
    assert rounded.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(exact, rounded).item() > 0.99


@pytest.mark.parametrize(
    ("kind", "kv", "nearness"), [("bf16", "fp32", 0.9995), ("int8", "fp32", 0.99)]
)
def test_rounded_weights_stay_near_float32(
    files: ModelFiles, kind: WeightKind, kv: KvKind, nearness: float
) -> None:
    exact = run(load_decoder(files), IDS, list(range(6)))
    rounded = run_natively(NativeDecoder(files, kind), IDS, list(range(6)), kv)
    assert torch.nn.functional.cosine_similarity(exact, rounded).min().item() > nearness
    assert not torch.equal(exact, rounded)


@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_an_int8_cache_stays_near_a_float32_one(tmp_path: Path, kind: WeightKind) -> None:
    weights = tensors(head_dim=16)
    files = write(tmp_path, weights, head_dim=16)
    decoder = NativeDecoder(files, kind)
    exact = run_natively(decoder, IDS * 9, list(range(54)), "fp32")
    rounded = run_natively(decoder, IDS * 9, list(range(54)), "int8")
    # The weights are random, so a softmax that stands on the edge may tip at single tokens.
    assert torch.nn.functional.cosine_similarity(exact, rounded).mean().item() > 0.995
    assert not torch.equal(exact, rounded)


def test_a_head_that_is_the_embedding_is_packed_once(files: ModelFiles, tmp_path: Path) -> None:
    tied = NativeDecoder(files, "bf16")
    weights = tensors()
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    apart = NativeDecoder(write(tmp_path, weights, tie_word_embeddings=False), "bf16")
    assert apart.num_bytes > tied.num_bytes
    torch.testing.assert_close(
        run_natively(tied, IDS, [5]), run_natively(apart, IDS, [5]), atol=0, rtol=0
    )


def test_tied_embeddings_are_one_tensor(files: ModelFiles) -> None:
    decoder = load_decoder(files)
    assert decoder.head.weight.data_ptr() == decoder.embedding.weight.data_ptr()
    assert not any(parameter.requires_grad for parameter in decoder.parameters())


def test_cache_size_is_told_beforehand(files: ModelFiles) -> None:
    config = load_decoder(files).config
    cache = KVCache.allocate(config, 3, 16)
    assert cache.key.nbytes + cache.value.nbytes == 3 * KVCache.bytes_per_block(
        config, 16, torch.float32
    )


def test_a_place_outside_the_cache_is_refused(files: ModelFiles) -> None:
    decoder = load_decoder(files)
    attention = PagedAttention(decoder.config, KVCache.allocate(decoder.config, 2, 16))
    attention.begin(layout_of(1, slot_mapping=[32]))
    with pytest.raises((IndexError, RuntimeError)):
        decoder(torch.tensor([1]), torch.tensor([0]), attention, torch.tensor([0]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slot_mapping": [64]}, "place outside"),
        ({"slot_mapping": [0, 1]}, "one entry for each token"),
        ({"context_lens": [80]}, "past the block table"),
        ({"slots": [1]}, "slot out of range"),
        ({"ids": [50]}, "outside the vocabulary"),
        ({"indices": [1]}, "outside the batch"),
    ],
)
def test_wrong_steps_are_refused(
    files: ModelFiles, changes: dict[str, list[int]], message: str
) -> None:
    arguments: dict[str, list[int]] = {"ids": [7], "indices": [0]} | changes
    ids, indices = arguments.pop("ids"), arguments.pop("indices")
    with pytest.raises(ValueError, match=message):
        run_natively(NativeDecoder(files, "fp32"), ids, indices, **arguments)


def test_a_native_decoder_wants_all_its_weights() -> None:
    shape = {"num_layers": 1, "hidden_size": 8, "inner_size": 8, "vocab_size": 8, "num_heads": 1,
             "num_kv_heads": 1, "head_dim": 8, "rms_norm_eps": 1e-5}  # fmt: skip
    decoder = _core.CpuDecoder(**shape, kind="fp32")
    assert "layers.0.feed_forward.down.weight" in decoder.missing()
    values = np.zeros((8, 8), np.float32)
    decoder.set("layers.0.feed_forward.down.weight", values.ctypes.data, 8, 8)
    assert "layers.0.feed_forward.down.weight" not in decoder.missing()
    for name, rows in (("layers.1.attention_norm.weight", 1), ("layers.0.bread.weight", 8),
                       ("layers.x.y", 8), ("norm.weight", 8), ("crust", 8)):  # fmt: skip
        with pytest.raises(ValueError, match="parameter"):
            decoder.set(name, values.ctypes.data, rows, 8)
    cache, empty = _core.KvCache(1, 1, 16, 1, 8, "fp32"), np.zeros(0, np.int32)
    table, start = np.zeros((1, 1), np.int32), np.zeros(1, np.int32)
    with pytest.raises(ValueError, match="missing"):
        decoder.forward(cache, empty, empty, empty, table, empty, start, empty, empty, 0)


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
