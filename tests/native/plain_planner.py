"""How the plain scheduler chooses a step's work."""

from __future__ import annotations

import math

from .plain_store import PlainStore
from .plain_types import DEADLINE, LEASE, PlainRequest, Row, Step


class PlainPlanner(PlainStore):
    """Plans come as dicts of lists with the names of `_core.Plan`."""

    def plan(self, now: float) -> dict[str, list[int]]:
        names = (
            "slots context_lens sampled num_drafts passes token_ids positions slot_mapping "
            "started_slots started_ids copy_src copy_dst table_slots table_indices table_blocks"
        )
        plan: dict[str, list[int]] = {name: [] for name in names.split()}
        plan["query_start"] = [0]
        plan["ended_slots"], self.late_slots = self.late_slots, []
        ends, self.late_ends = self.late_ends, []
        step = Step(plan)

        for request in sorted(self.requests.values(), key=lambda request: request.id):
            if request.state != "ended" and now >= self.leases.get(request.client, math.inf):
                ends.append((request.id, LEASE))
                self.end(request, plan["ended_slots"])
        self.leases = {client: until for client, until in self.leases.items() if now < until}
        for request in sorted(self.requests.values(), key=lambda request: request.id):
            if request.state != "ended" and now >= request.deadline:
                ends.append((request.id, DEADLINE))
                self.end(request, plan["ended_slots"])

        queue = self.running()
        preempted = False
        for request in queue:
            if request.state != "running":
                continue  # gave way to one before it
            later = [r for r in queue if r.rank > request.rank and r.state == "running"]
            preempted |= self.place(step, request, later)
        for row in step.rows:
            self.register(row.request, step.registered)
        if not preempted:
            while self.free_slots and self.room(step) > 0:
                first = self.policy.front()
                if first is None or not self.start(step, first):
                    break
        plan["ended_ids"] = [id for id, _ in ends]
        plan["ended_reasons"] = [reason for _, reason in ends]
        if step.rows:
            self.steps.append(step)
        return plan

    def room(self, step: Step) -> int:
        return self.sizes.max_num_batched_tokens - len(step.plan["token_ids"])

    def chunk(self, wanted: int, room: int) -> int:
        if not self.sizes.enable_chunked_prefill:
            return wanted if wanted <= room else 0
        cap = self.sizes.long_prefill_token_threshold or wanted
        return max(min(wanted, room, cap), 0)

    def place(self, step: Step, request: PlainRequest, later: list[PlainRequest]) -> bool:
        """Give a running request its row; True when something was preempted for it."""
        mine = [row for s in self.steps for row in s.rows if row.request is request]
        current = [row for row in mine if row.epoch == request.epoch]
        pending = self.pending(request)
        end = len(request.tokens) + pending
        if any(row.drafts for row in current) or end >= request.limit:
            return False
        # One token is kept for each decoding request that comes later.
        room = self.room(step) - sum(not r.prefilling for r in later)
        tokens, drafts, passes = end - request.computed, 0, 1
        if request.prefilling:
            tokens = self.chunk(tokens, room)
            if tokens == 0:
                return False
        elif not request.drafts and request.multi_step:
            passes = min(self.sizes.num_scheduler_steps, request.limit - end)
        if pending == 0 and request.computed + tokens == end:
            drafts = max(0, min(len(request.drafts), room - tokens, request.limit - end - 1))

        size = self.sizes.block_size
        must_hold = request.computed + tokens
        added = 0
        preempted = False
        copied = None
        while len(request.blocks) * size < must_hold or self.must_copy(step, request):
            if self.free and self.must_copy(step, request):
                copied = self.copy_tail(step.plan, request)
                request.shared_tail = False
            elif self.free:
                self.grow(step.plan, request, self.take())
                added += 1
            elif (victim := self.victim(later)) is not None:
                self.preempt(step, victim)
                preempted = True
            elif self.steps:
                return preempted
            else:
                self.preempt(step, request)
                return True
        while len(request.blocks) * size < must_hold + drafts + passes - 1 and self.free:
            self.grow(step.plan, request, self.take())
            added += 1
        spare = len(request.blocks) * size - must_hold
        row = self.emit(step, request, tokens, min(drafts, spare), min(passes, spare + 1))
        row.added, row.copied, row.announced = added, copied, request.untold
        request.shared_tail = False
        if request.untold:
            step.plan["started_slots"].append(request.slot)
            step.plan["started_ids"].append(request.id)
        if request.untold or request.stale_table:
            for index, block in enumerate(request.blocks):
                self.tell(step.plan, request, index, block)
        request.untold = request.stale_table = False
        return preempted

    def must_copy(self, step: Step, request: PlainRequest) -> bool:
        if not request.shared_tail:
            return False
        block = request.blocks[request.computed // self.sizes.block_size]
        if block in self.index.values():
            return True
        held = sum(row.copied == block for s in [*self.steps, step] for row in s.rows)
        return self.owners[block] - held > 1

    def copy_tail(self, plan: dict[str, list[int]], request: PlainRequest) -> int:
        index = request.computed // self.sizes.block_size
        shared, copy = request.blocks[index], self.take()
        plan["copy_src"].append(shared)
        plan["copy_dst"].append(copy)
        request.blocks[index] = copy
        self.tell(plan, request, index, copy)
        return shared  # the row keeps the request's hold on it, to undo itself

    def victim(self, later: list[PlainRequest]) -> PlainRequest | None:
        idle = [r for r in later if r.state == "running" and self.in_flight(r) == 0]
        got_on = [r for r in idle if len(r.tokens) > r.replay]
        return (got_on or idle or [None])[-1]

    def preempt(self, step: Step, request: PlainRequest) -> None:
        self.register(request, [])
        self.give_up_slot(request, step.plan["ended_slots"])
        self.back_to_queue(request)

    def grow(self, plan: dict[str, list[int]], request: PlainRequest, block: int) -> None:
        self.tell(plan, request, len(request.blocks), block)
        request.blocks.append(block)

    def tell(self, plan: dict[str, list[int]], request: PlainRequest, at: int, block: int) -> None:
        plan["table_slots"].append(request.slot)
        plan["table_indices"].append(at)
        plan["table_blocks"].append(block)

    def hits(self, request: PlainRequest) -> list[int]:
        found: list[int] = []
        size = self.sizes.block_size
        if self.sizes.enable_prefix_caching:
            while (len(found) + 1) * size < len(request.tokens):  # one token is left to compute
                block = self.index.get(request.content((len(found) + 1) * size))
                if block is None:
                    break
                found.append(block)
        return found

    def start(self, step: Step, request: PlainRequest) -> bool:
        hits = self.hits(request)
        cached = len(hits) * self.sizes.block_size
        wanted = len(request.tokens) - cached
        tokens = self.chunk(wanted, self.room(step))
        if tokens == 0:
            return False
        most = self.sizes.max_partial_prefills
        if tokens < wanted and most and sum(r.prefilling for r in self.running()) >= most:
            return False
        new = self.blocks_for(len(request.tokens)) - len(hits)
        usable = len(self.free) - sum(self.owners[block] == 0 for block in hits)
        watermark = self.sizes.watermark_blocks if self.running() else 0
        if usable - new < watermark:
            return False
        self.policy.start(request)
        request.state = "running"
        request.slot = self.free_slots.pop()
        request.replay = len(request.tokens)
        step.plan["started_slots"].append(request.slot)
        step.plan["started_ids"].append(request.id)
        for block in hits:
            self.acquire(block)
        for block in hits:
            self.grow(step.plan, request, block)
        for _ in range(new):
            self.grow(step.plan, request, self.take())
        request.registered = len(hits)
        request.computed = cached
        drafts = 0
        if tokens == wanted:
            left = request.limit - len(request.tokens) - 1
            spare = len(request.blocks) * self.sizes.block_size - len(request.tokens)
            drafts = max(0, min(len(request.drafts), self.room(step) - tokens, left, spare))
        self.emit(step, request, tokens, drafts, 1).admitted = True
        self.register(request, step.registered)  # at once: the next to start may share the blocks
        return True

    def emit(self, step: Step, request: PlainRequest, tokens: int, drafts: int, passes: int) -> Row:
        start, plan, size = request.computed, step.plan, self.sizes.block_size
        sampled = start + tokens == len(request.tokens) + self.pending(request)
        known = request.tokens[start : start + tokens]
        placeholders = [-1] * (tokens - len(known))
        plan["token_ids"] += known + placeholders + request.drafts[:drafts]
        for position in range(start, start + tokens + drafts):
            plan["positions"].append(position)
            plan["slot_mapping"].append(request.blocks[position // size] * size + position % size)
        plan["slots"].append(request.slot)
        plan["context_lens"].append(start + tokens + drafts)
        plan["sampled"].append(int(sampled))
        plan["num_drafts"].append(drafts)
        plan["passes"].append(passes)
        plan["query_start"].append(len(plan["token_ids"]))
        before = request.registered
        row = Row(request, request.epoch, start, tokens, drafts, passes, sampled, before)
        step.rows.append(row)
        if sampled:
            request.drafts = []
        request.computed = start + tokens + (passes - 1 if sampled else 0)
        return row
