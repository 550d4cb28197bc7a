"""Runs plans in torch, on any device; the attention is torch's reference unless told otherwise."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..model.attention import BatchLayout, KVCache, make_attention
from ..model.decoder import Decoder
from ..sampling import apply_bitmask, sample
from .base import Executor, StepRows
from .batch import Batch

_I32 = NDArray[np.int32]


class TorchExecutor(Executor):
    """A decoder and its paged KV cache.

    Greedy rows on the CPU take the best legal token in C++ (`GrammarRows.masked_argmax`); on
    other devices masks travel as packed bits and are applied there.
    """

    native_attention = False

    def __init__(self, batch: Batch, decoder: Decoder, cache: KVCache) -> None:
        super().__init__(batch)
        if decoder.config.vocab_size < batch.vocab_size:
            raise ValueError(
                f"the model has {decoder.config.vocab_size} embeddings, "
                f"the tokenizer {batch.vocab_size} tokens"
            )
        self._decoder = decoder
        self._cache = cache
        self._device = cache.key.device
        self._on_cpu = self._device.type == "cpu"
        self._attention = make_attention(decoder.config, cache, native=self.native_attention)

    @torch.inference_mode()
    def forward(self, rows: StepRows) -> _I32:
        self._attention.begin(
            BatchLayout(
                rows.slot_mapping,
                rows.query_start,
                rows.context_lens,
                rows.slots,
                self.batch.block_tables,
            )
        )
        logits = self._decoder(
            self._tensor(rows.token_ids),
            self._tensor(rows.positions),
            self._attention,
            self._tensor(rows.last_tokens()),
        )
        return self._choose(logits, rows.sampling_slots())

    @torch.inference_mode()
    def copy_blocks(self, sources: _I32, targets: _I32) -> None:
        source = self._tensor(sources.astype(np.int64))
        target = self._tensor(targets.astype(np.int64))
        for part in (self._cache.key, self._cache.value):
            part[:, target] = part[:, source]

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self._on_cpu else tensor.to(self._device, non_blocking=True)

    def _choose(self, logits: Tensor, slots: _I32) -> _I32:
        tokens = np.empty(len(slots), dtype=np.int32)
        if not len(slots):
            return tokens
        drawn = self.batch.temperature[slots] > 0
        if not drawn.any():
            self._choose_best(logits, slots, tokens)
            return tokens
        if not drawn.all():
            best = np.empty(int((~drawn).sum()), dtype=np.int32)
            chosen = logits[self._tensor(np.flatnonzero(~drawn))]
            self._choose_best(chosen, np.ascontiguousarray(slots[~drawn]), best)
            tokens[~drawn] = best
        picked = logits[self._tensor(np.flatnonzero(drawn))]
        tokens[drawn] = self._draw(picked, np.ascontiguousarray(slots[drawn]))
        return tokens

    def _choose_best(self, logits: Tensor, slots: _I32, out: _I32) -> None:
        if self._on_cpu:
            logits = logits.contiguous()
            self.batch.grammar_rows.masked_argmax(logits.data_ptr(), logits.stride(0), slots, out)
        else:
            out[:] = self._masked(logits, slots).argmax(dim=-1).to("cpu", torch.int32).numpy()

    def _draw(self, logits: Tensor, slots: _I32) -> _I32:
        ids = sample(
            self._masked(logits, slots),
            self._tensor(self.batch.temperature[slots]),
            self._tensor(self.batch.top_p[slots]),
            self._tensor(self.batch.uniforms(slots)),
        )
        drawn: _I32 = ids.to("cpu", torch.int32).numpy()
        return drawn

    def _masked(self, logits: Tensor, slots: _I32) -> Tensor:
        words = (self.batch.vocab_size + 31) // 32
        bitmask = np.empty((len(slots), words), dtype=np.int32)
        self.batch.grammar_rows.fill_bitmask(slots, bitmask)
        # Embeddings beyond the tokenizer's vocabulary are never chosen.
        logits = logits[:, : self.batch.vocab_size]

        def best_of(rows: list[int], ordinary: _I32) -> list[int]:
            masked = apply_bitmask(logits[rows], self._tensor(ordinary))
            best: list[int] = masked.argmax(dim=-1).tolist()
            return best

        self.batch.note_cuts(slots, best_of)
        return apply_bitmask(logits, self._tensor(bitmask))
