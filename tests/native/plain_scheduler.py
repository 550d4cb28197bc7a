"""The scheduler written plainly: slow, obvious, and the judge of the C++ one.

Blocks are known by the tokens they hold rather than by hashes, queues are lists that are looked
through, and nothing is kept that can be worked out. Plans come as dicts of lists with the names
of `_core.Plan`.
"""

from __future__ import annotations

from typing import Any

from .plain_planner import PlainPlanner
from .plain_types import (
    CANCELLED,
    DUPLICATE_ID,
    EMPTY_PROMPT,
    LENGTH,
    NONE,
    QUEUE_REQUESTS,
    QUEUE_TOKENS,
    STOP,
    TOO_LONG,
    UNKNOWN_PARENT,
    PlainRequest,
    Row,
    Sizes,
)

__all__ = ["PlainScheduler", "Sizes"]

RIGHTS = (
    "limit block_size stops priority salt salt_from tenant adapter arrival deadline multi_step "
    "client prompt_len"
).split()  # what a fork inherits


class PlainScheduler(PlainPlanner):
    """Takes requests, and applies or undoes steps."""

    def add(
        self, id: int, tokens: list[int], *, max_tokens: int, admitted: bool = False, **more: Any
    ) -> int:
        sizes = self.sizes
        limit = len(tokens) + max_tokens
        if not tokens:
            return EMPTY_PROMPT
        if limit > sizes.max_model_len or limit - 1 > sizes.num_blocks * sizes.block_size:
            return TOO_LONG
        if id in self.requests:
            return DUPLICATE_ID
        if not admitted and (full := self.queue_is_full(len(tokens))):
            return full
        request = PlainRequest(
            id, list(tokens), limit, sizes.block_size, prompt_len=len(tokens), **more
        )
        self.requests[id] = request
        self.policy.enqueue(request)
        return NONE

    def queue_is_full(self, tokens: int) -> int:
        waiting = sum(len(r.tokens) for r in self.requests.values() if r.state == "waiting")
        if len(self.policy) >= self.sizes.max_waiting_requests:
            return QUEUE_REQUESTS
        return QUEUE_TOKENS if waiting + tokens > self.sizes.max_waiting_tokens else NONE

    def fork(self, parent_id: int, child_id: int, keep: int = -1, last_token: int = -1) -> int:
        parent = self.requests.get(parent_id)
        if parent is None or parent.state == "ended":
            return UNKNOWN_PARENT
        if child_id in self.requests:
            return DUPLICATE_ID
        if keep < 0:
            keep = len(parent.tokens)
        shares = (
            parent.state == "running"
            and not parent.prefilling
            and self.in_flight(parent) == 0
            and bool(self.free_slots)
        )
        child = PlainRequest(
            child_id,
            parent.tokens[:keep],
            **{name: getattr(parent, name) for name in RIGHTS},
        )
        if last_token >= 0:
            child.tokens[-1] = last_token
        self.requests[child_id] = child
        self.policy.enqueue(child)
        if not shares:
            return NONE
        self.policy.start(child)
        child.state = "running"
        child.slot = self.free_slots.pop()
        child.untold = True
        child.computed = min(parent.computed, keep - 1)
        child.replay = min(parent.replay, child.computed)
        child.blocks = parent.blocks[: self.blocks_for(child.computed)]
        for block in child.blocks:
            self.acquire(block)
        full_blocks = child.computed // self.sizes.block_size
        child.registered = min(parent.registered, full_blocks)
        child.shared_tail = child.computed % self.sizes.block_size > 0
        parent.shared_tail |= parent.computed // self.sizes.block_size < len(child.blocks)
        return NONE

    def renew(self, client: int, until: float) -> None:
        self.leases[client] = until

    def cancel(self, id: int) -> bool:
        request = self.requests.get(id)
        if request is None or request.state == "ended":
            return False
        self.late_ends.append((id, CANCELLED))
        self.end(request, self.late_slots)
        return True

    def propose(self, id: int, drafts: list[int]) -> bool:
        request = self.requests.get(id)
        if request is None or request.state == "ended" or self.in_flight(request) > 0:
            return False
        request.drafts = list(drafts)
        return True

    def commit(self, outcome: list[tuple[list[int], bool]]) -> list[tuple[int, list[int], int]]:
        """Apply (tokens, ends) of each sampling row of the oldest step."""
        step = self.steps[0]
        results = []
        ended = []
        given = iter(outcome)
        # Row by row: what a row gives up comes before anything that the next row gives up.
        for row in step.rows:
            request = row.request
            finish = 0
            if row.copied is not None:
                self.drop(row.copied)
            if row.sampled:
                tokens, ends = next(given)
                if request.state == "running" and request.epoch == row.epoch:
                    taken, finish = self.apply(row, tokens, ends)
                    if taken or finish:
                        results.append((request.id, taken, finish))
            if self.in_flight(request) > 1:
                continue  # a later step refers to it
            if request.state == "ended":
                ended.append(request)
                continue
            while len(request.blocks) > self.blocks_for(len(request.tokens)):
                self.drop(request.blocks.pop())
        self.steps.pop(0)
        for request in ended:
            self.retire(request, self.late_slots)
        return results

    def apply(self, row: Row, tokens: list[int], ends: bool) -> tuple[list[int], int]:
        request = row.request
        taken: list[int] = []
        finish = 0
        for token in tokens:
            request.tokens.append(token)
            taken.append(token)
            if token in request.stops:
                finish = STOP
            elif len(request.tokens) == request.limit:
                finish = LENGTH
            if finish:
                break
        if ends and len(taken) == len(tokens):
            finish = STOP
        last = len(request.tokens) - 1  # the only known token without K/V
        assumed = row.start + row.tokens + row.passes - 1
        if finish:
            request.computed = last
            request.state = "ended"
        elif last != assumed:
            request.computed += last - assumed
            if self.in_flight(request) > 1 and len(tokens) < row.passes:
                request.epoch += 1
                request.computed = last
        return taken, finish

    def abandon(self) -> None:
        """Undo the newest step."""
        step = self.steps.pop()
        self.index = {key: b for key, b in self.index.items() if b not in step.registered}
        self.late_slots[:0] = step.plan["ended_slots"]
        ended = []
        for row in reversed(step.rows):
            request = row.request
            for _ in range(row.added):
                self.drop(request.blocks.pop())
            if row.copied is not None:
                index = row.start // self.sizes.block_size
                self.drop(request.blocks[index])
                request.blocks[index] = row.copied
                request.shared_tail = request.stale_table = True
            request.untold |= row.announced
            if request.epoch == row.epoch:
                request.computed = row.start
                request.registered = row.registered_before
            if request.state == "ended":
                if self.in_flight(request) == 0:
                    ended.append(request)
            elif row.admitted:
                self.give_up_slot(request, self.late_slots)
                self.back_to_queue(request)
        for request in ended:
            self.retire(request, self.late_slots)
