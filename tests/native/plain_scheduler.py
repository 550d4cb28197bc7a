"""The scheduler written plainly: slow, obvious, and the judge of the C++ one.

Blocks are known by the tokens they hold rather than by hashes, queues are lists that are looked
through, and nothing is kept that can be worked out. Plans come as dicts of lists with the names
of `_core.Plan`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from .plain_policy import make_policy

STOP, LENGTH, CANCELLED, DEADLINE = 1, 2, 3, 4
NONE, TOO_LONG, QUEUE_REQUESTS, QUEUE_TOKENS, DUPLICATE_ID, EMPTY_PROMPT, UNKNOWN_PARENT = range(7)


@dataclasses.dataclass
class Sizes:
    """The fields of `_core.SchedulerConfig`."""

    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    max_model_len: int = 8192
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    max_partial_prefills: int = 0
    policy: str = "fcfs"
    ageing_s: float = 10.0
    fair_quantum: int = 2048
    group_size: int = 256
    watermark_blocks: int = 0
    max_waiting_requests: int = 4096
    max_waiting_tokens: int = 4_000_000
    num_scheduler_steps: int = 1
    max_outstanding_plans: int = 1


@dataclasses.dataclass(eq=False)
class PlainRequest:
    id: int
    tokens: list[int]
    limit: int
    block_size: int
    stops: tuple[int, ...] = ()
    priority: int = 0
    salt: int = 0
    salt_from: int = 0
    tenant: int = 0
    adapter: int = 0
    arrival: float = 0.0
    deadline: float = math.inf
    multi_step: bool = True
    client: int = 0
    prompt_len: int = 0
    state: str = "waiting"  # waiting | running | ended
    slot: int = -1
    blocks: list[int] = dataclasses.field(default_factory=list)
    computed: int = 0
    registered: int = 0
    replay: int = 0  # tokens it had when it got its slot
    drafts: list[int] = dataclasses.field(default_factory=list)
    epoch: int = 0
    shared_tail: bool = False  # the block written next may have another owner
    untold: bool = False  # a fork whose slot and table wait to be told
    stale_table: bool = False
    rank: tuple[float, int] = (0, 0)
    charged: bool = False
    group: tuple[object, ...] | None = None
    ticket: int = -1

    @property
    def prefilling(self) -> bool:
        return self.state == "running" and self.computed < self.replay

    def content(self, end: int) -> tuple[object, ...]:
        """What decides the K/V of the tokens before `end`, a block's end."""
        # The salt counts from the first block that holds a token at or after `salt_from`.
        salt = (self.salt, self.salt_from // self.block_size) if self.salt_from < end else None
        return (self.adapter, salt if self.salt else None, *self.tokens[:end])


RIGHTS = (
    "limit block_size stops priority salt salt_from tenant adapter arrival deadline multi_step "
    "client prompt_len"
).split()  # what a fork inherits


@dataclasses.dataclass
class Row:
    request: PlainRequest
    epoch: int
    start: int
    tokens: int
    drafts: int
    passes: int
    sampled: bool
    registered_before: int
    added: int = 0
    admitted: bool = False
    copied: int | None = None
    announced: bool = False


@dataclasses.dataclass
class Step:
    plan: dict[str, list[int]]
    rows: list[Row] = dataclasses.field(default_factory=list)
    registered: list[int] = dataclasses.field(default_factory=list)


class PlainScheduler:
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

    # --- blocks -----------------------------------------------------------------------------

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

    # --- requests ---------------------------------------------------------------------------

    def running(self) -> list[PlainRequest]:
        found = [r for r in self.requests.values() if r.state == "running"]
        return sorted(found, key=lambda request: request.rank)

    def in_flight(self, request: PlainRequest) -> int:
        return sum(row.request is request for step in self.steps for row in step.rows)

    def pending(self, request: PlainRequest) -> int:
        """Tokens that steps in flight will sample."""
        rows = [row for step in self.steps for row in step.rows if row.request is request]
        return sum(row.passes for row in rows if row.sampled and row.epoch == request.epoch)

    def add(self, id: int, tokens: list[int], *, max_tokens: int, **more: Any) -> int:
        sizes = self.sizes
        limit = len(tokens) + max_tokens
        if not tokens:
            return EMPTY_PROMPT
        if limit > sizes.max_model_len or limit - 1 > sizes.num_blocks * sizes.block_size:
            return TOO_LONG
        if id in self.requests:
            return DUPLICATE_ID
        if full := self.queue_is_full(len(tokens)):
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

    def fork(self, parent_id: int, child_id: int, last_token: int = -1) -> int:
        parent = self.requests.get(parent_id)
        if parent is None or parent.state == "ended":
            return UNKNOWN_PARENT
        if child_id in self.requests:
            return DUPLICATE_ID
        shares = (
            parent.state == "running"
            and not parent.prefilling
            and self.in_flight(parent) == 0
            and bool(self.free_slots)
        )
        if not shares and (full := self.queue_is_full(len(parent.tokens))):
            return full
        child = PlainRequest(
            child_id,
            list(parent.tokens),
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
        child.computed = parent.computed
        child.replay = parent.replay
        child.blocks = parent.blocks[: self.blocks_for(parent.computed)]
        for block in child.blocks:
            self.acquire(block)
        full_blocks = parent.computed // self.sizes.block_size
        child.registered = min(parent.registered, full_blocks)
        if parent.computed % self.sizes.block_size:
            parent.shared_tail = child.shared_tail = True
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

    def propose(self, id: int, drafts: list[int]) -> bool:
        request = self.requests.get(id)
        if request is None or request.state != "running" or self.in_flight(request) > 0:
            return False
        request.drafts = list(drafts)
        return True

    # --- plan -------------------------------------------------------------------------------

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
                ends.append((request.id, CANCELLED))
                self.end(request, plan["ended_slots"])
        self.leases = {client: until for client, until in self.leases.items() if now < until}
        waiting = [r for r in self.requests.values() if r.state == "waiting"]
        for request in sorted(waiting, key=lambda request: request.id):
            if now >= request.deadline:
                ends.append((request.id, DEADLINE))
                self.end(request, plan["ended_slots"])

        queue = self.running()
        preempted = False
        for request in queue:
            if request.state != "running":
                continue  # gave way to one before it
            if now >= request.deadline:
                ends.append((request.id, DEADLINE))
                self.end(request, plan["ended_slots"])
                continue
            later = [r for r in queue if r.rank > request.rank and r.state == "running"]
            preempted |= self.place(step, request, later)
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
        else:
            if pending == 0:
                drafts = max(0, min(len(request.drafts), room - 1, request.limit - end - 1))
            if not request.drafts and request.multi_step:
                passes = min(self.sizes.num_scheduler_steps, request.limit - end)

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
        self.emit(step, request, tokens, 0, 1).admitted = True
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
        self.register(request, step.registered)
        return row

    # --- commit and abandon -----------------------------------------------------------------

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
