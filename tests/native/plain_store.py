"""Blocks and requests of the plain scheduler; nothing is kept that can be worked out."""

from __future__ import annotations

from .plain_policy import make_policy
from .plain_types import PlainRequest, Sizes, Step


class PlainStore:
    """Blocks are known by the tokens they hold rather than by hashes, queues are lists."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.free = list(range(sizes.num_blocks))  # oldest first
        self.owners = [0] * sizes.num_blocks
        self.index: dict[tuple[object, ...], int] = {}
        self.policy = make_policy(sizes)
        self.requests: dict[int, PlainRequest] = {}
        self.free_slots = list(reversed(range(sizes.max_num_seqs)))
        self.steps: list[Step] = []  # outstanding, oldest first
        self.leases: dict[int, float] = {}
        self.late_slots: list[int] = []
        self.late_ends: list[tuple[int, int]] = []

    def take(self) -> int:
        block = self.free.pop(0)
        self.owners[block] = 1
        self.forget(block)
        return block

    def forget(self, block: int) -> None:
        self.index = {key: held for key, held in self.index.items() if held != block}

    def drop(self, block: int) -> None:
        self.owners[block] -= 1
        if self.owners[block] == 0:
            # What can't be looked up is handed out first, the rest last.
            self.free.insert(len(self.free) if block in self.index.values() else 0, block)

    def acquire(self, block: int) -> None:
        if self.owners[block] == 0:
            self.free.remove(block)
        self.owners[block] += 1

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.sizes.block_size)

    def register(self, request: PlainRequest, log: list[int]) -> None:
        if not self.sizes.enable_prefix_caching:
            return
        size = self.sizes.block_size
        verified = min(request.computed, len(request.tokens))
        while (request.registered + 1) * size <= verified:
            block = request.blocks[request.registered]
            request.registered += 1
            key = request.content(request.registered * size)
            if block not in self.index.values() and key not in self.index:
                self.index[key] = block
                log.append(block)

    def running(self) -> list[PlainRequest]:
        found = [r for r in self.requests.values() if r.state == "running"]
        return sorted(found, key=lambda request: request.rank)

    def in_flight(self, request: PlainRequest) -> int:
        return sum(row.request is request for step in self.steps for row in step.rows)

    def pending(self, request: PlainRequest) -> int:
        """Tokens that steps in flight will sample."""
        rows = [row for step in self.steps for row in step.rows if row.request is request]
        return sum(row.passes for row in rows if row.sampled and row.epoch == request.epoch)

    def end(self, request: PlainRequest, slots: list[int]) -> None:
        if request.state == "waiting":
            self.policy.remove(request)
            del self.requests[request.id]
            return
        request.state = "ended"
        self.retire(request, slots)

    def retire(self, request: PlainRequest, slots: list[int]) -> None:
        """Let an ended request go, once no step refers to it."""
        if self.in_flight(request) > 0:
            return
        self.register(request, [])
        self.release(request)
        self.give_up_slot(request, slots)
        self.policy.ended(request)
        del self.requests[request.id]

    def release(self, request: PlainRequest) -> None:
        for block in reversed(request.blocks):
            self.drop(block)
        request.blocks = []
        request.registered = 0

    def give_up_slot(self, request: PlainRequest, slots: list[int]) -> None:
        slots.append(request.slot)
        self.free_slots.append(request.slot)
        request.slot = -1

    def back_to_queue(self, request: PlainRequest) -> None:
        self.release(request)
        request.state = "waiting"
        request.computed = 0
        request.drafts = []
        request.shared_tail = request.untold = request.stale_table = False
        request.epoch += 1
        self.policy.requeue(request)
