"""A model whose answers depend on every token that its paged cache holds.

The "K/V" of a token is the token itself, and the next token is a checksum of what the cache
yields for all positions before it, read through the block tables. A plan that shares a wrong
block, reuses one too early or computes a position too few changes the answers.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from pagemill import _core

VOCABULARY = 50
GARBAGE = 999_999


def next_token(tokens: Sequence[int], seed: int = 0) -> int:
    """`seed` tells samples of one prompt apart."""
    return zlib.crc32(np.array(tokens, dtype=np.int32).tobytes(), seed) % VOCABULARY


def alone(prompt: Sequence[int], max_tokens: int, stops: Sequence[int], seed: int = 0) -> list[int]:
    """The answer to a prompt, by the definition."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + max_tokens:
        tokens.append(next_token(tokens, seed))
        if tokens[-1] in stops:
            break
    return tokens[len(prompt) :]


class PagedModel:
    """Runs plans in the order in which they are handed over."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.cache = np.full(num_blocks * block_size, GARBAGE, dtype=np.int32)
        self.tables: dict[int, dict[int, int]] = {}
        self.sampled: dict[int, int] = {}  # the last token of each slot
        self.seeds: dict[int, int] = {}  # of requests other than 0
        self.owner: dict[int, int] = {}

    def apply_changes(self, plan: _core.Plan) -> None:
        for slot in plan.ended_slots.tolist():
            self.tables.pop(slot, None)
        for slot, id in zip(plan.started_slots.tolist(), plan.started_ids.tolist(), strict=True):
            self.tables[slot] = {}
            self.owner[slot] = id
        columns = (plan.table_slots, plan.table_indices, plan.table_blocks)
        for slot, index, block in zip(*(column.tolist() for column in columns), strict=True):
            self.tables[slot][index] = block
        cache = self.cache.reshape(-1, self.block_size)
        cache[plan.copy_dst] = cache[plan.copy_src]

    def fail(self, plan: _core.Plan) -> None:
        """A step that breaks off half-way: what it was to write is garbage."""
        self.apply_changes(plan)
        self.cache[plan.slot_mapping] = GARBAGE

    def run(self, plan: _core.Plan) -> list[list[int]]:
        """The tokens of each sampling row."""
        self.apply_changes(plan)
        slots, starts = plan.slots.tolist(), plan.query_start.tolist()
        tokens = plan.token_ids.copy()
        for row, slot in enumerate(slots):
            for at in range(starts[row], starts[row + 1]):
                if tokens[at] == -1:
                    tokens[at] = self.sampled[slot]
                assert self.place(slot, plan.positions[at]) == plan.slot_mapping[at]
        self.cache[plan.slot_mapping] = tokens  # the whole batch is written before any row reads

        outcome = []
        for row, slot in enumerate(slots):
            assert plan.context_lens[row] == plan.positions[starts[row + 1] - 1] + 1
            if not plan.sampled[row]:
                continue
            answer = self.verify(plan, row, tokens[starts[row] : starts[row + 1]].tolist())
            self.sampled[slot] = answer[-1]
            outcome.append(answer)
        return outcome

    def verify(self, plan: _core.Plan, row: int, queries: list[int]) -> list[int]:
        slot, num_drafts = int(plan.slots[row]), int(plan.num_drafts[row])
        length = int(plan.context_lens[row])
        drafts = queries[len(queries) - num_drafts :]
        answer = [self.sample(slot, length - num_drafts)]
        while len(answer) <= num_drafts and answer[-1] == drafts[len(answer) - 1]:
            answer.append(self.sample(slot, length - num_drafts + len(answer)))
        for _ in range(int(plan.passes[row]) - 1):
            self.cache[self.place(slot, length)] = answer[-1]
            length += 1
            answer.append(self.sample(slot, length))
        return answer

    def place(self, slot: int, position: int) -> int:
        block = self.tables[slot][int(position) // self.block_size]
        return block * self.block_size + int(position) % self.block_size

    def held(self, slot: int, length: int) -> list[int]:
        """The tokens that the cache yields for a slot's first positions."""
        return [int(self.cache[self.place(slot, position)]) for position in range(length)]

    def sample(self, slot: int, length: int) -> int:
        return next_token(self.held(slot, length), self.seeds.get(self.owner[slot], 0))
