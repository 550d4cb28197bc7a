"""Executors: optimisations don't change answers, on the arithmetic model and on real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.engine.config import EngineConfig
from pagemill.engine.errors import EngineError
from pagemill.engine.executor.batch import Batch
from pagemill.engine.protocol import GrammarTable, Submit
from pagemill.engine.sizing import Sizes, choose_sizes, free_memory
from pagemill.engine.vocabulary import Vocabulary

Make = Callable[..., Any]

SWITCHES: list[dict[str, Any]] = [
    {"enable_prefix_caching": False},
    {"enable_chunked_prefill": False, "max_num_batched_tokens": 1024},
    {"max_num_seqs": 1},
    {"max_num_batched_tokens": 16, "max_num_seqs": 8},
    {"long_prefill_token_threshold": 5},
    {"block_size": 4, "num_blocks": 256},
    {"num_blocks": 20},
    {"scheduling_policy": "priority"},
]


def burst_of(request_of: Make, grammar: str) -> list[Any]:
    """Shared prefixes, odd lengths, equal prompts; bound, free, greedy and sampled."""
    shared = list(range(1, 38))
    requests = []
    for i in range(6):
        prompt = shared + [100 + i % 3] * (3 * i)
        requests.append(request_of(f"free{i}", prompt, max_tokens=30, ignore_eos=True))
        requests.append(request_of(f"bound{i}", prompt, grammar=grammar, max_tokens=40))
    requests.append(request_of("hot", shared, max_tokens=30, temperature=1.0, top_p=0.9, seed=4))
    requests.append(request_of("salted", shared, max_tokens=9, salt="tenant", ignore_eos=True))
    return requests


def outcome(core: Any, requests: list[Any], grammar: tuple[str, bytes]) -> dict[str, Any]:
    core.handle(Submit("bytes-1", requests))
    core.handle(GrammarTable(*grammar))
    core.run()
    return {
        request.request_id: (core.tokens(request.request_id), core.last(request.request_id).finish)
        for request in requests
    }


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_switches_do_not_change_answers(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes], switches: dict[str, Any]
) -> None:
    requests = burst_of(request_of, grammar[0])
    plain = make_core(max_num_seqs=8)
    expected = outcome(plain, requests, grammar)
    changed = make_core(**({"max_num_seqs": 8} | switches))
    assert outcome(changed, requests, grammar) == expected
    assert plain.core.stats().counters["prefix_cache_hits"] > 0
    if switches.get("enable_prefix_caching") is False:
        assert changed.core.stats().counters["prefix_cache_hits"] == 0
    stats = changed.core.stats()
    assert stats.free_blocks == stats.total_blocks


def test_the_arithmetic_model_reads_its_cache(make_core: Make, request_of: Make) -> None:
    """A block that is overwritten shows in the output: else the tests above would prove little."""
    outputs = []
    for damaged in (False, True):
        core = make_core()
        core.handle(Submit("bytes-1", [request_of("a", [5] * 40, max_tokens=8, ignore_eos=True)]))
        core.step()
        if damaged:
            core.executor._cache[3] += 1
        core.run()
        outputs.append(core.tokens("a"))
    assert outputs[0][0] == outputs[1][0]
    assert outputs[0][1:] != outputs[1][1:]


# --- decoders with random weights -----------------------------------------------------------------


@pytest.fixture(scope="module")
def small_core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Makes cores of the executor named over a small Llama with random weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from pagemill.engine.assembly import assemble
    from pagemill.engine.executor.cpu import CpuExecutor
    from pagemill.engine.executor.torch import TorchExecutor
    from pagemill.engine.model.attention import KVCache
    from pagemill.engine.model.config import ModelConfig
    from pagemill.engine.model.decoder import load_decoder
    from pagemill.engine.model.native import NativeDecoder
    from pagemill.engine.store import ModelFiles

    folder = tmp_path_factory.mktemp("small")
    torch.manual_seed(3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for products this small
    transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=288,  # wider than the tokenizer's 257
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            initializer_range=0.3,  # logits of a trained model's size
        )
    ).save_pretrained(folder)
    files = ModelFiles("small", folder, tuple(folder.glob("*.safetensors")))
    torch_decoder, native_decoder = load_decoder(files), NativeDecoder(files, "fp32")
    model = ModelConfig.load(folder)

    def make(executor: str, **settings: Any) -> Any:
        config = EngineConfig(**settings)
        vocabulary = Vocabulary.of_bytes()
        num_blocks = config.num_blocks or 128
        sizes = Sizes(256, num_blocks, 256 // config.block_size)
        batch = Batch(config.max_num_seqs, sizes.blocks_per_seq, config.block_size, 257)
        if executor == "torch":
            cache = KVCache.allocate(model, num_blocks, config.block_size)
            runner = TorchExecutor(batch, torch_decoder, cache)
        else:
            native_cache = native_decoder.allocate_cache(num_blocks, config.block_size, "fp32")
            runner = CpuExecutor(
                batch, native_decoder, native_cache, sparse_logits=config.sparse_logits
            )
        return assemble(config, "small", sizes, vocabulary, runner)

    yield make
    torch.set_num_threads(threads)


class Driver:
    """Runs a core to its end and keeps tokens and finishes."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.ids: dict[str, list[int]] = {}
        self.finish: dict[str, str] = {}

    def run(self, requests: list[Any], grammar: tuple[str, bytes], tokenizer: str) -> Any:
        self.core.handle(b"c", Submit(tokenizer, requests))
        self.core.handle(b"c", GrammarTable(*grammar))
        while self.core.busy:
            self.core.step()
            for _, message in self.core.take():
                for output in getattr(message, "outputs", ()):
                    self.ids.setdefault(output.request_id, []).extend(output.token_ids)
                    if output.finish:
                        self.finish[output.request_id] = output.finish
        return self.ids, self.finish


@pytest.mark.parametrize("executor", ["cpu", "torch"])
def test_small_decoders_answer_alike_with_switches_on_and_off(
    small_core: Make, request_of: Make, grammar: tuple[str, bytes], executor: str
) -> None:
    requests = burst_of(request_of, grammar[0])
    expected = Driver(small_core("cpu", max_num_seqs=8)).run(requests, grammar, "bytes-1")
    assert len(expected[0]) == len(requests)
    assert max(token for ids in expected[0].values() for token in ids) < 257
    cases: list[dict[str, Any]] = [{"max_num_batched_tokens": 16}]
    if executor == "cpu":
        cases += [{"enable_prefix_caching": False}, {"max_num_seqs": 1}, {"num_blocks": 24}]
        cases += [{"sparse_logits": False}, {"sparse_logits": False, "speculation": "off"}]
    for switches in cases:
        core = small_core(executor, **({"max_num_seqs": 8} | switches))
        assert Driver(core).run(requests, grammar, "bytes-1") == expected, switches
        if executor == "cpu":
            sparse = core.stats().counters["sparse_logit_rows"]
            assert (sparse > 0) == switches.get("sparse_logits", True)


@pytest.mark.model
@pytest.mark.timeout(600)
def test_the_default_model_answers_alike_with_switches_on_and_off(
    model_files: Any, request_of: Make, grammar: tuple[str, bytes]
) -> None:
    from pagemill.engine.assembly import build_core
    from pagemill.engine.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(model_files.directory)
    pages = ["kind a, n 23", "a kind of bc with 456"]
    requests = []
    for i, page in enumerate(pages):
        prompt = np.concatenate(
            tokenizer.chat(
                [
                    {"role": "system", "content": "Answer in JSON with the keys kind and n."},
                    {"role": "user", "content": page},
                ]
            )
        )
        requests.append(request_of(f"bound{i}", prompt.tolist(), grammar=grammar[0]))
        requests.append(request_of(f"free{i}", prompt.tolist(), max_tokens=6))
    found = []
    for switches in (
        {},
        {"enable_prefix_caching": False, "max_num_seqs": 1},
        {"max_num_batched_tokens": 16, "max_num_seqs": 4, "executor": "torch"},
    ):
        core = build_core(EngineConfig(num_blocks=128, **switches))
        found.append(Driver(core).run(requests, grammar, tokenizer.hash))
    assert found[0] == found[1] == found[2]
    for i in range(len(pages)):
        text = tokenizer.decode(found[0][0][f"bound{i}"])
        assert text.startswith('{"kind":"'), text
        assert found[0][1][f"bound{i}"] == "stop"


# --- sizes ----------------------------------------------------------------------------------------


def sizes(free: int = 8 << 30, on_cpu: bool = True, **settings: Any) -> Sizes:
    return choose_sizes(
        EngineConfig(**settings),
        model_len=4096,
        bytes_per_block=1 << 20,
        free_bytes=free,
        on_cpu=on_cpu,
    )


def test_sizes_follow_memory() -> None:
    assert sizes() == Sizes(4096, 2048, 256)  # 2 GiB on the CPU
    assert sizes(on_cpu=False, free=64 << 30).num_blocks == 64 * 128  # 64 requests of 2,048
    assert sizes(max_num_seqs=4).num_blocks == 4 * 128
    assert sizes(free=1 << 30).num_blocks == 256  # a quarter, and one whole request
    assert sizes(kv_cache_memory_bytes=64 << 20) == Sizes(1024, 64, 64)
    assert sizes(num_blocks=100) == Sizes(1600, 100, 100)
    assert sizes(num_blocks=100, max_model_len=1600).blocks_per_seq == 100


def test_sizes_that_cannot_be_are_refused() -> None:
    for wrong in (
        {"max_model_len": 5000},
        {"num_blocks": 10, "max_model_len": 1000},
        {"free": 1 << 20},
        {"kv_cache_memory_bytes": 5},
    ):
        with pytest.raises(EngineError):
            sizes(**wrong)
    assert free_memory() > 0


def test_torch_stays_out_until_it_is_needed(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys, pagemill.engine, pagemill.engine.__main__, pagemill.engine.assembly\n"
        "from pagemill.engine.inprocess import InProcessEngine\n"
        "from pagemill.engine import EngineConfig\n"
        "InProcessEngine.start(EngineConfig(model='fake')).close()\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
