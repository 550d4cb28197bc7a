"""What stands beside a GGUF file: config.json, tokenizer.json and the chat template.

GGUF names a byte-level BPE vocabulary's pre-tokenizer by one word; what each word stands for is
kept here. No torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from .errors import EngineError, EngineReason
from .model.gguf import GgufFile

_CONTROL: Final = 3  # token types of GGUF
_USER_DEFINED: Final = 4

_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DIGITS: Final = {"qwen2": r"\p{N}", "llama-bpe": r"\p{N}{1,3}"}


def write_description(gguf: GgufFile, directory: Path) -> None:
    """Write config.json, tokenizer.json and tokenizer_config.json for a GGUF file.

    EngineError(MODEL_INVALID) where the architecture or the tokenizer isn't known here.
    """
    _write(directory / "config.json", model_description(gguf))
    make_tokenizer(gguf.metadata).save(str(directory / "tokenizer.json"))
    _write(directory / "tokenizer_config.json", _tokenizer_description(gguf.metadata))


def _write(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _invalid(message: str) -> EngineError:
    return EngineError(EngineReason.MODEL_INVALID, message)


def model_description(gguf: GgufFile) -> dict[str, Any]:
    """Return the config.json of a GGUF file."""
    meta = gguf.metadata
    architecture = meta.get("general.architecture")
    if architecture not in ("llama", "qwen2", "qwen3"):
        raise _invalid(f"{gguf.path}: architecture {architecture!r} isn't served")

    def need(key: str) -> Any:
        if (value := meta.get(f"{architecture}.{key}")) is None:
            raise _invalid(f"{gguf.path} lacks {architecture}.{key}")
        return value

    heads = need("attention.head_count")
    hidden = need("embedding_length")
    config: dict[str, Any] = {
        "model_type": architecture,
        "vocab_size": gguf.tensors["token_embd.weight"].shape[0],
        "hidden_size": hidden,
        "intermediate_size": need("feed_forward_length"),
        "num_hidden_layers": need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get(f"{architecture}.attention.head_count_kv", heads),
        "head_dim": meta.get(f"{architecture}.attention.key_length", hidden // heads),
        "max_position_embeddings": need("context_length"),
        "rms_norm_eps": need("attention.layer_norm_rms_epsilon"),
        "rope_theta": meta.get(f"{architecture}.rope.freq_base", 10000.0),
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "attention_bias": "blk.0.attn_q.bias" in gguf.tensors,
        "eos_token_id": eos_ids(meta),
    }
    kind = meta.get(f"{architecture}.rope.scaling.type", "none")
    if kind == "linear":
        factor = need("rope.scaling.factor")
        config["rope_scaling"] = {"rope_type": "linear", "factor": factor}
    elif kind != "none" or "rope_freqs.weight" in gguf.tensors:
        raise _invalid(f"{gguf.path}: rope scaling {kind!r} of GGUF isn't served: use safetensors")
    return config


def eos_ids(meta: dict[str, Any]) -> list[int]:
    """Return the ids that end a generation: end of sequence, end of turn, end of message."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    found = (meta.get(f"tokenizer.ggml.{key}") for key in keys)
    return list(dict.fromkeys(int(token) for token in found if token is not None))


def make_tokenizer(meta: dict[str, Any]) -> Tokenizer:
    """Return the byte-level BPE tokenizer of a GGUF file's metadata."""
    if meta.get("tokenizer.ggml.model") != "gpt2":
        raise _invalid(
            f"GGUF tokenizer {meta.get('tokenizer.ggml.model')!r} isn't served: give a folder "
            "with the model's tokenizer.json and config.json beside the GGUF file"
        )
    tokens: list[str] = meta.get("tokenizer.ggml.tokens", [])
    merges = [tuple(merge.split(" ", 1)) for merge in meta.get("tokenizer.ggml.merges", [])]
    kind = meta.get("tokenizer.ggml.pre", "")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    model = BPE(vocab=vocabulary, merges=merges, ignore_merges=kind == "llama-bpe")
    tokenizer = Tokenizer(model)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if kind in ("smollm", "default", "gpt-2"):
        whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        digits = [pre_tokenizers.Digits(individual_digits=True)] if kind == "smollm" else []
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*digits, whole])
    elif kind in ("qwen2", "llama-bpe"):
        pattern = Regex(_SPLIT % _DIGITS[kind])
        split = pre_tokenizers.Split(pattern, behavior="isolated", invert=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
        if kind == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
    else:
        raise _invalid(
            f"GGUF pre-tokenizer {kind!r} isn't known: give a folder with the model's "
            "tokenizer.json and config.json beside the GGUF file"
        )
    tokenizer.decoder = decoders.ByteLevel()
    types: list[int] = meta.get("tokenizer.ggml.token_type", [])
    tokenizer.add_tokens(
        [
            AddedToken(token, special=kind_of == _CONTROL, normalized=False)
            for token, kind_of in zip(tokens, types, strict=False)
            if kind_of in (_CONTROL, _USER_DEFINED)
        ]
    )
    return tokenizer


def _tokenizer_description(meta: dict[str, Any]) -> dict[str, Any]:
    tokens: list[str] = meta.get("tokenizer.ggml.tokens", [])

    def named(key: str) -> str | None:
        token = meta.get(f"tokenizer.ggml.{key}")
        return tokens[token] if token is not None and 0 <= token < len(tokens) else None

    return {
        "bos_token": named("bos_token_id"),
        "eos_token": named("eos_token_id"),
        "unk_token": named("unknown_token_id"),
        "pad_token": named("padding_token_id"),
        "chat_template": meta.get("tokenizer.chat_template"),
    }
