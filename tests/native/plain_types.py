"""What the plain scheduler keeps: its sizes, its requests, its steps."""

from __future__ import annotations

import dataclasses
import math

STOP, LENGTH, CANCELLED, DEADLINE, LEASE = 1, 2, 3, 4, 5
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
