"""The core without its transport: admission, grammars, cancellation, deadlines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.protocol import (
    Cancel,
    GrammarTable,
    Hello,
    NeedGrammar,
    Ping,
    Pong,
    Rejected,
    Request,
    SamplingParams,
    Submit,
    Welcome,
)

Make = Callable[..., Any]

AHEAD = [
    {},
    {"num_scheduler_steps": 4},
    {"async_scheduling": True, "speculation": "off"},
    {"async_scheduling": True, "speculation": "off", "num_scheduler_steps": 3},
]
ahead = pytest.mark.parametrize("settings", AHEAD, ids=str)


def submit(*requests: Request) -> Submit:
    return Submit("bytes-1", list(requests))


def test_a_request_runs_to_its_end(make_core: Make, request_of: Make) -> None:
    core = make_core()
    core.handle(submit(request_of("a", max_tokens=5, ignore_eos=True)))
    core.run()
    assert len(core.tokens("a")) == 5
    last = core.last("a")
    assert last.finish == "length"
    assert last.usage.prompt_tokens == 6
    assert last.usage.completion_tokens == 5
    assert 0 < last.first_token_s <= last.finished_s


def test_stop_tokens_are_counted_but_not_handed_out(make_core: Make, request_of: Make) -> None:
    free = make_core()
    free.handle(submit(request_of("a", max_tokens=9, ignore_eos=True)))
    free.run()
    stop = free.tokens("a")[4]
    core = make_core()
    core.handle(submit(request_of("a", max_tokens=9, ignore_eos=True, stop_token_ids=(stop,))))
    core.run()
    first = free.tokens("a").index(stop)
    assert core.tokens("a") == free.tokens("a")[:first]
    assert core.last("a").finish == "stop"
    assert core.last("a").usage.completion_tokens == first + 1


@pytest.mark.parametrize(
    ("request_id", "changes", "reason"),
    [
        ("empty", {"token_ids": b""}, EngineReason.PROMPT_EMPTY),
        ("odd", {"token_ids": b"\1\0\0"}, EngineReason.MESSAGE_INVALID),
        ("id-high", {"token_ids": np.array([257], "<i4").tobytes()}, EngineReason.MESSAGE_INVALID),
        ("id-low", {"token_ids": np.array([-1], "<i4").tobytes()}, EngineReason.MESSAGE_INVALID),
        ("long", {"token_ids": np.zeros(1100, "<i4").tobytes()}, EngineReason.PROMPT_TOO_LONG),
        ("budget", {"sampling": SamplingParams(max_tokens=1024)}, EngineReason.PROMPT_TOO_LONG),
        ("none", {"sampling": SamplingParams(max_tokens=0)}, EngineReason.MESSAGE_INVALID),
        ("hot", {"sampling": SamplingParams(temperature=-1.0)}, EngineReason.MESSAGE_INVALID),
        ("nan", {"sampling": SamplingParams(temperature=float("nan"))}, "message_invalid"),
        ("top-p", {"sampling": SamplingParams(top_p=0.0)}, EngineReason.MESSAGE_INVALID),
        ("seed", {"sampling": SamplingParams(seed=-1)}, EngineReason.MESSAGE_INVALID),
        ("stop", {"sampling": SamplingParams(stop_token_ids=(999,))}, "message_invalid"),
        ("salt", {"salt_from": 99}, EngineReason.MESSAGE_INVALID),
        ("time", {"timeout_s": float("inf")}, EngineReason.MESSAGE_INVALID),
        ("priority", {"priority": 1 << 40}, EngineReason.MESSAGE_INVALID),
    ],
)
def test_bad_requests_cost_only_themselves(
    make_core: Make, request_of: Make, request_id: str, changes: dict[str, Any], reason: str
) -> None:
    core = make_core()
    fields = {"token_ids": np.arange(1, 6, dtype="<i4").tobytes()} | changes
    core.handle(submit(Request(request_id, **fields), request_of("good", max_tokens=3)))
    core.run()
    assert core.last(request_id).finish == "error"
    assert core.last(request_id).reason == reason
    assert core.last(request_id).message
    assert core.last("good").finish in ("length", "stop")


def test_an_id_in_use_is_refused(make_core: Make, request_of: Make) -> None:
    core = make_core()
    core.handle(submit(request_of("a", max_tokens=5), request_of("a", max_tokens=5)))
    assert core.outputs[b"client", "a"][0].reason == EngineReason.MESSAGE_INVALID
    core.handle(submit(request_of("a", max_tokens=5)), client=b"another")
    core.run()
    assert core.last("a", b"another").finish != "error"


def test_a_wrong_tokenizer_is_rejected(make_core: Make, request_of: Make) -> None:
    core = make_core()
    core.handle(Submit("another", [request_of("a")]))
    [(client, rejected)] = core.others
    assert client == b"client"
    assert isinstance(rejected, Rejected)
    assert rejected.reason == EngineReason.TOKENIZER_MISMATCH
    assert rejected.request_ids == ["a"]
    assert not core.core.busy


def test_the_queue_is_bounded(make_core: Make, request_of: Make) -> None:
    core = make_core(max_waiting_requests=3, max_num_seqs=2)
    core.handle(submit(*(request_of(f"r{i}", max_tokens=4) for i in range(8))))
    refused = [i for i in range(8) if (b"client", f"r{i}") in core.outputs]
    assert refused == [3, 4, 5, 6, 7]
    assert {core.last(f"r{i}").reason for i in refused} == {EngineReason.OVERLOADED}
    core.run()
    assert all(core.last(f"r{i}").finish in ("length", "stop") for i in range(3))
    assert core.core.stats().counters["requests_refused_overloaded"] == 5


def test_greetings_and_stats(make_core: Make, request_of: Make) -> None:
    core = make_core(max_num_seqs=4)
    core.handle(Hello("me"))
    core.handle(submit(request_of("a", max_tokens=8, ignore_eos=True)))
    core.step()
    core.handle(Ping(5))
    (_, welcome), (_, pong) = core.others
    assert isinstance(welcome, Welcome)
    assert isinstance(pong, Pong)
    assert (pong.nonce, pong.epoch) == (5, welcome.epoch)
    assert (pong.stats.running, pong.stats.waiting, pong.stats.credit) == (1, 0, 5)
    assert pong.stats.free_blocks < pong.stats.total_blocks
    core.run()
    stats = core.core.stats()
    assert stats.free_blocks == stats.total_blocks
    assert stats.counters["generation_tokens"] == 8
    assert stats.counters["prompt_tokens"] == 6
    assert stats.counters["requests_finished_length"] == 1


# --- grammars -----------------------------------------------------------------------------------


def test_a_grammar_is_asked_for_once_and_kept(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes]
) -> None:
    name, table = grammar
    core = make_core()
    core.handle(
        submit(*(request_of(f"r{i}", f"p{i}", grammar=name, max_tokens=40) for i in range(3)))
    )
    assert core.others == [(b"client", NeedGrammar([name]))]
    assert not core.core.busy
    assert core.core.stats().waiting == 3
    core.handle(GrammarTable(name, table))
    core.run()
    for i in range(3):
        record = json.loads(bytes(core.tokens(f"r{i}")))
        assert record["kind"] in ("a", "bc")
        assert core.last(f"r{i}").finish == "stop"
    core.handle(submit(request_of("later", grammar=name, max_tokens=40)))
    assert len(core.others) == 1
    core.run()
    assert core.last("later").finish == "stop"


@pytest.mark.parametrize("damage", ["garbage", "other", "flipped"])
def test_a_bad_table_ends_its_requests_only(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes], damage: str
) -> None:
    name, table = grammar
    flipped = bytearray(table)
    flipped[len(table) // 2] ^= 0xFF
    sent = {"garbage": b"x" * 99, "other": b"", "flipped": bytes(flipped)}[damage]
    core = make_core()
    if damage == "garbage":  # an honest hash, an unsound table
        name = hashlib.sha256(sent).hexdigest()
    core.handle(submit(request_of("bad", grammar=name), request_of("good", max_tokens=3)))
    core.handle(submit(request_of("patient", grammar=name, max_tokens=40)), client=b"another")
    core.handle(GrammarTable(name, sent))
    core.run()
    assert core.last("bad").reason == EngineReason.GRAMMAR_INVALID
    assert core.last("good").finish != "error"
    if damage != "garbage":
        # Another client's requests wait for a sound one.
        core.handle(GrammarTable(name, table), client=b"another")
        core.run()
        assert core.last("patient", b"another").finish == "stop"


def test_a_table_that_nobody_wants_is_not_kept(make_core: Make, grammar: tuple[str, bytes]) -> None:
    core = make_core()
    core.handle(GrammarTable(*grammar))
    assert core.core.stats().counters["num_grammars"] == 0


def test_unused_grammars_make_room(
    make_core: Make, request_of: Make, grammar: tuple[str, bytes]
) -> None:
    from pagemill.schemas.compiler import compile

    other = compile({"enum": ["x", "y"]}, timeout_s=30.0)
    name, table = grammar
    core = make_core(grammar_cache_bytes=len(table) + 200)
    core.handle(submit(request_of("first", grammar=name, max_tokens=40)))
    core.handle(GrammarTable(name, table))
    core.handle(submit(request_of("second", grammar=other.hash, max_tokens=40)))
    core.handle(GrammarTable(other.hash, other.table))
    # The first is in use, so it stays and the second finds no room.
    assert core.last("second").reason == EngineReason.OVERLOADED
    core.run()
    core.handle(submit(request_of("third", grammar=other.hash, max_tokens=40)))
    core.handle(GrammarTable(other.hash, other.table))
    core.run()
    assert core.last("third").finish == "stop"
    assert core.core.stats().counters["num_grammars"] == 1


# --- ends that come from outside -----------------------------------------------------------------


@ahead
def test_cancelled_requests_free_their_blocks(
    make_core: Make, request_of: Make, settings: dict[str, Any]
) -> None:
    core = make_core(max_num_seqs=2, **settings)
    core.handle(submit(*(request_of(f"r{i}", max_tokens=500, ignore_eos=True) for i in range(4))))
    core.step()
    core.handle(Cancel(["r0", "r3", "unknown"]))
    for _ in range(3):
        core.step()
    assert core.last("r0").finish == core.last("r3").finish == "cancelled"
    assert core.last("r0").usage.completion_tokens >= 1
    core.handle(Cancel(["r1", "r2"]))
    core.run()
    assert core.core.stats().free_blocks == core.core.stats().total_blocks


def test_one_client_cannot_cancel_another_s(make_core: Make, request_of: Make) -> None:
    core = make_core()
    core.handle(submit(request_of("a", max_tokens=5)))
    core.handle(Cancel(["a"]), client=b"another")
    core.run()
    assert core.last("a").finish in ("length", "stop")


@ahead
def test_deadlines_of_running_waiting_and_parked(
    make_core: Make, request_of: Make, settings: dict[str, Any]
) -> None:
    now = [100.0]
    core = make_core(max_num_seqs=1, **settings)
    core.core._clock = core.core._stepper._clock = lambda: now[0]
    core.core._ticked = now[0]
    core.handle(
        submit(
            request_of("running", max_tokens=900, ignore_eos=True, timeout_s=5.0),
            request_of("waiting", max_tokens=900, timeout_s=5.0),
            request_of("parked", grammar="unknown", timeout_s=5.0),
            request_of("forgotten", grammar="unknown"),
        )
    )
    core.step()
    now[0] += 6
    core.core.tick()
    for _ in range(2):
        core.step()
    assert {core.last(name).finish for name in ("running", "waiting", "parked")} == {"deadline"}
    now[0] += 60
    core.core.tick()
    core.collect()
    assert core.last("forgotten").reason == EngineReason.GRAMMAR_MISSING
    assert not core.core.has_requests


def test_a_silent_client_loses_its_requests(make_core: Make, request_of: Make) -> None:
    now = [100.0]
    core = make_core(client_timeout_s=10.0)
    core.core._clock = core.core._stepper._clock = lambda: now[0]
    core.core._ticked = now[0]
    for name in (b"silent", b"alive"):
        core.handle(submit(request_of("a", max_tokens=900, ignore_eos=True)), client=name)
    for _ in range(4):
        now[0] += 4
        core.handle(Ping(1), client=b"alive")
        core.core.tick()
        core.step()
    core.step()
    assert core.last("a", b"silent").finish == "cancelled"
    assert core.outputs[b"alive", "a"][-1].finish is None


def test_a_closed_core_answers_with_its_reason(make_core: Make, request_of: Make) -> None:
    core = make_core()
    core.handle(submit(request_of("running", max_tokens=4)))
    core.core.close(EngineError(EngineReason.ENGINE_UNAVAILABLE, "shutting down"))
    core.handle(submit(request_of("late")))
    [(_, rejected)] = core.others
    assert (rejected.reason, rejected.request_ids) == ("engine_unavailable", ["late"])
    assert core.core.stats().credit == 0
    core.run()
    assert core.last("running").finish in ("length", "stop")
