"""Runs plans in torch, on any device."""

from __future__ import annotations

import time
from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..model.attention import BatchLayout, KVCache, PagedAttention
from ..model.decoder import Decoder
from ..sampling import apply_bitmask, sample
from .base import Executor
from .batch import Batch
from .rows import Drafts, StepRows, Wanted
from .scores import TokenScores, best_that_goes_on, ranked

_I32 = NDArray[np.int32]


class ModelExecutor(Executor):
    """What executors of real models share: how tokens are chosen from logits.

    On the CPU the best legal token is found, or one is drawn, in C++ (`GrammarRows.masked_argmax`,
    `masked_sample`); on other devices masks travel as packed bits and are applied there.
    """

    def __init__(self, batch: Batch, model_vocab_size: int, device: torch.device) -> None:
        super().__init__(batch)
        if model_vocab_size < batch.vocab_size:
            raise ValueError(
                f"the model has {model_vocab_size} embeddings, "
                f"the tokenizer {batch.vocab_size} tokens"
            )
        self._device = device
        # Masks of at most so many ids want their logits alone; 0: all are computed.
        self.most_sparse = 0
        self._on_cpu = device.type == "cpu"

    @abstractmethod
    def logits(self, rows: StepRows, wanted: Wanted) -> Tensor:
        """Compute the rows, write their K/V, and return the wanted logits [lines, vocab].

        They are on the device. What isn't wanted of a sparse line may be anything.
        """

    @torch.inference_mode()
    def forward(self, rows: StepRows) -> _I32:
        slots, drafts = rows.sampling_slots(), rows.drafts()
        wanted = self._wanted(rows, slots, drafts)
        started = time.perf_counter()
        logits = self.logits(rows, wanted)
        chosen = self._choose(logits, slots, drafts, wanted)
        self.batch.step_cost.add(len(rows.token_ids), time.perf_counter() - started)
        scored = np.flatnonzero(self.batch.num_scores[slots])
        if len(scored):
            positions = drafts.starts[scored] + scored  # such a slot has no drafts
            self._score(logits, wanted.lines[positions], slots[scored], positions, chosen)
        return chosen

    def layout_of(self, rows: StepRows) -> BatchLayout:
        return BatchLayout(
            rows.slot_mapping,
            rows.query_start,
            rows.context_lens,
            rows.slots,
            self.batch.block_tables,
        )

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self._on_cpu else tensor.to(self._device, non_blocking=True)

    def _wanted(self, rows: StepRows, slots: _I32, drafts: Drafts) -> Wanted:
        """Which logits the step needs. Scores are told over the whole vocabulary."""
        places = rows.positions_to_choose()
        if not self._on_cpu or not len(slots):
            return Wanted.all(places)
        settled, lines, count, num_sparse, outputs = self.batch.grammar_rows.find_wanted(
            slots,
            drafts.starts,
            drafts.tokens,
            most=self.most_sparse,
            whole=(self.batch.num_scores[slots] > 0).view(np.uint8),
        )
        of_lines = np.empty(count, dtype=np.int32)
        of_lines[lines[lines >= 0]] = places[lines >= 0]
        return Wanted(settled, lines, of_lines, num_sparse, outputs)

    def _score(
        self,
        logits: Tensor,
        lines: NDArray[np.int64],
        slots: _I32,
        positions: NDArray[np.int64],
        chosen: _I32,
    ) -> None:
        """Fill `scores` of slots whose logits are `lines`; choose for those that are beams."""
        batch = self.batch
        bitmask = np.empty((len(slots), batch.grammar_rows.num_words), dtype=np.int32)
        batch.grammar_rows.fill_bitmask(np.ascontiguousarray(slots), bitmask)
        logprobs = torch.log_softmax(
            logits[self._tensor(lines)][:, : batch.vocab_size].double(), dim=-1
        )
        legal = apply_bitmask(logprobs, self._tensor(bitmask))
        most = min(int(batch.num_scores[slots].max()), batch.vocab_size)
        values, ids = (part.cpu().numpy() for part in legal.topk(most, dim=-1))
        for row, slot in enumerate(slots.tolist()):
            position = int(positions[row])
            order = ranked(ids[row], values[row])[: batch.num_scores[slot]]
            best = tuple(ids[row][order].tolist())
            if batch.is_beam[slot]:
                chosen[position] = best_that_goes_on(best, batch.stop_ids[slot])
            taken = float(logprobs[row, chosen[position]])
            self.scores[slot] = TokenScores(taken, best, tuple(values[row][order].tolist()))

    def _choose(self, logits: Tensor, slots: _I32, drafts: Drafts, wanted: Wanted) -> _I32:
        """One token a position; logits [lines, vocab]."""
        tokens = wanted.settled
        if not len(logits):
            return tokens
        drawn = self.batch.temperature[slots] > 0
        if not drawn.any():
            self._choose_best(logits, slots, drafts, wanted.lines, tokens)
            return tokens
        owners = drafts.owners()
        for rows, choose in ((~drawn, self._choose_best), (drawn, self._draw)):
            places = np.flatnonzero(rows[owners])
            if len(places):
                chosen = tokens[places]
                lines = np.ascontiguousarray(wanted.lines[places])
                part = np.ascontiguousarray(slots[rows])
                choose(logits, part, drafts.take(rows), lines, chosen)
                tokens[places] = chosen
        return tokens

    def _choose_best(
        self, logits: Tensor, slots: _I32, drafts: Drafts, lines: _I32, out: _I32
    ) -> None:
        if self._on_cpu:
            logits = logits.contiguous()
            self.batch.grammar_rows.masked_argmax(
                logits.data_ptr(),
                logits.stride(0),
                slots,
                out,
                drafts.starts,
                drafts.tokens,
                lines,
            )
        else:
            best = self._masked(logits[self._tensor(lines)], slots, drafts).argmax(dim=-1)
            out[:] = best.to("cpu", torch.int32).numpy()

    def _draw(self, logits: Tensor, slots: _I32, drafts: Drafts, lines: _I32, out: _I32) -> None:
        owners = slots[drafts.owners()]
        if self._on_cpu:
            logits = logits.contiguous()
            self.batch.grammar_rows.masked_sample(
                logits.data_ptr(),
                logits.stride(0),
                slots,
                out,
                drafts.starts,
                drafts.tokens,
                temperature=self.batch.temperature[owners],
                top_p=self.batch.top_p[owners],
                uniforms=self.batch.uniforms(owners, drafts.places()),
                lines=lines,
            )
            return
        ids = sample(
            self._masked(logits[self._tensor(lines)], slots, drafts),
            self._tensor(self.batch.temperature[owners]),
            self._tensor(self.batch.top_p[owners]),
            self._tensor(self.batch.uniforms(owners, drafts.places())),
        )
        out[:] = ids.to("cpu", torch.int32).numpy()

    def _masked(self, logits: Tensor, slots: _I32, drafts: Drafts) -> Tensor:
        words = (self.batch.vocab_size + 31) // 32
        bitmask = np.empty((len(logits), words), dtype=np.int32)
        self.batch.grammar_rows.fill_bitmask(slots, bitmask, drafts.starts, drafts.tokens)
        # Embeddings beyond the tokenizer's vocabulary are never chosen.
        logits = logits[:, : self.batch.vocab_size]
        first = np.flatnonzero(drafts.places() == 0)  # closing is for the first position alone

        def best_of(rows: list[int], ordinary: _I32) -> list[int]:
            places = first[rows].tolist()
            masked = apply_bitmask(logits[places], self._tensor(ordinary))
            best: list[int] = masked.argmax(dim=-1).tolist()
            return best

        self.batch.note_cuts(slots, best_of)
        return apply_bitmask(logits, self._tensor(bitmask))


class TorchExecutor(ModelExecutor):
    """A torch decoder and its paged KV cache, on any device."""

    def __init__(self, batch: Batch, decoder: Decoder, cache: KVCache) -> None:
        super().__init__(batch, decoder.config.vocab_size, cache.key.device)
        self._decoder = decoder
        self._cache = cache
        self._attention = PagedAttention(decoder.config, cache)

    def logits(self, rows: StepRows, wanted: Wanted) -> Tensor:
        self._attention.begin(self.layout_of(rows))
        logits: Tensor = self._decoder(
            self._tensor(rows.token_ids),
            self._tensor(rows.positions),
            self._attention,
            self._tensor(wanted.places),
        )
        return logits

    @torch.inference_mode()
    def copy_blocks(self, sources: _I32, targets: _I32) -> None:
        source = self._tensor(sources.astype(np.int64))
        target = self._tensor(targets.astype(np.int64))
        for part in (self._cache.key, self._cache.value):
            part[:, target] = part[:, source]
