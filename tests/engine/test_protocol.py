"""Messages survive the wire, and nothing else gets through."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.protocol import (
    PROTOCOL_VERSION,
    Cancel,
    EngineStats,
    GrammarTable,
    Hello,
    NeedGrammar,
    Output,
    Outputs,
    Ping,
    Pong,
    Rejected,
    Request,
    SamplingParams,
    Submit,
    Usage,
    Welcome,
    decode_client,
    decode_core,
    encode,
)
from pagemill.extraction.reason import Reason

_STATS = EngineStats(1, 2, 3, 4, 5, 0.5, {"steps": 7})
CLIENT_MESSAGES = [
    Hello("host:1"),
    Submit("hash", [Request("a", b"\1\0\0\0", SamplingParams(max_tokens=3), grammar="g")]),
    GrammarTable("g", b"table"),
    Cancel(["a", "b"]),
    Ping(9),
]
CORE_MESSAGES = [
    Welcome("model", "hash", 8192, 49152, 64, "epoch"),
    NeedGrammar(["g"]),
    Outputs([Output("a", (1, 2)), Output("a", (), "stop", usage=Usage(1, 2, 3))]),
    Pong(9, _STATS, "epoch"),
    Rejected("overloaded", "later", ["a"]),
]


@pytest.mark.parametrize("message", CLIENT_MESSAGES, ids=lambda m: type(m).__name__)
def test_client_messages_survive(message: Any) -> None:
    assert decode_client(encode(message)) == message


@pytest.mark.parametrize("message", CORE_MESSAGES, ids=lambda m: type(m).__name__)
def test_core_messages_survive(message: Any) -> None:
    assert decode_core(encode(message)) == message


def test_directions_do_not_mix() -> None:
    for message in CORE_MESSAGES:
        with pytest.raises(EngineError) as raised:
            decode_client(encode(message))
        assert raised.value.reason is EngineReason.MESSAGE_INVALID


def test_other_versions_are_named() -> None:
    frame = bytes([PROTOCOL_VERSION + 1]) + encode(Ping(1))[1:]
    with pytest.raises(EngineError, match="same pagemill version") as raised:
        decode_client(frame)
    assert raised.value.reason is EngineReason.VERSION_MISMATCH


def test_unknown_fields_are_refused() -> None:
    body = msgspec.msgpack.encode({"type": "Ping", "nonce": 1, "extra": True})
    with pytest.raises(EngineError) as raised:
        decode_client(bytes([PROTOCOL_VERSION]) + body)
    assert raised.value.reason is EngineReason.MESSAGE_INVALID


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda b: b"\x01" + b))
def test_garbage_is_an_engine_error(frame: bytes) -> None:
    for decode in (decode_client, decode_core):
        # Any other exception fails the test.
        with contextlib.suppress(EngineError):
            decode(frame)


@pytest.mark.parametrize("nested", [b"\x91" * 100_000, b"\x81\xa1a" * 100_000])
def test_nesting_is_an_engine_error(nested: bytes) -> None:
    # The tag comes last, so what stands before it has to be stepped over.
    frame = b"\x82\xa1a" + nested + b"\xc0" + msgspec.msgpack.encode("type") + b"\xa4Ping"
    for decode in (decode_client, decode_core):
        with pytest.raises(EngineError) as raised:
            decode(bytes([PROTOCOL_VERSION]) + frame)
        assert raised.value.reason is EngineReason.MESSAGE_INVALID


@given(st.sampled_from(CLIENT_MESSAGES), st.data())
def test_cut_frames_are_engine_errors(message: Any, data: st.DataObject) -> None:
    frame = encode(message)
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(EngineError):
        decode_client(frame[:cut])


def test_reasons_are_part_of_the_one_list() -> None:
    assert {reason.value for reason in EngineReason} <= {reason.value for reason in Reason}
