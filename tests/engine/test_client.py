"""Clients against a real engine process on a real socket, and against a scripted peer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from pagemill.engine.client import EngineClient
from pagemill.engine.client_async import AsyncEngineClient
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.protocol import (
    EngineStats,
    Hello,
    Output,
    Outputs,
    Ping,
    Pong,
    Submit,
    Welcome,
    decode_client,
    encode,
)

Make = Callable[..., Any]
HASH = "bytes-1"


@pytest.fixture
def client(start_engine: Make) -> Iterator[EngineClient]:
    engine = start_engine("--max-num-seqs", "8")
    with engine.connect() as connected:
        yield connected


def collect(outputs: Any) -> dict[str, list[Output]]:
    found: dict[str, list[Output]] = {}
    for output in outputs:
        found.setdefault(output.request_id, []).append(output)
    return found


def test_a_burst_streams_to_its_end(client: EngineClient, request_of: Make) -> None:
    burst = [request_of(f"r{i}", f"page {i}", max_tokens=12, ignore_eos=True) for i in range(20)]
    found = collect(client.generate(burst, tokenizer_hash=HASH, grammars={}))
    assert set(found) == {f"r{i}" for i in range(20)}
    for outputs in found.values():
        assert len(outputs) > 3  # token by token, not all at the end
        assert [o.finish for o in outputs[:-1]] == [None] * (len(outputs) - 1)
        assert outputs[-1].finish == "length"
        assert sum(len(o.token_ids) for o in outputs) == 12


def test_what_the_engine_says_of_itself(client: EngineClient) -> None:
    assert client.info.model == "fake"
    assert client.info.vocab_size == 257
    stats = client.stats()
    assert stats.running == stats.waiting == 0
    assert stats.free_blocks == stats.total_blocks > 0


def test_an_empty_burst_ends_at_once(client: EngineClient) -> None:
    assert list(client.generate([], tokenizer_hash=HASH, grammars={})) == []


def test_grammars_travel_on_demand(
    client: EngineClient, request_of: Make, grammar: tuple[str, bytes]
) -> None:
    name, table = grammar
    for turn in range(2):
        burst = [request_of(f"r{i}", f"p{i}", grammar=name, max_tokens=40) for i in range(5)]
        found = collect(client.generate(burst, tokenizer_hash=HASH, grammars={name: table}))
        for outputs in found.values():
            text = bytes(token for output in outputs for token in output.token_ids)
            assert json.loads(text)["n"] in (1, 23, 456)
        assert client.stats().counters["grammars_received"] == 1, f"turn {turn}"


def test_a_grammar_without_its_table_is_refused_here(
    client: EngineClient, request_of: Make
) -> None:
    with pytest.raises(EngineError) as raised:
        client.generate([request_of("a", grammar="x")], tokenizer_hash=HASH, grammars={})
    assert raised.value.reason is EngineReason.GRAMMAR_MISSING


def test_a_wrong_tokenizer_raises(client: EngineClient, request_of: Make) -> None:
    with pytest.raises(EngineError) as raised:
        list(client.generate([request_of("a")], tokenizer_hash="other", grammars={}))
    assert raised.value.reason is EngineReason.TOKENIZER_MISMATCH
    assert client.stats().running == 0


def test_cancel_ends_one_request(client: EngineClient, request_of: Make) -> None:
    burst = [request_of(name, max_tokens=900, ignore_eos=True) for name in ("a", "b")]
    burst.append(request_of("c", max_tokens=5))
    finished = {}
    for output in client.generate(burst, tokenizer_hash=HASH, grammars={}):
        if output.finish is not None:
            finished[output.request_id] = output.finish
            client.cancel(["a", "b"])
    assert finished["a"] == finished["b"] == "cancelled"
    assert finished["c"] in ("length", "stop")


def test_leaving_the_loop_cancels_the_rest(
    client: EngineClient, request_of: Make, eventually: Make
) -> None:
    burst = [request_of(f"r{i}", max_tokens=4000, ignore_eos=True) for i in range(4)]
    for _ in client.generate(burst, tokenizer_hash=HASH, grammars={}):
        break
    eventually(lambda: client.stats().running + client.stats().waiting == 0)
    assert client.stats().free_blocks == client.stats().total_blocks
    # The ids are free again.
    again = collect(client.generate(burst[:1], tokenizer_hash=HASH, grammars={}).close() or [])
    assert again == {}


def test_ids_in_use_are_refused_here(client: EngineClient, request_of: Make) -> None:
    first = client.generate(
        [request_of("a", max_tokens=4000, ignore_eos=True)], tokenizer_hash=HASH, grammars={}
    )
    with pytest.raises(EngineError, match="in use"):
        client.generate([request_of("a")], tokenizer_hash=HASH, grammars={})
    with pytest.raises(EngineError, match="twice"):
        client.generate([request_of("b"), request_of("b")], tokenizer_hash=HASH, grammars={})
    first.close()


def test_deadlines_end_requests(client: EngineClient, request_of: Make) -> None:
    request = request_of("a", max_tokens=8000, ignore_eos=True, timeout_s=0.2)
    outputs = list(client.generate([request], tokenizer_hash=HASH, grammars={}))
    assert outputs[-1].finish == "deadline"
    assert outputs[-1].reason == EngineReason.DEADLINE


def test_overload_is_said_per_request(start_engine: Make, request_of: Make) -> None:
    engine = start_engine("--max-num-seqs", "1", "--max-waiting-requests", "2")
    with engine.connect() as client:
        burst = [request_of(f"r{i}", max_tokens=20) for i in range(6)]
        found = collect(client.generate(burst, tokenizer_hash=HASH, grammars={}))
        reasons = [found[f"r{i}"][-1].reason for i in range(6)]
        assert reasons[:2] == ["", ""]
        assert reasons[2:] == [EngineReason.OVERLOADED] * 4


def test_two_clients_and_many_threads(start_engine: Make, request_of: Make) -> None:
    """Equal ids of different clients don't meet; a client may be shared by threads."""
    engine = start_engine("--max-num-seqs", "8")
    alone: dict[int, list[int]] = {}
    together: dict[tuple[int, int], list[int]] = {}

    def run(client: EngineClient, prompt: int, request_id: str) -> list[int]:
        request = request_of(request_id, [prompt] * 40, max_tokens=15, ignore_eos=True)
        stream = client.generate([request], tokenizer_hash=HASH, grammars={})
        return [token for output in stream for token in output.token_ids]

    with engine.connect() as first, engine.connect() as second:
        for prompt in range(6):
            alone[prompt] = run(first, prompt, "same")

        def work(which: int, prompt: int) -> None:
            client = (first, second)[which]
            together[which, prompt] = run(client, prompt, f"id-{prompt}")

        threads = [
            threading.Thread(target=work, args=(which, prompt))
            for which in range(2)
            for prompt in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert together == {(which, prompt): alone[prompt] for which in range(2) for prompt in range(6)}


def test_asyncio_runs_many_at_once(
    start_engine: Make, request_of: Make, grammar: tuple[str, bytes]
) -> None:
    engine = start_engine("--max-num-seqs", "8")
    name, table = grammar

    async def one(client: AsyncEngineClient, number: int) -> str:
        request = request_of(f"r{number}", f"p{number}", grammar=name, max_tokens=40)
        text = b""
        async for output in client.generate([request], tokenizer_hash=HASH, grammars={name: table}):
            text += bytes(output.token_ids)
        return str(json.loads(text)["kind"])

    async def main() -> None:
        async with await AsyncEngineClient.connect(engine.endpoint) as client:
            kinds = await asyncio.gather(*(one(client, number) for number in range(12)))
            assert set(kinds) <= {"a", "bc"}
            stream = client.generate(
                [request_of("left", max_tokens=4000, ignore_eos=True)],
                tokenizer_hash=HASH,
                grammars={},
            )
            async with contextlib.aclosing(stream) as outputs:
                async for _ in outputs:
                    break
            while (await client.stats()).running:
                await asyncio.sleep(0.01)
            engine.process.kill()
            with pytest.raises(EngineError) as raised:
                await client.stats()
            assert raised.value.reason is EngineReason.ENGINE_UNAVAILABLE

    async def bounded() -> None:
        await asyncio.wait_for(main(), 60)

    asyncio.run(bounded())


def test_nobody_there(socket_folder: Path) -> None:
    with pytest.raises(EngineError) as raised:
        EngineClient.connect(f"ipc://{socket_folder}/none.sock", connect_timeout_s=0.3)
    assert raised.value.reason is EngineReason.ENGINE_UNAVAILABLE


def test_a_client_does_not_survive_a_fork(client: EngineClient) -> None:
    child = os.fork()
    if child == 0:
        try:
            client.stats()
        except EngineError as error:
            os._exit(0 if "fork" in str(error) else 3)
        except BaseException:
            os._exit(4)
        os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.stats().running == 0


# --- against a scripted peer ----------------------------------------------------------------------


class ScriptedCore(threading.Thread):
    """A ROUTER that answers each message as `script` says, and keeps what it got."""

    def __init__(self, endpoint: str, script: Callable[[Any], list[Any]]) -> None:
        super().__init__(daemon=True)
        self.got: list[Any] = []
        self._script = script
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.bind(endpoint)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            if self._router.poll(20):
                identity, frame = self._router.recv_multipart()
                message = decode_client(frame)
                self.got.append(message)
                for answer in self._script(message):
                    self._router.send_multipart((identity, answer))
        self._context.destroy(linger=0)

    def stop(self) -> None:
        self._ended.set()
        self.join(10)


STATS = EngineStats(0, 0, 1, 1, 1, 0.0, {})


def welcome(epoch: str = "one") -> bytes:
    return encode(Welcome("m", "hash", 100, 257, 4, epoch))


@pytest.fixture
def scripted(socket_folder: Path) -> Iterator[Callable[..., tuple[ScriptedCore, str]]]:
    cores: list[ScriptedCore] = []

    def start(script: Callable[[Any], list[Any]]) -> tuple[ScriptedCore, str]:
        endpoint = f"ipc://{socket_folder}/scripted{len(cores)}.sock"
        core = ScriptedCore(endpoint, script)
        core.start()
        cores.append(core)
        return core, endpoint

    yield start
    for core in cores:
        core.stop()


def test_a_burst_is_one_message(scripted: Make, request_of: Make) -> None:
    def script(message: Any) -> list[bytes]:
        if isinstance(message, Hello):
            return [welcome()]
        if isinstance(message, Submit):
            ends = [Output(r.request_id, (1,), "stop") for r in message.requests]
            return [encode(Outputs(ends))]
        return []

    core, endpoint = scripted(script)
    with EngineClient.connect(endpoint) as client:
        burst = [request_of(f"r{i}") for i in range(300)]
        assert len(list(client.generate(burst, tokenizer_hash="hash", grammars={}))) == 300
    assert sum(isinstance(message, Submit) for message in core.got) == 1


def test_a_silent_engine_is_found_out(scripted: Make, request_of: Make) -> None:
    core, endpoint = scripted(lambda message: [welcome()] if isinstance(message, Hello) else [])
    with EngineClient.connect(endpoint, silence_timeout_s=0.5) as client:
        time.sleep(0.8)  # Idle time is not silence.
        stream = client.generate([request_of("a")], tokenizer_hash="hash", grammars={})
        with pytest.raises(EngineError, match="silent") as raised:
            list(stream)
    assert raised.value.reason is EngineReason.ENGINE_UNAVAILABLE
    assert any(isinstance(message, Ping) for message in core.got)


def test_heartbeats_keep_a_slow_engine(scripted: Make, request_of: Make) -> None:
    waited: list[int] = []

    def script(message: Any) -> list[bytes]:
        if isinstance(message, Hello):
            return [welcome()]
        if isinstance(message, Ping):
            waited.append(message.nonce)
            pong = encode(Pong(message.nonce, STATS, "one"))
            done = encode(Outputs([Output("a", (1,), "stop")]))
            return [pong, done] if len(waited) == 6 else [pong]
        return []

    _, endpoint = scripted(script)
    with EngineClient.connect(endpoint, silence_timeout_s=0.6) as client:
        stream = client.generate([request_of("a")], tokenizer_hash="hash", grammars={})
        assert [output.finish for output in stream] == ["stop"]


def test_another_epoch_is_a_restart(scripted: Make, request_of: Make) -> None:
    epochs = iter(["one", "two"])

    def script(message: Any) -> list[bytes]:
        if isinstance(message, Hello):
            return [welcome(next(epochs))]
        if isinstance(message, Ping):
            return [encode(Pong(message.nonce, STATS, "two"))]
        return []

    _, endpoint = scripted(script)
    with EngineClient.connect(endpoint) as client:
        stream = client.generate([request_of("a")], tokenizer_hash="hash", grammars={})
        with pytest.raises(EngineError, match="restarted"):
            client.stats()
        with pytest.raises(EngineError, match="restarted"):
            list(stream)
        assert client.stats() == STATS  # connected anew
        assert client.info.epoch == "two"


@pytest.mark.parametrize("frame", [b"\x09garbage", b"\x01\xc1", b""])
def test_a_peer_that_talks_nonsense(scripted: Make, frame: bytes) -> None:
    _, endpoint = scripted(lambda message: [frame])
    with pytest.raises(EngineError):
        EngineClient.connect(endpoint, connect_timeout_s=5)
