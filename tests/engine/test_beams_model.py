"""Beam search and log probabilities over a small Llama, against transformers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from pagemill.engine.assembly import assemble
from pagemill.engine.config import EngineConfig
from pagemill.engine.executor.batch import Batch
from pagemill.engine.protocol import GrammarTable, Output, Submit
from pagemill.engine.sizing import Sizes
from pagemill.engine.vocabulary import Vocabulary

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

Make = Callable[..., Any]
END = 256
PROMPT = b"A kind of page with n 23."
LENGTH = 24


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """transformers' model, and the folder where it is saved."""
    folder = tmp_path_factory.mktemp("beams")
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=257,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            initializer_range=0.25,
            bos_token_id=None,
            eos_token_id=END,
            pad_token_id=END,
        )
    ).eval()
    with torch.no_grad():  # The end is likely enough to be met by some beams, and not by all.
        model.lm_head.weight[END] += model.lm_head.weight.mean(0)
    model.save_pretrained(folder)
    yield model, folder
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def cores(reference: tuple[Any, Any]) -> Make:
    """Makes a core of the executor named over that model."""
    from pagemill.engine.executor.cpu import CpuExecutor
    from pagemill.engine.executor.torch import TorchExecutor
    from pagemill.engine.model.attention import KVCache
    from pagemill.engine.model.config import ModelConfig
    from pagemill.engine.model.decoder import load_decoder
    from pagemill.engine.model.native import NativeDecoder
    from pagemill.engine.store import ModelFiles

    folder = reference[1]
    files = ModelFiles("small", folder, tuple(folder.glob("*.safetensors")))

    def make(executor: str, **settings: Any) -> Any:
        config = EngineConfig(max_num_seqs=8, **settings)
        sizes = Sizes(256, 128, 256 // config.block_size)
        batch = Batch(config.max_num_seqs, sizes.blocks_per_seq, config.block_size, 257)
        runner: Any
        if executor == "torch":
            cache = KVCache.allocate(ModelConfig.load(folder), 128, config.block_size)
            runner = TorchExecutor(batch, load_decoder(files), cache)
        else:
            decoder = NativeDecoder(files, "fp32")
            native = decoder.allocate_cache(128, config.block_size, "fp32")
            runner = CpuExecutor(batch, decoder, native)
        return assemble(config, "small", sizes, Vocabulary.of_bytes(), runner)

    return make


def answers(core: Any, request: Any, grammar: tuple[str, bytes]) -> list[Output]:
    core.handle(b"c", Submit("bytes-1", [request]))
    core.handle(b"c", GrammarTable(*grammar))
    found: list[Output] = []
    while core.busy:
        core.step()
        for _, message in core.take():
            found += getattr(message, "outputs", [])
    return found


def records() -> list[bytes]:
    return [
        json.dumps({"kind": kind, "n": n}, separators=(",", ":")).encode() + b"\xff"
        for kind, n in itertools.product(("a", "bc"), (1, 23, 456))
    ]


def legal_after(text: list[int]) -> list[int]:
    """What may follow under the grammar: b"\\xff" stands for the end."""
    known = bytes(text)
    following = {record[len(known)] for record in records() if record.startswith(known)}
    return sorted(END if byte == 0xFF else byte for byte in following) or [END]


@pytest.mark.parametrize("executor", ["cpu", "torch"])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize(("width", "penalty"), [(2, 1.0), (5, 1.0), (4, 0.0), (4, 2.0)])
def test_beams_are_those_of_transformers(
    reference: tuple[Any, Any],
    cores: Make,
    request_of: Make,
    grammar: tuple[str, bytes],
    executor: str,
    constrained: bool,
    width: int,
    penalty: float,
) -> None:
    prompt = list(PROMPT)
    allowed: Any = None
    if constrained:

        def allowed(_: int, ids: Any) -> list[int]:
            return legal_after(ids[len(prompt) :].tolist()) if END not in ids else [END]

    expected = reference[0].generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=LENGTH,
        do_sample=False,
        early_stopping="never",
        length_penalty=penalty,
        prefix_allowed_tokens_fn=allowed,
        return_dict_in_generate=True,
        output_scores=True,
    )
    request = request_of(
        "a",
        prompt,
        grammar=grammar[0] if constrained else None,
        max_tokens=LENGTH,
        n=width,
        beam_width=width,
        length_penalty=penalty,
    )
    found = answers(cores(executor), request, grammar)
    assert len(found) == width
    for output, ids, score in zip(
        found, expected.sequences.tolist(), expected.sequences_scores.tolist(), strict=True
    ):
        text = ids[len(prompt) :]
        ends = END in text
        text = text[: text.index(END)] if ends else text
        assert list(output.token_ids) == text
        assert output.finish == ("stop" if ends else "length")
        assert output.score == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("executor", ["cpu", "torch"])
@pytest.mark.parametrize("constrained", [False, True])
def test_logprobs_are_the_model_s(
    reference: tuple[Any, Any],
    cores: Make,
    request_of: Make,
    grammar: tuple[str, bytes],
    executor: str,
    constrained: bool,
) -> None:
    prompt = list(PROMPT)
    request = request_of(
        "a", prompt, grammar=grammar[0] if constrained else None, max_tokens=LENGTH, logprobs=4
    )
    found = answers(cores(executor), request, grammar)
    told = [one for output in found for one in output.logprobs]
    ids = [token for output in found for token in output.token_ids]
    assert [one.token_id for one in told] == ids
    with torch.no_grad():
        logits = reference[0](torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 :]
    expected = torch.log_softmax(logits.double(), dim=-1).numpy()
    for at, one in enumerate(told):
        assert one.logprob == pytest.approx(expected[at, one.token_id], abs=1e-4)
        legal = legal_after(ids[:at]) if constrained else list(range(257))
        best = np.array(legal)[np.argsort(-expected[at, legal], kind="stable")][:4].tolist()
        assert [token for token, _ in one.top] == best
        assert one.token_id == best[0]
