"""Clients hold their requests by a lease; what a client that is gone had asked for ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pagemill.engine.protocol import Ping, Request, SamplingParams, Submit

Make = Callable[..., Any]

# Asks for more than it waits for, and says when the first tokens are there.
CLIENT = """
import sys
from pagemill.engine.client import EngineClient
from pagemill.engine.protocol import Request, SamplingParams
requests = [
    Request(f"r{i}", bytes([i + 1, 0, 0, 0]) * 8, SamplingParams(max_tokens=900, ignore_eos=True))
    for i in range(6)
]
engine = EngineClient.connect(sys.argv[1])
outputs = engine.generate(requests, tokenizer_hash=engine.info.tokenizer_hash, grammars={})
next(outputs)
print("running", flush=True)
for output in outputs:
    pass
"""


def test_a_lease_is_renewed_by_whatever_a_client_says(make_core: Make, request_of: Make) -> None:
    now = [100.0]
    core = make_core(client_timeout_s=10.0)
    core.core._clock = core.core._stepper._clock = lambda: now[0]
    for name in (b"silent", b"alive"):
        core.handle(Submit("bytes-1", [request_of("a", max_tokens=900, ignore_eos=True)]), name)
    for _ in range(2):  # The core's own look at its clients comes later than the scheduler's.
        now[0] += 6
        core.handle(Ping(1), b"alive")
        core.step()
    core.step()
    assert core.last("a", b"silent").finish == "cancelled"
    assert "lease" in core.last("a", b"silent").message
    assert core.outputs[b"alive", "a"][-1].finish is None
    counters = core.core.stats().counters
    assert counters["scheduler_leases_expired"] == 1
    assert counters["requests_finished_cancelled"] == 1


def test_a_lease_ends_what_the_scheduler_does_not_know_yet(
    make_core: Make, request_of: Make
) -> None:
    now = [100.0]
    core = make_core(client_timeout_s=10.0)
    core.core._clock = core.core._stepper._clock = lambda: now[0]
    running = request_of("running", max_tokens=900, ignore_eos=True)
    core.handle(Submit("bytes-1", [running, request_of("parked", grammar="unknown")]))
    core.step()
    now[0] += 11
    core.run()
    assert {core.last(name).finish for name in ("running", "parked")} == {"cancelled"}
    assert not core.core.has_requests


def test_a_client_that_is_done_has_no_lease_to_lose(make_core: Make, request_of: Make) -> None:
    now = [100.0]
    core = make_core(client_timeout_s=10.0)
    core.core._clock = core.core._stepper._clock = lambda: now[0]
    core.handle(Submit("bytes-1", [request_of("a", max_tokens=3)]))
    core.run()
    now[0] += 9
    core.handle(Submit("bytes-1", [request_of("b", max_tokens=20, ignore_eos=True)]))
    core.step()
    now[0] += 9  # Longer than ten seconds since the first burst.
    core.run()
    assert core.last("b").finish == "length"
    assert core.core.stats().counters["scheduler_leases_expired"] == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_client_process_that_is_gone_loses_its_requests(
    start_engine: Make, eventually: Make, how: signal.Signals
) -> None:
    """Killed, its socket is closed at once; stopped, only its silence tells."""
    engine = start_engine("--client-timeout-s", "1.5", "--fake-step-ms", "20")
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, engine.endpoint], stdout=subprocess.PIPE, env=os.environ
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == b"running\n"
        with engine.connect() as own:
            assert own.stats().running == 6
            client.send_signal(how)
            eventually(lambda: own.stats().running == 0)
            stats = own.stats()
            assert (stats.free_blocks, stats.waiting) == (stats.total_blocks, 0)
            assert stats.counters["requests_finished_cancelled"] == 6
            # The engine serves others as before.
            request = Request("own", b"\1\0\0\0", SamplingParams(max_tokens=2, ignore_eos=True))
            (*_, last) = own.generate(
                [request], tokenizer_hash=own.info.tokenizer_hash, grammars={}
            )
            assert last.finish == "length"
    finally:
        client.kill()
        client.wait()
