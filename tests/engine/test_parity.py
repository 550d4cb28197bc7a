"""The decoder against transformers on the same weights, in float32.

Logits within 2e-3 and the same greedy tokens, however the prompt is computed: in one piece, in
chunks, among other rows, and on blocks that another request has filled.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from pagemill.engine import store  # noqa: E402
from pagemill.engine.model.attention import BatchLayout, KVCache, PagedAttention  # noqa: E402
from pagemill.engine.model.decoder import Decoder, load_decoder  # noqa: E402
from pagemill.engine.model.gguf import GgufFile  # noqa: E402
from pagemill.engine.model.native import NativeDecoder  # noqa: E402
from pagemill.engine.tokenizer import Tokenizer  # noqa: E402

I32 = NDArray[np.int32]
Compute = Callable[[I32, I32, BatchLayout], torch.Tensor]

BLOCK_SIZE = 16
TOLERANCE = 2e-3
SMALL: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.3,  # logits of a trained model's size
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-bias-tied": (
        "Llama",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama-rope-linear": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    ),
    "llama-rope-llama3": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "mistral": ("Mistral", {"head_dim": 32, "sliding_window": None}),
    "qwen2": ("Qwen2", {"num_attention_heads": 4, "num_key_value_heads": 4}),
    "qwen2-rope-yarn": (
        "Qwen2",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "qwen3": ("Qwen3", {"head_dim": 24, "tie_word_embeddings": True}),
}


@dataclass
class Sequence:
    """One request: its tokens, how many have K/V, and its blocks."""

    slot: int
    tokens: list[int]
    computed: int = 0
    blocks: list[int] = field(default_factory=list)


class PagedBatch:
    """Drives a decoder over a paged cache the way an executor does; blocks come in no order."""

    def __init__(self, decoder: Decoder | NativeDecoder, num_blocks: int = 128) -> None:
        self.compute = (
            self.natively(decoder, num_blocks)
            if isinstance(decoder, NativeDecoder)
            else self.in_torch(decoder, num_blocks)
        )
        self.free = list(np.random.default_rng(7).permutation(num_blocks))
        self.tables = np.zeros((16, num_blocks), np.int32)
        self.sequences: list[Sequence] = []

    def in_torch(self, decoder: Decoder, num_blocks: int) -> Compute:
        attention = PagedAttention(
            decoder.config, KVCache.allocate(decoder.config, num_blocks, BLOCK_SIZE)
        )

        def compute(ids: I32, positions: I32, layout: BatchLayout) -> torch.Tensor:
            attention.begin(layout)
            places = torch.arange(len(ids))
            return decoder(torch.from_numpy(ids), torch.from_numpy(positions), attention, places)

        return compute

    def natively(self, decoder: NativeDecoder, num_blocks: int) -> Compute:
        cache = decoder.allocate_cache(num_blocks, BLOCK_SIZE, "fp32")

        def compute(ids: I32, positions: I32, layout: BatchLayout) -> torch.Tensor:
            places = np.arange(len(ids), dtype=np.int32)
            return decoder.forward(cache, ids, positions, layout, places).clone()

        return compute

    def add(
        self, tokens: list[int], *, shared: Sequence | None = None, cached: int = 0
    ) -> Sequence:
        """Add a request; its first `cached` tokens lie in `shared`'s blocks, computed or not."""
        sequence = Sequence(len(self.sequences), list(tokens), computed=cached)
        for block in shared.blocks[: cached // BLOCK_SIZE] if shared is not None else ():
            self.append_block(sequence, block)
        self.sequences.append(sequence)
        return sequence

    def append_block(self, sequence: Sequence, block: int) -> None:
        self.tables[sequence.slot, len(sequence.blocks)] = block
        sequence.blocks.append(int(block))

    def reserve(self, sequence: Sequence, end: int) -> None:
        while len(sequence.blocks) * BLOCK_SIZE < end:
            self.append_block(sequence, self.free.pop())

    def step(self, work: list[tuple[Sequence, int]]) -> list[torch.Tensor]:
        """Compute the next `count` tokens of each sequence; logits of all of them, by row."""
        ids: list[int] = []
        positions: list[int] = []
        mapping: list[int] = []
        starts = [0]
        for sequence, count in work:
            end = sequence.computed + count
            self.reserve(sequence, end)
            for position in range(sequence.computed, end):
                block = sequence.blocks[position // BLOCK_SIZE]
                mapping.append(block * BLOCK_SIZE + position % BLOCK_SIZE)
                positions.append(position)
                ids.append(sequence.tokens[position])
            sequence.computed = end
            starts.append(len(ids))
        layout = BatchLayout(
            slot_mapping=np.array(mapping, np.int32),
            query_start=np.array(starts, np.int32),
            context_lens=np.array([sequence.computed for sequence, _ in work], np.int32),
            slots=np.array([sequence.slot for sequence, _ in work], np.int32),
            block_tables=self.tables,
        )
        logits = self.compute(np.array(ids, np.int32), np.array(positions, np.int32), layout)
        return [logits[start:end] for start, end in itertools.pairwise(starts)]

    def greedy(self, sequence: Sequence, logits: torch.Tensor, count: int) -> list[int]:
        """Decode `count` tokens; `logits` are those of the sequence's last token."""
        tokens = [int(logits.argmax())]
        while len(tokens) < count:
            sequence.tokens.append(tokens[-1])
            tokens.append(int(self.step([(sequence, 1)])[0][-1].argmax()))
        return tokens


def in_one_piece(batch: PagedBatch, prompt: list[int]) -> tuple[Sequence, torch.Tensor]:
    sequence = batch.add(prompt)
    return sequence, batch.step([(sequence, len(prompt))])[0]


def chunked(batch: PagedBatch, prompt: list[int]) -> tuple[Sequence, torch.Tensor]:
    sequence = batch.add(prompt)
    pieces = []
    while sequence.computed < len(prompt):
        count = min(17, len(prompt) - sequence.computed)
        pieces.append(batch.step([(sequence, count)])[0])
    return sequence, torch.cat(pieces)


def among_others(batch: PagedBatch, prompt: list[int]) -> tuple[Sequence, torch.Tensor]:
    """Beside a decoding row, a longer prompt's chunk and a short prompt."""
    decoding = batch.add(prompt[::-1])
    batch.step([(decoding, len(prompt) - 1)])
    sequence = batch.add(prompt)
    longer, short = batch.add(prompt[5:] + prompt), batch.add(prompt[:3])
    rows = batch.step([(decoding, 1), (longer, 40), (sequence, len(prompt)), (short, 3)])
    return sequence, rows[2]


def on_prefix_hit(batch: PagedBatch, prompt: list[int]) -> tuple[Sequence, torch.Tensor]:
    """Two blocks come from an earlier request; logits for them from a run of their own."""
    cached = 2 * BLOCK_SIZE
    earlier = batch.add([*prompt[: cached + 1], *prompt[:9]])
    first = batch.step([(earlier, len(earlier.tokens))])[0]
    sequence = batch.add(prompt, shared=earlier, cached=cached)
    rest = batch.step([(sequence, len(prompt) - cached)])[0]
    return sequence, torch.cat([first[:cached], rest])


def on_prefix_of_same_step(batch: PagedBatch, prompt: list[int]) -> tuple[Sequence, torch.Tensor]:
    """The blocks are filled by another row of the very same step, standing after this one."""
    cached = 2 * BLOCK_SIZE
    other = batch.add([*prompt[:cached], *prompt[:9]])
    batch.reserve(other, len(other.tokens))
    sequence = batch.add(prompt, shared=other, cached=cached)
    rest, first = batch.step([(sequence, len(prompt) - cached), (other, len(other.tokens))])
    return sequence, torch.cat([first[:cached], rest])


WAYS = [in_one_piece, chunked, among_others, on_prefix_hit, on_prefix_of_same_step]


@pytest.fixture(scope="module", autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Small models gain nothing from more, and lose much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Decoders:
    """One model twice: in plain torch, and on the C++ kernels."""

    torch: Decoder
    native: NativeDecoder

    @classmethod
    def load(cls, files: store.ModelFiles) -> Decoders:
        return cls(load_decoder(files), NativeDecoder(files, "fp32"))


@pytest.fixture(params=["torch", "native"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=MODELS)
def small(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Decoders, Expected]:
    """A random model of each kind, read from what transformers saved, and what it answers."""
    family, settings = MODELS[request.param]
    torch.manual_seed(11)
    config = getattr(transformers, f"{family}Config")(**{**SMALL, **settings})
    reference = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
    with torch.no_grad():  # norms and biases of 1 and 0 would hide that they are missing
        for name, parameter in reference.named_parameters():
            if name.endswith(".bias"):
                parameter.normal_(std=0.2)
            elif "norm" in name:
                parameter.uniform_(0.5, 1.5)
    directory = tmp_path_factory.mktemp(request.param)
    reference.save_pretrained(directory, max_shard_size="300KB")
    weights = tuple(sorted(directory.glob("*.safetensors")))
    assert len(weights) > 1
    decoders = Decoders.load(store.ModelFiles(request.param, directory, weights))
    prompt = np.random.default_rng(3).integers(0, SMALL["vocab_size"], 75).tolist()
    return decoders, expect(reference, prompt, 8)


@dataclass(frozen=True)
class Expected:
    """The reference's logits of a prompt and its greedy continuation."""

    prompt: list[int]
    logits: torch.Tensor
    tokens: list[int]


@torch.no_grad()
def expect(reference: Any, prompt: list[int], count: int) -> Expected:
    logits = reference(torch.tensor([prompt])).logits[0]
    tokens = reference.generate(
        torch.tensor([prompt]), max_new_tokens=count, do_sample=False, eos_token_id=None
    )
    return Expected(prompt, logits, tokens[0, len(prompt) :].tolist())


def check(decoders: Decoders, backend: str, way: Any, expected: Expected) -> None:
    batch = PagedBatch(decoders.native if backend == "native" else decoders.torch)
    sequence, ours = way(batch, expected.prompt)
    assert expected.logits.abs().max() > 1.0  # else the tolerance would mean nothing
    assert (ours - expected.logits).abs().max() < TOLERANCE
    assert batch.greedy(sequence, ours[-1], len(expected.tokens)) == expected.tokens


@pytest.mark.parametrize("way", WAYS)
def test_small_models_match_transformers(
    small: tuple[Decoders, Expected], backend: str, way: Any
) -> None:
    check(small[0], backend, way, small[1])


def reference_of(files: store.ModelFiles) -> Any:
    """transformers' model with the weights of the default model's GGUF.

    The file interleaves the rows of queries and keys (pairs (2i, 2i + 1) turn together); that is
    undone here by indices, so that the loader under test is not compared with itself.
    """
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
    )
    halves = [*range(0, 64, 2), *range(1, 64, 2)]
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    with GgufFile(files.weights[0]) as gguf:
        state = {
            "model.embed_tokens.weight": torch.from_numpy(gguf.tensor("token_embd.weight")),
            "model.norm.weight": torch.from_numpy(gguf.tensor("output_norm.weight")),
        }
        for layer, (old, new) in itertools.product(range(30), names.items()):
            weight = torch.from_numpy(gguf.tensor(f"blk.{layer}.{old}.weight"))
            if old in ("attn_q", "attn_k"):
                weight = weight.view(-1, 64, 576)[:, halves].flatten(0, 1)
            state[f"model.layers.{layer}.{new}.weight"] = weight
    with torch.device("meta"):
        reference = transformers.LlamaForCausalLM(config)
    reference.load_state_dict(state, strict=False, assign=True)
    reference.tie_weights()
    # Its frequencies are no parameter, and were made on the meta device too.
    reference.model.rotary_emb = type(reference.model.rotary_emb)(config)
    return reference.eval()


@pytest.fixture(scope="module")
def smollm2(model_files: store.ModelFiles) -> tuple[Decoders, Expected]:
    reference = reference_of(model_files)
    text = "List three prices in euros as JSON: a pen 1,20, a desk 149, a lamp 36.50."
    parts = Tokenizer.load(model_files.directory).chat([{"role": "user", "content": text}])
    prompt = np.concatenate(parts).tolist()
    assert len(prompt) > 3 * BLOCK_SIZE
    return Decoders.load(model_files), expect(reference, prompt, 12)


@pytest.mark.model
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", WAYS)
def test_default_model_matches_transformers(
    smollm2: tuple[Decoders, Expected], backend: str, way: Any
) -> None:
    check(smollm2[0], backend, way, smollm2[1])


@pytest.mark.model
@pytest.mark.timeout(600)
def test_default_model_answers(model_files: store.ModelFiles) -> None:
    """Weights, permutation, rotary base and chat template are right together, or it couldn't."""
    decoder, tokenizer = NativeDecoder(model_files, "fp32"), Tokenizer.load(model_files.directory)
    question = {"role": "user", "content": "What is the capital of France?"}
    batch = PagedBatch(decoder)
    sequence, logits = in_one_piece(batch, np.concatenate(tokenizer.chat([question])).tolist())
    assert "Paris" in tokenizer.decode(batch.greedy(sequence, logits[-1], 12))
