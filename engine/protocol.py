"""The typed messages between engine clients and the engine core.

A message is one ZeroMQ frame: a version byte, then MessagePack of one of the tagged structs
below. Clients use DEALER sockets, the core a ROUTER. Nothing else is ever decoded, and frames
over MAX_MESSAGE_BYTES are dropped by the socket.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .errors import EngineError, EngineReason

PROTOCOL_VERSION = 4
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_PAGE_BYTES = 1024 * 1024

FinishReason = Literal["stop", "length", "cancelled", "deadline", "error"]


class SamplingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How tokens are chosen; temperature 0 is greedy. `seed` fixes a request's own generator.

    `n` samples are drawn; sample i draws as a request with the seed `seed` + i would. `logprobs`
    >= 0 asks for the log probability of each token, and of so many of the best ones besides. With
    `beam_width` > 0 the `n` best of a beam search are given instead of samples, when all are found;
    a text's score is the sum of its log probabilities by its number of tokens, the end counted, to
    the power of `length_penalty`.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    logprobs: int = -1
    beam_width: int = 0
    length_penalty: float = 1.0

    @property
    def record_tokens(self) -> int:
        """Tokens that a record may take; a beam's end takes one more."""
        return self.max_tokens - (1 if self.beam_width else 0)

    @property
    def num_scores(self) -> int:
        """Candidates at each position whose log probabilities are wanted."""
        if self.beam_width:
            return 2 * self.beam_width  # so many go on even when as many end
        return max(1, self.logprobs) if self.logprobs >= 0 else 0


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One prompt to complete.

    `token_ids` holds the prompt as little-endian int32. `grammar` names a table by its hash; the
    core asks for tables that it doesn't hold (NeedGrammar). `salt` keeps tenants' cache blocks
    apart from token `salt_from` on, so that a shared schema prefix serves all of them.
    `timeout_s` counts from arrival at the core; 0 means none. `tag` groups statistics (a schema).
    `page` is UTF-8 text that the completion is likely to copy from, as the prompt shows it: drafts
    are taken from it, answers don't depend on it. Only its first MAX_PAGE_BYTES count. `verbatim`
    is the UTF-8 text that verbatim strings of the grammar are spans of, empty for none.
    """

    request_id: str
    token_ids: bytes
    sampling: SamplingParams = SamplingParams()
    grammar: str | None = None
    salt: str = ""
    salt_from: int = 0
    priority: int = 0
    timeout_s: float = 0.0
    tenant: str = ""
    tag: str = ""
    page: bytes = b""
    verbatim: bytes = b""


# From client to core.


class Hello(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """First message of a client; answered with Welcome."""

    client: str


class Submit(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A burst of requests, tokenised with the tokenizer whose hash is named."""

    tokenizer_hash: str
    requests: list[Request]


class GrammarTable(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A compiled grammar: the byte automaton's table, and the SHA-256 of it in hexadecimal."""

    hash: str
    table: bytes


class Cancel(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    request_ids: list[str]


class Ping(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Answered with Pong by the step loop itself, so an answer means that steps go round."""

    nonce: int


# From core to client.


class Welcome(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """What a client needs to know of the engine; `epoch` is new with every run of a core."""

    model: str
    tokenizer_hash: str
    max_model_len: int
    vocab_size: int
    max_num_seqs: int
    epoch: str = ""


class NeedGrammar(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    hashes: list[str]


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens of a finished request; forced and drafted count within completion.

    Both were drafted and confirmed: forced ones because the grammar left no other text, drafted
    ones because the page says so.
    `closed_early`: the record is whole, and shorter than the model meant it, since max_tokens
    would not have sufficed. `loops_closed`: strings and numbers left because they repeated.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    forced_tokens: int = 0
    drafted_tokens: int = 0
    closed_early: bool = False
    loops_closed: int = 0


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The log probability of a token that was given, and the best (token, log probability).

    They are the model's over the whole vocabulary, before grammar, temperature and top-p; only
    tokens that the grammar allows are listed.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New tokens of one sample of a request; its last one carries `finish` and `usage`.

    `open_samples` counts, with `finish`, the request's samples that still go on.

    `finish == "error"` comes with `reason` (an EngineReason) and `message`. Times are seconds
    since arrival at the core: `first_token_s`, `finished_s`. `logprobs` are of `token_ids`, where
    they were asked for; `score` is that of a beam search.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    finish: FinishReason | None = None
    reason: str = ""
    message: str = ""
    usage: Usage | None = None
    first_token_s: float = 0.0
    finished_s: float = 0.0
    sample: int = 0
    open_samples: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    score: float = 0.0

    @property
    def ends_request(self) -> bool:
        """Whether this is the last Output of its request."""
        return self.finish is not None and self.open_samples == 0


class Outputs(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    outputs: list[Output]


class EngineStats(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A moment of the engine; `counters` only grow (scheduler and executor counters by name)."""

    running: int
    waiting: int
    free_blocks: int
    total_blocks: int
    credit: int  # requests that the engine would take right now without queueing them for long
    last_step_age_s: float
    counters: dict[str, int]
    # Prompt tokens (looked up, found) in the prefix cache by `Request.tag`.
    prefix_cache: dict[str, tuple[int, int]] = {}


class Pong(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    nonce: int
    stats: EngineStats
    epoch: str = ""


class Rejected(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A message that could not be served as a whole (version, tokenizer, malformed)."""

    reason: str
    message: str
    request_ids: list[str] = []


ClientMessage = Hello | Submit | GrammarTable | Cancel | Ping
CoreMessage = Welcome | NeedGrammar | Outputs | Pong | Rejected

_encoder = msgspec.msgpack.Encoder()
_client_decoder = msgspec.msgpack.Decoder(ClientMessage)
_core_decoder = msgspec.msgpack.Decoder(CoreMessage)


def encode(message: ClientMessage | CoreMessage) -> bytes:
    """Return the frame of a message."""
    return bytes([PROTOCOL_VERSION]) + _encoder.encode(message)


def _body(frame: bytes) -> memoryview:
    if not frame:
        raise EngineError(EngineReason.MESSAGE_INVALID, "empty frame")
    if frame[0] != PROTOCOL_VERSION:
        raise EngineError(
            EngineReason.VERSION_MISMATCH,
            f"protocol version {frame[0]}, this side speaks {PROTOCOL_VERSION}: "
            "run the same pagemill version on both sides",
        )
    return memoryview(frame)[1:]


def decode_client(frame: bytes) -> ClientMessage:
    """Decode what a client sent; EngineError when it isn't a message of this version."""
    try:
        return _client_decoder.decode(_body(frame))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise EngineError(EngineReason.MESSAGE_INVALID, str(error)) from None


def decode_core(frame: bytes) -> CoreMessage:
    """Decode what the core sent; EngineError when it isn't a message of this version."""
    try:
        return _core_decoder.decode(_body(frame))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise EngineError(EngineReason.MESSAGE_INVALID, str(error)) from None
