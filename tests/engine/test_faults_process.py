"""What may befall an engine process: bad peers, lost peers, signals, its own death."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from pagemill.engine.client import EngineClient
from pagemill.engine.endpoint import claim
from pagemill.engine.errors import EngineError, EngineReason
from pagemill.engine.protocol import (
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    CoreMessage,
    Hello,
    Ping,
    Rejected,
    Submit,
    Welcome,
    decode_core,
    encode,
)

Make = Callable[..., Any]
HASH = "bytes-1"


class RawPeer:
    """A DEALER that sends frames as they are."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.Context()
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.setsockopt(zmq.RCVHWM, 1)
        self._dealer.connect(endpoint)

    def send(self, *frames: bytes) -> None:
        self._dealer.send_multipart(frames)

    def receive(self) -> CoreMessage:
        assert self._dealer.poll(30_000), "no answer came"
        return decode_core(self._dealer.recv_multipart()[-1])

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def raw() -> Iterator[Callable[[str], RawPeer]]:
    peers: list[RawPeer] = []

    def connect(endpoint: str) -> RawPeer:
        peers.append(RawPeer(endpoint))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.close()


def still_serves(engine: Any, request_of: Make) -> None:
    with engine.connect() as client:
        outputs = list(
            client.generate([request_of("ok", max_tokens=3)], tokenizer_hash=HASH, grammars={})
        )
        assert outputs[-1].finish in ("length", "stop")


def test_garbage_is_answered_and_costs_nothing(
    start_engine: Make, raw: Make, request_of: Make
) -> None:
    engine = start_engine()
    peer = raw(engine.endpoint)
    cases: list[tuple[tuple[bytes, ...], EngineReason]] = [
        ((b"",), EngineReason.MESSAGE_INVALID),
        ((bytes([PROTOCOL_VERSION]),), EngineReason.MESSAGE_INVALID),
        ((bytes([PROTOCOL_VERSION]) + b"\xc1\xff\x00",), EngineReason.MESSAGE_INVALID),
        ((bytes([PROTOCOL_VERSION]) + os.urandom(5000),), EngineReason.MESSAGE_INVALID),
        ((bytes([PROTOCOL_VERSION]) + b"\x91" * 100_000,), EngineReason.MESSAGE_INVALID),
        ((encode(Ping(1)), b"second frame"), EngineReason.MESSAGE_INVALID),
        ((bytes([99]) + encode(Ping(1))[1:],), EngineReason.VERSION_MISMATCH),
    ]
    for frames, reason in cases:
        peer.send(*frames)
        answer = peer.receive()
        assert isinstance(answer, Rejected)
        assert answer.reason == reason
    peer.send(encode(Hello("still me")))
    assert isinstance(peer.receive(), Welcome)
    still_serves(engine, request_of)


def test_oversized_frames_are_dropped(start_engine: Make, raw: Make, request_of: Make) -> None:
    engine = start_engine()
    peer = raw(engine.endpoint)
    peer.send(encode(Hello("me")))
    assert isinstance(peer.receive(), Welcome)
    peer.send(bytes(MAX_MESSAGE_BYTES + 1))
    still_serves(engine, request_of)
    with engine.connect() as client:
        huge = request_of("huge", [1])
        huge = type(huge)("huge", bytes(MAX_MESSAGE_BYTES + 1))
        with pytest.raises(EngineError, match="split"):
            client.generate([huge], tokenizer_hash=HASH, grammars={})


def test_a_client_that_vanishes_frees_its_blocks(
    start_engine: Make, request_of: Make, eventually: Make
) -> None:
    """Killed in the middle of its streams: running and waiting requests end."""
    engine = start_engine("--max-num-seqs", "2", "--fake-step-ms", "1")
    code = (
        "import sys, numpy as np\n"
        "from pagemill.engine import EngineClient, Request, SamplingParams\n"
        "client = EngineClient.connect(sys.argv[1])\n"
        "long = SamplingParams(max_tokens=4000, ignore_eos=True)\n"
        "burst = [Request(f'r{i}', np.full(40, i, '<i4').tobytes(), long) for i in range(6)]\n"
        "stream = client.generate(burst, tokenizer_hash='bytes-1', grammars={})\n"
        "next(stream)\n"
        "print('streaming', flush=True)\n"
        "for _ in stream: pass\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, engine.endpoint], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"streaming\n"
        with engine.connect() as client:
            assert client.stats().running == 2
            child.kill()
            eventually(lambda: client.stats().running + client.stats().waiting == 0)
            stats = client.stats()
            assert stats.free_blocks == stats.total_blocks
            assert stats.counters["requests_finished_cancelled"] == 6


def test_kill_9_is_seen_and_survived(start_engine: Make, request_of: Make) -> None:
    engine = start_engine("--fake-step-ms", "1")
    with engine.connect() as client:
        long = request_of("long", max_tokens=8000, ignore_eos=True)
        stream = client.generate([long], tokenizer_hash=HASH, grammars={})
        next(stream)
        engine.process.kill()
        with pytest.raises(EngineError) as raised:
            list(stream)
        assert raised.value.reason is EngineReason.ENGINE_UNAVAILABLE
        engine.process.wait()
        old = client.info.epoch
        start_engine()  # over the socket file that the dead one left
        outputs = list(
            client.generate([request_of("a", max_tokens=3)], tokenizer_hash=HASH, grammars={})
        )
        assert outputs[-1].finish in ("length", "stop")
        assert client.info.epoch != old


def test_sigterm_lets_running_requests_finish(start_engine: Make, request_of: Make) -> None:
    engine = start_engine("--fake-step-ms", "2", "--shutdown-timeout-s", "30")
    with engine.connect() as client:
        running = request_of("running", max_tokens=150, ignore_eos=True)
        stream = client.generate([running], tokenizer_hash=HASH, grammars={})
        next(stream)
        engine.process.send_signal(signal.SIGTERM)
        late_reason = ""
        while not late_reason:
            try:
                late = client.generate(
                    [request_of("late", max_tokens=1)], tokenizer_hash=HASH, grammars={}
                )
                list(late)  # it was quicker than the signal
            except EngineError as error:
                late_reason = error.reason
        assert late_reason == EngineReason.ENGINE_UNAVAILABLE
        assert [output.finish for output in stream][-1] == "length"
    assert engine.process.wait(30) == 0
    assert not Path(engine.endpoint.removeprefix("ipc://")).exists()


def test_sigterm_has_little_patience(start_engine: Make, request_of: Make) -> None:
    engine = start_engine("--fake-step-ms", "2", "--shutdown-timeout-s", "0.1")
    with engine.connect() as client:
        endless = request_of("endless", max_tokens=8000, ignore_eos=True)
        stream = client.generate([endless], tokenizer_hash=HASH, grammars={})
        next(stream)
        engine.process.send_signal(signal.SIGTERM)
        last = list(stream)[-1]
        assert (last.finish, last.reason) == ("error", EngineReason.ENGINE_UNAVAILABLE)
    assert engine.process.wait(30) == 0


def test_the_lifeline_ends_it(start_engine: Make, request_of: Make) -> None:
    engine = start_engine("--fake-step-ms", "1")
    with engine.connect() as client:
        endless = request_of("endless", max_tokens=8000, ignore_eos=True)
        stream = client.generate([endless], tokenizer_hash=HASH, grammars={})
        next(stream)
        os.close(engine.lifeline)
        engine.lifeline = -1
        assert engine.process.wait(30) == 0
        with pytest.raises(EngineError):
            list(stream)


def test_a_client_that_never_reads_is_cut_off(
    start_engine: Make, raw: Make, request_of: Make, eventually: Make
) -> None:
    engine = start_engine("--max-num-seqs", "1")
    peer = raw(engine.endpoint)
    # One after another, they make more messages than the core and the kernel hold for a peer.
    requests = [request_of(f"r{i}", max_tokens=8000, ignore_eos=True) for i in range(3)]
    peer.send(encode(Submit(HASH, requests)))
    with engine.connect() as client:
        eventually(lambda: "requests_finished_cancelled" in client.stats().counters)
        eventually(lambda: client.stats().running + client.stats().waiting == 0)
    still_serves(engine, request_of)
    answers = [peer.receive()]
    while not isinstance(answers[-1], Rejected):  # It reads at last, and learns what happened.
        peer.send(encode(Ping(1)))
        answers.append(peer.receive())
    assert answers[-1].reason == EngineReason.ENGINE_UNAVAILABLE


# --- starting -------------------------------------------------------------------------------------


def test_one_engine_an_endpoint(start_engine: Make, request_of: Make) -> None:
    first = start_engine()
    second = start_engine(ready=False)
    assert second.process.wait(60) == 2
    assert b"another engine serves" in second.end()
    still_serves(first, request_of)


def test_a_foreign_socket_is_left_alone(start_engine: Make, socket_folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(socket_folder / "engine.sock"))
        server.listen()
        engine = start_engine(ready=False)
        assert engine.process.wait(60) == 2
        assert b"another process serves" in engine.end()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tensor-parallel-size", "8"], b"--tensor-parallel-size: this engine serves only"),
        (["--tensor-parallel-size", "2"], b"--tensor-parallel-size: this engine serves only"),
        (["--scheduling-policy", "lottery"], b"lottery"),
        (["--dtype", "fp8"], b"--dtype"),
        (["--num-blocks", "4", "--max-model-len", "4096"], b"--max-model-len 4096 needs"),
        (["--model", "no-such-model"], b"model_invalid"),
        (["--endpoint", "tcp://0.0.0.0:5555"], b"loopback"),
        (["--endpoint", "ipc://relative.sock"], b"absolute"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    start_engine: Make, options: list[str], words: bytes
) -> None:
    engine = start_engine(*options, ready=False)
    assert engine.process.wait(60) == 2
    errors = engine.end()
    assert words in errors
    assert b"Traceback" not in errors


def test_shared_folders_are_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    with pytest.raises(EngineError, match="0700"), claim(f"ipc://{shared}/e.sock"):
        pass


def test_clients_refuse_shared_folders_as_the_engine_does(tmp_path: Path) -> None:
    """Whoever may write there could listen in the engine's place, and be sent pages."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    with pytest.raises(EngineError, match="0700") as caught:
        EngineClient.connect(f"ipc://{shared}/e.sock", connect_timeout_s=0.1)
    assert caught.value.reason == EngineReason.CONFIG_INVALID
    assert "\n" not in str(caught.value)


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(EngineError, match="yours alone"), claim(f"ipc://{folder}/e.sock"):
        pass
    with pytest.raises(EngineError, match="yours alone"):
        EngineClient.connect(f"ipc://{folder}/e.sock", connect_timeout_s=0.1)


def test_a_private_folder_is_made_and_cleaned(socket_folder: Path) -> None:
    path = socket_folder / "made" / "e.sock"
    with claim(f"ipc://{path}"):
        assert (path.parent.stat().st_mode & 0o777) == 0o700
        path.touch()
    assert not path.exists()
