"""The C++ core as Python sees it. Arrays are numpy, C-contiguous; times are seconds.

No torch behind this module, and no Python types inside the core outside `csrc/bindings/`.
"""

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

_I32 = NDArray[np.int32]
_I64 = NDArray[np.int64]
_U8 = NDArray[np.uint8]

# --- scheduler (csrc/scheduler.h) -----------------------------------------------------------

class SchedulerConfig:
    """Sizes and switches of a scheduler; validated when the scheduler is made (ValueError)."""

    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    long_prefill_token_threshold: int  # most prompt tokens of one request a step; 0: no cap
    max_partial_prefills: int  # most requests in the midst of their prompt; 0: any number
    policy: str  # fcfs | static | priority | deadline | prefix | fair
    ageing_s: float  # priority: seconds of waiting that outweigh one level
    fair_quantum: int  # fair: tokens that a tenant may start per round
    group_size: int  # prefix: requests of one prefix served before the others' turn
    watermark_blocks: int
    max_waiting_requests: int
    max_waiting_tokens: int
    num_scheduler_steps: int  # decode passes a plan
    max_outstanding_plans: int  # 2: a plan is made while the one before it runs

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int = 16,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 512,
        max_model_len: int = 8192,
        enable_prefix_caching: bool = True,
        enable_chunked_prefill: bool = True,
        long_prefill_token_threshold: int = 0,
        max_partial_prefills: int = 0,
        policy: str = "fcfs",
        ageing_s: float = 10.0,
        fair_quantum: int = 2048,
        group_size: int = 256,
        watermark_blocks: int = 0,
        max_waiting_requests: int = 4096,
        max_waiting_tokens: int = 4_000_000,
        num_scheduler_steps: int = 1,
        max_outstanding_plans: int = 1,
    ) -> None: ...

class Plan:
    """What one step computes, as flat arrays; one row is one request's share of the step.

    The arrays are views into buffers of the scheduler: valid until this plan is committed or
    abandoned. A plan with `num_rows == 0` may still carry `ended_*`; it isn't outstanding, and
    committing or abandoning it changes nothing.
    """

    num_rows: int
    num_tokens: int
    # Per row.
    slots: _I32  # [rows] index of the request in the executor's persistent batch
    query_start: _I32  # [rows + 1] first token of each row in the flat arrays
    context_lens: _I32  # [rows] tokens whose K/V exist once this step has run
    sampled: _U8  # [rows] 1: sample after the row's last token; 0: a prefill chunk before the last
    num_drafts: _I32  # [rows] how many of the row's last tokens are unverified drafts
    passes: _I32  # [rows] decode passes to run: each after the first computes the token before it
    # Per token, flat.
    token_ids: _I32  # [tokens] -1: the token that the plan before this one samples for the slot
    positions: _I32  # [tokens]
    slot_mapping: _I32  # [tokens] where its K/V goes: block * block_size + offset
    # What changed since the last plan: apply before reading the rows, in this order: ended,
    # started, table. After an abandoned plan the next one tells again what that one told.
    started_slots: _I32  # slots that now belong to a new or resumed request ...
    started_ids: _I64  # ... and its request id
    ended_slots: _I32  # slots whose request left the batch (ended or preempted)
    table_slots: _I32  # additions to the block tables: table[slot, index] = block
    table_indices: _I32
    table_blocks: _I32
    copy_src: _I32  # blocks to copy before anything is written: cache[dst] = cache[src]
    copy_dst: _I32
    # Requests that ended without running to their end (cancelled, past their deadline). Final:
    # told once, even if the plan is abandoned.
    ended_ids: _I64
    ended_reasons: _I32  # Finish codes

class Finish:
    """Why a request ended; `engine.errors.FINISH_CODES` names them."""

    STOP: int  # a stop token, or the grammar's only end
    LENGTH: int  # max_tokens or max_model_len
    CANCELLED: int
    DEADLINE: int
    LEASE: int  # its client's lease ended

class Refusal:
    """Why `Scheduler.add` refused; 0 means accepted."""

    NONE: int
    TOO_LONG: int  # prompt + max_tokens exceed max_model_len, or could never fit the cache
    QUEUE_REQUESTS: int  # max_waiting_requests reached
    QUEUE_TOKENS: int  # max_waiting_tokens reached
    DUPLICATE_ID: int
    EMPTY_PROMPT: int
    UNKNOWN_PARENT: int  # of a fork: unknown or ended

class Commit:
    """What a step brought, per sampling row in plan order; views, valid until the next commit."""

    request_ids: _I64  # [rows that got tokens or ended]
    token_start: _I32  # [n + 1] into tokens
    tokens: _I32  # accepted tokens, flat; a stop token is the last of its row
    finish: _I32  # [n] 0 = goes on, else a Finish code

class Scheduler:
    """The unified token-budget scheduler. One thread at a time; deterministic for equal input."""

    def __init__(self, config: SchedulerConfig) -> None: ...
    def add(
        self,
        request_id: int,
        token_ids: _I32,
        *,
        max_tokens: int,
        stop_token_ids: Sequence[int] = (),
        priority: int = 0,
        salt: int = 0,
        salt_from: int = 0,
        tenant: int = 0,
        tag: int = 0,
        adapter: int = 0,
        client: int = 0,
        arrival: float = 0.0,
        deadline: float = ...,
        multi_step: bool = True,
        admitted: bool = False,
    ) -> int:
        """Queue a request; returns a `Refusal` code.

        `salt` (a 64-bit hash of the tenant's salt) enters the block hashes from the first block
        that holds a token at or after `salt_from`, so that blocks of the shared prefix serve all.
        `tag` groups prefix-cache statistics (a schema); `priority`: lower goes first. What is
        `admitted` is part of a request that was, and queues whatever the limits of the queue.
        `adapter` keeps the K/V of adapters apart; `client` names a lease (see `renew`).
        `multi_step`: may run several passes a plan. Identities may be any 64-bit number.
        `deadline` is a time on the clock that `plan()` is given. ValueError: max_tokens below 1,
        a negative token id or `salt_from`, a time that is no number.
        """
    def cancel(self, request_id: int) -> bool:
        """End a request; False when it is unknown or has ended.

        It shows up in the next plan's `ended_ids`, and in no commit any more. Its slot and
        blocks stay its own until no outstanding plan refers to them.
        """
    def fork(self, parent_id: int, child_id: int, *, keep: int = -1, last_token: int = -1) -> int:
        """Add a request that goes on from a place on another's way; returns a `Refusal` code.

        It has the parent's first `keep` tokens (-1: all; `last_token` >= 0 in place of the last of
        them), limit and rights. If the parent is decoding, no outstanding plan has a row of it and
        a slot is free, the child shares its blocks at once and shows up in `started_*` with its
        first row; a block that isn't its alone is copied before it writes there. Else the child
        queues, whatever the limits of the queue, and shares through the cache. ValueError: the
        parent hasn't `keep` tokens.
        """
    def renew(self, client: int, until: float) -> None:
        """Let a client's requests live until then, on the clock that `plan()` is given.

        The first plan at or after `until` ends what is left of them (Finish.LEASE). A client that
        never took a lease has none to lose.
        """
    def propose(self, request_ids: _I64, starts: _I32, tokens: _I32) -> int:
        """Guesses at the next tokens of requests, for the next plan that samples for them.

        `tokens[starts[i]:starts[i + 1]]` are for `request_ids[i]`. Returns how many requests
        took theirs: those that no outstanding plan has a row of. The plan cuts drafts to the
        budget, the free blocks and the request's limit. A prompt's last chunk takes them along.
        """
    def plan(self, now: float) -> Plan:
        """Choose the next step's work.

        RuntimeError when `max_outstanding_plans` plans are outstanding.
        """
    def commit(self, plan: Plan, tokens: _I32, counts: _I32, ends: _U8) -> Commit:
        """Apply the outcome of a step.

        `counts[i]` tokens were accepted for the i-th row with `sampled == 1` (drafts that held
        plus one sampled token), flat in `tokens`; `ends[i]` is 1 when the row's grammar has no
        other continuation than the end. A count of 0 leaves a row as it was: it is sampled again
        by the next plan. Plans are committed in the order they were made. ValueError (and nothing
        changes) when the arrays don't fit the plan, RuntimeError for another plan.
        """
    def abandon(self, plan: Plan) -> None:
        """Undo a plan whose step failed: requests, blocks and queue are as before it.

        What it evicted from the prefix index stays evicted and what it preempted stays preempted
        (first in line), since the step may have overwritten their blocks. The newest plan goes
        first.
        """
    def max_outstanding_plans(self) -> int: ...
    def num_waiting(self) -> int: ...
    def num_running(self) -> int: ...
    def num_free_blocks(self) -> int: ...
    def blocks_of(self, request_id: int) -> list[int]:
        """The blocks that a request holds, first to last."""
    def free_list(self) -> list[int]:
        """The free blocks in the order in which they will be handed out."""
    def stats(self) -> dict[str, int]:
        """Counters since the start: preemptions, prefix_queries, prefix_hits (tokens), ..."""
    def prefix_stats(self) -> dict[int, tuple[int, int]]:
        """Prompt tokens (looked up, found cached) by tag; tags after the 1024th share 2**64 - 1."""
    def check_integrity(self) -> str:
        """Empty when every structure is sound, else what is wrong."""

class BlockPool:
    """Fixed-size blocks with owner counts and a least-recently-used free list; all O(1)."""

    def __init__(self, num_blocks: int) -> None: ...
    def num_free(self) -> int: ...
    def count(self, block: int) -> int: ...
    def allocate(self) -> int: ...
    def acquire(self, block: int) -> None: ...
    def release(self, block: int) -> None: ...
    def discard(self, block: int) -> None: ...
    def free_list(self) -> list[int]: ...
    def check_integrity(self) -> str: ...

def time_alloc_free(num_blocks: int, iterations: int) -> float:
    """Nanoseconds to allocate and release one block, in a C++ loop."""

class PrefixIndex:
    """Blocks by chained hash (key, check), tokens compared on a hit."""

    def __init__(self, num_blocks: int, block_size: int) -> None: ...
    def find(self, hash: tuple[int, int], tokens: _I32) -> int:
        """The block, or -1."""
    def insert(self, block: int, hash: tuple[int, int], tokens: _I32) -> bool: ...
    def erase(self, block: int) -> None: ...
    def size(self) -> int: ...
    def check_integrity(self) -> str: ...

# --- constrained decoding (csrc/byte_dfa.h, token_trie.h, mask_pool.h, grammar_rows.h) ----------

class RowState:
    """The decoding state of a constrained row: a value, copied to look ahead and to roll back."""

    def __init__(self) -> None: ...
    state: int  # of the byte automaton
    counters: list[int]  # lengths and counts beside the automaton
    @property
    def in_span(self) -> bool: ...  # inside a verbatim string
    overlay: int  # bytes known before decoding; -1 none
    def copy(self) -> RowState: ...

class ByteDfa:
    """A dense automaton over bytes, read from a table made by `pagemill.schemas`.

    `next`, `forced_run` and `distance` take the counters to allow every edge; `step` and
    `accepts` check them.
    """

    @staticmethod
    def from_bytes(table: bytes) -> ByteDfa:
        """Read and bounds-check a table; ValueError says what is wrong with it."""
    @property
    def num_states(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def has_counters(self) -> bool: ...
    @property
    def has_verbatim(self) -> bool: ...
    def next(self, state: int, byte: int) -> int:
        """The following state, or -1."""
    def step(self, row: RowState, byte: int) -> bool:
        """Move `row` by one byte; False, and `row` unchanged, when it is not legal there."""
    def accepts(self, text: bytes) -> bool:
        """True when `text` is a whole word of the language."""
    def is_final(self, state: int) -> bool: ...
    def has_edges(self, state: int) -> bool: ...
    def forced_run(self, state: int) -> bytes:
        """The bytes that follow with no alternative, up to a choice or a final state."""
    def distance(self, state: int) -> int:
        """Bytes of the shortest way to a final state."""

class PageSpans:
    """The spans of a page's text (UTF-8) that a verbatim string may hold (docs/verbatim.md)."""

    def __init__(self, text: bytes) -> None: ...
    def admits(self, written: bytes, most: int = 2000) -> bool:
        """Whether a verbatim string of at most `most` characters may stand as `written` in JSON."""
    @property
    def farthest(self) -> int: ...  # bytes between an open span and the nearest place to end

def suffix_array(text: bytes) -> _I32:
    """The places of a text in the order of the suffixes that begin there; linear time."""

class TokenTrie:
    """All ordinary tokens of a vocabulary as byte strings; built once per tokenizer.

    An empty byte string marks an id that is never legal (special and padding ids).
    """

    def __init__(self, tokens: Sequence[bytes], eos_ids: Sequence[int]) -> None: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def num_words(self) -> int: ...  # int32 words of a mask row

class Grammar:
    """An automaton with its pool of distinct masks for one vocabulary; masks are made on demand.

    An `int` state stands for that state with all counters at 0.
    """

    def __init__(self, dfa: ByteDfa, trie: TokenTrie, encoder: BpeEncoder | None = None) -> None:
        """With an encoder, text that the automaton forces has the tokenizer's own split alone."""
    def start(self, page: PageSpans | None = None) -> RowState: ...
    @property
    def has_verbatim(self) -> bool: ...  # some string may only be a span of the page
    def mask(self, state: int | RowState, *, any_split: bool = False) -> _I32:
        """The packed mask row of a state: bit i % 32 of word i // 32, low end first.

        `any_split`: without regard to the encoder, every token whose bytes are legal.
        """
    def time_mask(self, row: RowState, times: int) -> float:
        """Nanoseconds of so many look-ups in a C++ loop; the first may have to make the mask."""
    def only_token(self, state: int) -> int:
        """The token that forced text goes on with, where the encoder leaves but one; else -1."""
    @overload
    def advance(self, state: int, token: int) -> int:
        """The state after a token, or -1."""
    @overload
    def advance(self, state: RowState, token: int) -> RowState | None:
        """A new row state after a token, or None."""
    @property
    def num_masks(self) -> int: ...
    @property
    def min_tokens(self) -> int:
        """Tokens of the shortest text, at least 1; 0 when it isn't known (too many situations).

        The first call makes the table of distances: some milliseconds. Releases the GIL.
        """
    def tokens_to_end(self, row: RowState) -> int:
        """Tokens from a row to the nearest end; 2**30 when there is no way, or none is known."""

class GrammarRows:
    """The decoding state of each slot of the persistent batch: one fixed struct a row."""

    def __init__(self, num_slots: int, vocab_size: int) -> None: ...
    @property
    def num_words(self) -> int: ...
    def attach(self, slot: int, grammar: Grammar, page: PageSpans | None = None) -> None:
        """Start a slot at the grammar's start state."""
    def detach(self, slot: int) -> None: ...
    def is_attached(self, slot: int) -> bool: ...
    def state(self, slot: int) -> RowState:
        """A copy of a slot's state; ValueError when it has no grammar."""
    def set_state(self, slot: int, state: RowState) -> None: ...
    def set_closing(self, slot: int, *, tokens_left: int, loops: bool) -> None:
        """Close the record within `tokens_left` more tokens (-1: no bound); leave loops.

        Masks narrow to tokens that still lead to an end in time; `advance` counts. Follows
        `attach`, and `set_state` doesn't turn it back. ValueError without a grammar.
        """
    def is_narrowed(self, slot: int) -> bool:
        """Whether the slot may take less now than its grammar allows; False is certain."""
    def note_best(self, slot: int, token: int) -> None:
        """Say what a narrowed slot would take by its grammar alone: a mark if that can't be.

        Only for those who choose from `fill_bitmask`; `masked_argmax` does it itself.
        """
    def take_marks(self, slots: _I32, out: _U8) -> None:
        """Hand out and clear marks: bit 0, the bound forbade the best token; bit 1, a loop."""
    def fill_bitmask(
        self,
        slots: _I32,
        out: _I32,
        starts: _I32 = ...,
        drafts: _I32 = ...,
        ordinary: bool = False,
    ) -> None:
        """Write [n, num_words] packed masks; rows without a grammar get all ids below vocab_size.

        With drafts (`drafts[starts[i]:starts[i + 1]]` are those of `slots[i]`) a slot with d of
        them has d + 1 masks: before the first, and after each that is accepted; closing narrows
        the first alone. `ordinary`: by the grammars alone. Releases the GIL.
        """
    def masked_argmax(
        self,
        logits: int,
        stride: int,
        slots: _I32,
        out: _I32,
        starts: _I32 = ...,
        drafts: _I32 = ...,
        lines: _I32 = ...,
    ) -> None:
        """The best legal token at each position; `logits` points to float32 [n, stride].

        Positions as in `fill_bitmask`. Rows without a grammar take the plain argmax; among equals
        the lowest id wins; -1 where no id is legal. With `lines`, those of `find_wanted`, they name
        each position's row of logits; where that is -1, `out` stays. Releases the GIL.
        """
    def masked_sample(
        self,
        logits: int,
        stride: int,
        slots: _I32,
        out: _I32,
        starts: _I32,
        drafts: _I32,
        *,
        temperature: NDArray[np.float32],
        top_p: NDArray[np.float32],
        uniforms: NDArray[np.float64],
        lines: _I32 = ...,
    ) -> None:
        """As `masked_argmax`, but each position's token is drawn from its legal ones.

        temperature (above 0), top_p (up to 1) and uniforms (in [0, 1)): one a position. The same
        draws as `engine.sampling.sample`, but for sums that round to the other side.
        """
    def find_wanted(
        self, slots: _I32, starts: _I32 = ..., drafts: _I32 = ..., *, most: int, whole: _U8 = ...
    ) -> tuple[_I32, _I32, int, int, _I32]:
        """Which logits the positions need: settled, lines, num_lines, num_sparse, outputs.

        settled: the token of each position whose mask leaves but one, else -1. lines: the row of
        logits of the others, else -1. Of the last `num_sparse` of the rows, whose masks have at
        most `most` ids (0 to 256; 0: none are sparse), only the logits of the ids in `outputs`
        (ascending) will be read. The first positions of slots with `whole` get a whole row, and so
        does what closing narrows. Releases the GIL.
        """
    def accept(self, slots: _I32, starts: _I32, drafts: _I32, chosen: _I32, counts: _I32) -> None:
        """Write how many of the ids `chosen` at a slot's positions stand, one count a slot.

        Each does up to the first that isn't the draft, that leaves only the end, or after which
        closing narrows the mask.
        """
    def advance(self, slots: _I32, tokens: _I32, ends: _U8) -> None:
        """Move each row by its token; `ends[i]` becomes 1 when only the end can follow.

        A slot may stand there several times (accepted drafts). A token that is the
        end-of-sequence leaves the state. An illegal token raises ValueError and moves nothing.
        """
    def count_legal(self, slot: int, tokens: _I32) -> int:
        """How many of `tokens` are legal one after another; the slot's state stays."""

# --- schema compiler (csrc/expression.h, automaton.h) ----------------------------------------

class Ambiguous(Exception):
    """One byte would both count and not count, or count for two bounds."""

class TooManyStates(Exception):
    """An automaton has more states than it may."""

class Expressions:
    """Regular expressions over bytes as nodes, named by integers, and their automata.

    ValueError for a node that isn't there and for bounds that contradict each other. Counter
    operations are (counter, kind, limit) as in `schemas.lowering.emit`.
    """

    def __init__(self, max_states: int) -> None:
        """`max_states` bounds each automaton on the way."""
    def literal(self, text: bytes) -> int: ...
    def characters(self, ranges: Sequence[tuple[int, int]]) -> int:
        """One code point out of inclusive ranges, in UTF-8."""
    def concat(self, parts: Sequence[int]) -> int: ...
    def either(self, options: Sequence[int]) -> int:
        """The union; of no options, nothing."""
    def repeat(self, node: int, least: int, most: int) -> int:
        """`most` of -1: without limit."""
    def counted(self, node: int, counter: int, kind: int, limit: int) -> int:
        """The node, its first byte under a counter operation; not for one that may be empty."""
    def members(
        self,
        members: Sequence[tuple[int, bool]],
        rest: int = -1,
        least: int = 0,
        most: int = -1,
    ) -> int:
        """Members in order with commas between, those not required perhaps left out.

        Any number of `rest` (-1: none) may follow; `least` to `most` (-1: any number) in all,
        `rest` being one towards `least`.
        """
    def automaton(
        self, num_states: int, edges: Sequence[tuple[int, int, int, int]], finals: Sequence[int]
    ) -> int:
        """An automaton by its edges (from, lowest byte, highest byte, to), state 0 its start.

        A state's edges are in ascending order and disjoint.
        """
    def intersect(self, a: int, b: int) -> int:
        """Words of both; Ambiguous where their counter operations differ, TooManyStates."""
    def subtract(self, a: int, b: int) -> int:
        """Words of `a` that are none of `b`; as `intersect`."""
    def bounded(
        self, body: int, end: int, *, tick: int, least: int, most: int, counter: int
    ) -> int:
        """Words of `body` with `least` to `most` (-1: any) characters, then `end`.

        A character begins with a byte under the operation (`tick`, 1, 0). `counter` counts them
        where that leaves no dead end; -1: states do.
        """
    def is_empty(self, node: int) -> bool: ...
    def table(self, node: int) -> tuple[bytes, int]:
        """The table of the smallest automaton (schemas/table.py) and its number of states."""

def minimal_table(
    next: _I32,
    edge_ops: _I32,
    final: NDArray[np.bool_],
    start: int,
    ops: Sequence[tuple[int, int, int]],
) -> tuple[bytes, int]:
    """The same for an automaton [states, 256]; -1: no edge; 0: no operation, else 1 + its index."""

# --- drafts (csrc/bpe.h, page_index.h, draft.h) ----------------------------------------------

class BpeEncoder:
    """Byte-level BPE, equal to the tokenizer whose merges it is given."""

    def __init__(
        self,
        *,
        byte_ids: _I32,
        merges: _I32,
        class_starts: _I32,
        classes: _U8,
        split_digits: bool,
    ) -> None:
        """`byte_ids` [256], -1 for bytes without a token.

        `merges` [n, 3] are (left, right, merged) by rank.

        Code points from `class_starts[i]` up to the next start are of `classes[i]`: 0 other,
        1 letter, 2 number, 3 white space. `split_digits` sets each number apart.
        """
    def encode(self, text: bytes) -> _I32: ...
    def encode_with_starts(self, text: bytes) -> tuple[_I32, _I32]:
        """The ids, and of each how many characters of the text (UTF-8) begin before it."""

class TextIndex:
    """The places of a text that grows, by what stands before them; ValueError beyond 1 MiB."""

    def __init__(self, text: bytes = b"") -> None: ...
    def append(self, more: bytes) -> None: ...
    def find_suffix(self, context: bytes, near: int = -1, stop: int = 1 << 30) -> tuple[int, int]:
        """(place after it, length) of the longest suffix of `context` that ends before `stop`.

        (-1, 0) when less than three bytes match; the place nearest to `near` among equals.
        """

class Drafter:
    """Guesses at the next tokens of constrained slots: what is forced, and copies.

    Copies are of the prompt, of the record so far, and of earlier records of the grammar.
    """

    def __init__(
        self,
        rows: GrammarRows,
        encoder: BpeEncoder,
        *,
        most_tokens: int,
        forced: bool,
        page: bool,
    ) -> None: ...
    def start(self, slot: int, prompt: _I32, page: bytes, output: _I32) -> None:
        """A slot's request begins, or goes on after the tokens `output`; call after `attach`.

        `page` is the part of the prompt's text that values stand in, as it is there.
        """
    def end(self, slot: int) -> None:
        """The request ends; call before `detach`, which takes its grammar."""
    def first(self, grammar: Grammar) -> _I32:
        """The tokens that a grammar's texts begin with, for a request that has no slot yet."""
    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """By kind of guess: drafted tokens that were looked at, and those that held."""
    def advance(
        self, slots: _I32, counts: _I32, tokens: _I32, num_drafts: _I32
    ) -> tuple[_I32, _I32]:
        """Take what a step brought: `counts[i]` tokens for `slots[i]`, flat in `tokens`.

        `num_drafts[i]` of the slot's latest draft were verified. Returns how many of the
        accepted ones were forced and how many copied, per slot.
        """
    def propose(self, slots: _I32, *, fixed_tokens: float) -> tuple[_I32, _I32]:
        """(starts, tokens): drafts from the states of `rows`, as `Scheduler.propose` takes them.

        A step of n tokens is taken to cost as much as fixed_tokens + n of them; the surest drafts
        are taken that raise the number of tokens to expect in that time.
        """

# --- CPU kernels (csrc/cpu/) -----------------------------------------------------------------

def set_num_threads(n: int) -> None:
    """Threads of the kernels' pool, the calling one included."""

def instruction_sets() -> list[str]:
    """The kernels' instruction sets on this processor, slowest first: "portable", "avx2", "avx512",
    "amx". Each includes those before it."""

def instruction_set() -> str:
    """The one in use; the fastest unless another was chosen."""

def use_instruction_set(name: str) -> None:
    """Choose one for tests and comparisons; ValueError when it isn't there."""

def measure_peak(what: str, seconds: float) -> float:
    """Billions a second over all threads: operations in "fp32", "bf16" or "int16", bytes
    in "read".

    The most that the processor does (csrc/cpu/peak.h). Releases the GIL.
    """

class PackedMatrix:
    """A linear layer's weights, packed once for the kernels; immutable."""

    def __init__(self, weight: int, outputs: int, inputs: int, kind: str) -> None:
        """Read float32 [outputs, inputs] at `weight`; kind "fp32", "bf16" or "int8".

        int8: one scale an output, a whole factor (1 to 31) a group of 32 inputs; activations are
        rounded to 12 bits for each token, and sums are exact. Where the processor multiplies
        bfloat16, activations are rounded to that instead: for bf16 with AVX-512, for int8 with
        tiles and more than 4 rows.
        """
    outputs: int
    inputs: int
    num_bytes: int
    def unpack(self, out: int) -> None:
        """Write the weights as they were rounded, float32 [outputs, inputs]. Releases the GIL."""

    def multiply(
        self, input: int, num_rows: int, out: int, bias: int = 0, accumulate: bool = False
    ) -> None:
        """out (+)= input @ weight.T + bias, float32 and contiguous. Releases the GIL."""

    def multiply_gated(
        self, next: PackedMatrix, input: int, num_rows: int, out: int, bias: int = 0
    ) -> bool:
        """out = next times silu(gate) * up, gate and up being the halves of this product.

        False, and nothing done, where no kernel does it at once. Releases the GIL.
        """

def rms_norm(x: int, weight: int, eps: float, num_rows: int, size: int, out: int) -> None:
    """out = x / rms(x) * weight for float32 rows. Releases the GIL."""

def silu_mul(gate_up: int, num_rows: int, size: int, out: int) -> None:
    """out [rows, size] = silu(gate) * up, from [rows, 2 * size]. Releases the GIL."""

def hadamard(heads: int, num_heads: int, head_dim: int) -> None:
    """The Walsh-Hadamard transform of float32 heads in place: of each run of 2^k numbers, 2^k
    being the largest power of two that divides head_dim. Orthogonal. Releases the GIL."""

def rotate(
    rows: int, stride: int, cos: int, sin: int, num_rows: int, num_heads: int, head_dim: int
) -> None:
    """Turn the first heads of each row in place; cos, sin [rows, head_dim / 2].

    Rows are `stride` numbers apart. Releases the GIL.
    """

def paged_attention(
    query: int,
    query_stride: int,
    key_cache: int,
    value_cache: int,
    out: int,
    block_tables: _I32,
    slots: _I32,
    query_start: _I32,
    context_lens: _I32,
    num_blocks: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
    scale: float,
) -> None:
    """Causal attention of all rows over the paged cache, float32, raw pointers.

    query, out: [tokens, num_heads, head_dim], the query's tokens `query_stride` numbers apart;
    caches: [num_blocks, block_size, num_kv_heads, head_dim]; block_tables: [max slots, max
    blocks]. The row's last query token stands at position context_lens - 1. ValueError when a
    length, slot or block id is out of range. Releases the GIL.
    """

class KvCache:
    """The paged KV cache of all layers, float32 or rounded to 8 bits (csrc/cpu/kv_cache.h)."""

    def __init__(
        self,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        kind: str,
    ) -> None:
        """kind "fp32", or "int8": block_size and head_dim are multiples of 16 then (ValueError)."""
    @staticmethod
    def bytes_per_block(
        num_layers: int, block_size: int, num_kv_heads: int, head_dim: int, kind: str
    ) -> int: ...
    @staticmethod
    def serves(kind: str, block_size: int, head_dim: int) -> bool: ...
    num_blocks: int
    kind: str
    def write(self, layer: int, slot_mapping: _I32, keys: int, values: int) -> None:
        """Write float32 K/V, each [tokens, num_kv_heads, head_dim], to their places."""
    def copy_blocks(self, sources: _I32, targets: _I32) -> None:
        """Copy whole blocks in all layers; ValueError for one that isn't there."""

def quantized_attention(
    cache: KvCache,
    layer: int,
    query: int,
    out: int,
    block_tables: _I32,
    slots: _I32,
    query_start: _I32,
    context_lens: _I32,
    num_heads: int,
    scale: float,
    share_prefixes: bool = True,
) -> int:
    """paged_attention over an int8 cache; query, out [tokens, num_heads, head_dim], contiguous.

    Returns the positions read, summed over KV heads. Releases the GIL.
    """

class CpuDecoder:
    """A decoder of the Llama family; one call computes a step (csrc/cpu/decoder.h)."""

    def __init__(
        self,
        *,
        num_layers: int,
        hidden_size: int,
        inner_size: int,
        vocab_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rms_norm_eps: float,
        kind: str,
    ) -> None:
        """kind: of the weights, as PackedMatrix has it; int8 leaves the head and the most
        sensitive products in bfloat16."""
    def set(self, name: str, values: int, rows: int, columns: int) -> None:
        """Take a float32 parameter by its name; ValueError for another name or shape."""
    def tie_head(self) -> None:
        """Let the head be the embedding, which must have been set (ValueError)."""
    def set_rotary(self, cos: int, sin: int, num_positions: int) -> None:
        """Take float32 tables, each [num_positions, head_dim / 2]."""
    def missing(self) -> list[str]: ...
    num_bytes: int
    def share_prefixes(self, on: bool) -> None:
        """Whether rows that share leading blocks of an int8 cache read them together."""
    def forward(
        self,
        cache: KvCache,
        token_ids: _I32,
        positions: _I32,
        slot_mapping: _I32,
        block_tables: _I32,
        slots: _I32,
        query_start: _I32,
        context_lens: _I32,
        chosen: _I32,
        logits: int,
        num_sparse: int = 0,
        outputs: _I32 = ...,
    ) -> None:
        """Compute a step; write float32 logits [len(chosen), vocab_size].

        Of the last `num_sparse` chosen tokens only the logits of the ids in `outputs` are
        computed, the same to the last bit; their others mean nothing. ValueError, before anything
        is written, when an index is out of its range. Releases the GIL.
        """

class PageCost:
    """What an HTML parser would have to do for a page, told by its tags alone.

    `open_elements` are summed over all tags; `open_elements_foreign` if only void elements never
    stay open, as inside of <svg> and <math>; `reopened` counts formatting elements that blocks
    may open again. `max_attributes` are those of one element, `attribute_pairs` the squares of
    their numbers, summed over elements with over 128 bytes of attributes. `is_overlapping`: tags
    within tags had to be read over and over; the two figures before are those up to there.
    """

    open_elements: int
    open_elements_foreign: int
    reopened: int
    max_attributes: int
    attribute_pairs: int
    is_overlapping: bool

def page_cost(html: bytes) -> PageCost:
    """The cost of a page in UTF-8, in one pass. Releases the GIL."""

class PageTextOutcome:
    """Why there is no text: over `max_nodes`, over `max_seconds` of the thread's processor time, or
    markup that can't be told apart, whose tree is to be walked instead.
    """

    TOO_MANY_NODES: PageTextOutcome
    TOO_SLOW: PageTextOutcome
    UNSURE: PageTextOutcome

def page_text(
    markup: str, source: bytes, *, max_nodes: int, max_seconds: float, menus: bool
) -> (
    tuple[str, list[int], list[int], list[int], list[str], list[tuple[int, str]]] | PageTextOutcome
):
    """The fields of `extraction.page.lines.PageText`, in one pass (csrc/page_text.h).

    `markup` is an element as the parser serializes it, `source` the page in UTF-8 as it was parsed.
    Releases the GIL.
    """
