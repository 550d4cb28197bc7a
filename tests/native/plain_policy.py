"""The waiting queue's policies, written plainly: each keeps a list and looks through it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plain_types import PlainRequest, Sizes


class Keyed:
    """Waiting requests by (key, arrival)."""

    def __init__(self, key: Callable[[PlainRequest], float]) -> None:
        self.key = key
        self.queue: list[PlainRequest] = []
        self.arrivals = 0

    def enqueue(self, request: PlainRequest) -> None:
        request.rank = (self.key(request), self.arrivals)
        self.arrivals += 1
        self.queue.append(request)

    def requeue(self, request: PlainRequest) -> None:
        self.queue.append(request)

    def front(self) -> PlainRequest | None:
        return min(self.queue, key=lambda request: request.rank, default=None)

    def start(self, request: PlainRequest) -> None:
        self.queue.remove(request)

    def remove(self, request: PlainRequest) -> None:
        self.queue.remove(request)

    def ended(self, request: PlainRequest) -> None:
        pass

    def __len__(self) -> int:
        return len(self.queue)


class Prefix(Keyed):
    """Requests of one prefix stand at the place of the first of them, `group_size` at most."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(self.join)
        self.sizes = sizes
        self.tickets: dict[tuple[object, ...], list[int]] = {}  # prefix -> [opened, taken]

    def shared(self, request: PlainRequest) -> tuple[object, ...] | None:
        full = len(request.tokens) // self.sizes.block_size
        if full == 0 or not self.sizes.enable_prefix_caching:
            return None
        blocks = min(max(request.salt_from // self.sizes.block_size, 1), full)
        return request.content(blocks * self.sizes.block_size)

    def join(self, request: PlainRequest) -> float:
        request.group = self.shared(request)
        if request.group is None:
            request.ticket = self.arrivals
            return self.arrivals
        ticket = self.tickets.get(request.group)
        if ticket is None or ticket[1] == self.sizes.group_size:
            ticket = self.tickets[request.group] = [self.arrivals, 0]
        ticket[1] += 1
        request.ticket = ticket[0]
        return ticket[0]

    def close_if_empty(self, request: PlainRequest) -> None:
        ticket = self.tickets.get(request.group) if request.group is not None else None
        if ticket is None or ticket[0] != request.ticket:
            return
        members = [r for r in self.queue if r.group == request.group and r.ticket == ticket[0]]
        if not members:
            del self.tickets[request.group]

    def start(self, request: PlainRequest) -> None:
        super().start(request)
        self.close_if_empty(request)

    def remove(self, request: PlainRequest) -> None:
        super().remove(request)
        self.close_if_empty(request)


class Fair:
    """Deficit round robin over tenants."""

    def __init__(self, quantum: int) -> None:
        self.quantum = quantum
        self.round: list[int] = []  # tenants with waiting requests
        self.balance: dict[int, int] = {}
        self.queues: dict[int, list[PlainRequest]] = {}
        self.arrivals = 0
        self.starts = 0
        self.turn = 0  # the tenant whose turn it is

    def enqueue(self, request: PlainRequest) -> None:
        request.rank = (0, self.arrivals)
        self.arrivals += 1
        request.charged = False
        self.open(request).append(request)

    def requeue(self, request: PlainRequest) -> None:
        queue = self.open(request)
        back = sorted([request, *(r for r in queue if r.charged)], key=lambda r: r.rank)
        queue[:] = back + [r for r in queue if not r.charged]

    def open(self, request: PlainRequest) -> list[PlainRequest]:
        tenant = request.tenant
        if tenant not in self.queues:
            self.queues[tenant] = []
            self.balance[tenant] = 0
            self.round.append(tenant)
            if len(self.round) == 1:
                self.turn = tenant
        return self.queues[tenant]

    def pass_turn(self) -> None:
        at = self.round.index(self.turn)
        self.turn = self.round[(at + 1) % len(self.round)]
        self.balance[self.turn] += self.quantum

    def front(self) -> PlainRequest | None:
        if not self.round:
            return None
        while True:
            request = self.queues[self.turn][0]
            if request.charged or self.balance[self.turn] >= len(request.tokens):
                return request
            self.pass_turn()

    def start(self, request: PlainRequest) -> None:
        if not request.charged:
            self.balance[request.tenant] -= len(request.tokens)
            request.charged = True
            request.rank = (0, self.starts)
            self.starts += 1
        self.remove(request)

    def remove(self, request: PlainRequest) -> None:
        tenant = request.tenant
        self.queues[tenant].remove(request)
        if self.queues[tenant]:
            return
        if self.turn == tenant:
            self.pass_turn()
        self.round.remove(tenant)
        del self.queues[tenant], self.balance[tenant]

    def ended(self, request: PlainRequest) -> None:
        if request.tenant in self.balance:
            self.balance[request.tenant] -= len(request.tokens) - request.prompt_len

    def __len__(self) -> int:
        return sum(len(queue) for queue in self.queues.values())


def make_policy(sizes: Sizes) -> Keyed | Fair:
    def due(request: PlainRequest) -> float:
        if math.isinf(request.deadline):
            return request.arrival + sizes.ageing_s * 60
        return request.deadline

    if sizes.policy == "fair":
        return Fair(sizes.fair_quantum)
    if sizes.policy == "prefix":
        return Prefix(sizes)
    keys: dict[str, Callable[[PlainRequest], float]] = {
        "fcfs": lambda request: 0,
        "static": lambda request: request.priority,
        "priority": lambda request: request.priority * sizes.ageing_s + request.arrival,
        "deadline": due,
    }
    return Keyed(keys[sizes.policy])
