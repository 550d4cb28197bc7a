"""Engines for tests: cores over the arithmetic model, engine processes on real sockets."""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.engine.assembly import assemble
from pagemill.engine.client import EngineClient
from pagemill.engine.config import EngineConfig
from pagemill.engine.core import EngineCore
from pagemill.engine.executor.batch import Batch
from pagemill.engine.executor.fake import FakeExecutor
from pagemill.engine.protocol import Output, Outputs, Request, SamplingParams
from pagemill.engine.sizing import Sizes
from pagemill.engine.vocabulary import Vocabulary

START_TIMEOUT_S = 60.0


def _request(
    request_id: str,
    prompt: Sequence[int] | str = "a page",
    *,
    grammar: str | None = None,
    timeout_s: float = 0.0,
    salt: str = "",
    **sampling: Any,
) -> Request:
    ids = list(prompt.encode()) if isinstance(prompt, str) else prompt
    return Request(
        request_id=request_id,
        token_ids=np.asarray(ids, dtype="<i4").tobytes(),
        sampling=SamplingParams(**sampling),
        grammar=grammar,
        timeout_s=timeout_s,
        salt=salt,
    )


@pytest.fixture(scope="session")
def request_of() -> Callable[..., Request]:
    """Makes a request: id, prompt (ids, or text as bytes), grammar, timeout_s, sampling."""
    return _request


class CoreHarness:
    """A core without transport, driven by hand; every step is followed by an integrity check."""

    def __init__(
        self, config: EngineConfig, executor_class: type[FakeExecutor] = FakeExecutor
    ) -> None:
        vocabulary = Vocabulary.of_bytes()
        num_blocks = config.num_blocks or 256
        length = config.max_model_len or min(num_blocks * config.block_size, 1024)
        sizes = Sizes(length, num_blocks, -(-length // config.block_size))
        self.executor = executor_class(
            Batch(
                config.max_num_seqs,
                sizes.blocks_per_seq,
                config.block_size,
                vocabulary.size,
                seed=config.seed,
                close_records=config.close_records,
                close_loops=config.close_loops,
            ),
            num_blocks,
            vocabulary.eos_ids,
        )
        self.core: EngineCore = assemble(config, "fake", sizes, vocabulary, self.executor)
        self.outputs: dict[tuple[bytes, str], list[Output]] = {}
        self.others: list[tuple[bytes, Any]] = []

    def handle(self, message: Any, client: bytes = b"client") -> None:
        self.core.handle(client, message)
        self.collect()

    def collect(self) -> None:
        for client, message in self.core.take():
            if isinstance(message, Outputs):
                for output in message.outputs:
                    self.outputs.setdefault((client, output.request_id), []).append(output)
            else:
                self.others.append((client, message))

    def step(self) -> None:
        self.core.step()
        assert self.core._stepper.scheduler.check_integrity() == ""
        self.collect()

    def run(self, most: int = 10_000) -> None:
        for _ in range(most):
            if not self.core.busy:
                return
            self.step()
        raise AssertionError(f"requests are left after {most} steps")

    def tokens(self, request_id: str, client: bytes = b"client") -> list[int]:
        found = self.outputs[client, request_id]
        return [token for output in found for token in output.token_ids]

    def last(self, request_id: str, client: bytes = b"client") -> Output:
        output = self.outputs[client, request_id][-1]
        assert output.finish is not None
        return output


@pytest.fixture
def make_core() -> Callable[..., CoreHarness]:
    """Makes a core over the arithmetic model; keywords are EngineConfig's."""

    def make(executor_class: type[FakeExecutor] = FakeExecutor, **settings: Any) -> CoreHarness:
        return CoreHarness(EngineConfig(model="fake", **settings), executor_class)

    return make


class EngineUnderTest:
    """An engine process of the arithmetic model on a socket in a private folder."""

    def __init__(self, endpoint: str, options: Sequence[str]) -> None:
        self.endpoint = endpoint
        # The lifeline ends it with the test run, whatever happens to that.
        ours, self.lifeline = os.pipe()
        command = [
            sys.executable, "-m", "pagemill.engine", "--model", "fake", "--endpoint", endpoint,
            "--lifeline", str(ours), "--threads", "1", *options,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[ours]
        )
        os.close(ours)

    def wait_ready(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        line = self.process.stdout.readline() if readable else b""
        assert line, "the engine did not come up: " + self.end().decode()
        event: dict[str, Any] = json.loads(line)
        return event

    def connect(self, **options: Any) -> EngineClient:
        return EngineClient.connect(self.endpoint, **options)

    def end(self) -> bytes:
        """Kill what is left; returns what it wrote to standard error."""
        self.process.kill()
        _, errors = self.process.communicate()
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1
        return errors


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder of mode 0700 whose path is short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="pm-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start_engine(socket_folder: Path) -> Iterator[Callable[..., EngineUnderTest]]:
    """Starts engine processes; the same name is the same endpoint. `ready=False`: don't wait."""
    started: list[EngineUnderTest] = []

    def start(*options: str, name: str = "engine", ready: bool = True) -> EngineUnderTest:
        engine = EngineUnderTest(f"ipc://{socket_folder}/{name}.sock", options)
        started.append(engine)
        if ready:
            engine.wait_ready()
        return engine

    yield start
    for engine in started:
        engine.end()


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Waits until a condition holds; fails after 30 seconds."""

    def wait(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end, "the condition never came to hold"
            time.sleep(0.01)

    return wait


@pytest.fixture(scope="session")
def grammar() -> tuple[str, bytes]:
    """Hash and table of `{"kind":"a"|"bc","n":1|23|456}` in compact JSON."""
    from pagemill.schemas.compiler import compile

    compiled = compile(
        {
            "type": "object",
            "properties": {"kind": {"enum": ["a", "bc"]}, "n": {"enum": [1, 23, 456]}},
            "required": ["kind", "n"],
            "additionalProperties": False,
        },
        timeout_s=30.0,
    )
    assert compiled.hash == hashlib.sha256(compiled.table).hexdigest()
    return compiled.hash, compiled.table
