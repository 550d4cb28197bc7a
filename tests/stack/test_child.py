"""Child processes end with their owner, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import redis
from pagemill.extraction.child import Child, wait_until
from pagemill.extraction.reason import Reason, Refused
from pagemill.extraction.stack import EmbeddedRedis

OWNER = """
import sys, time
from pagemill.extraction.stack import EmbeddedRedis
server = EmbeddedRedis().start()
print(server.pid, server.folder, flush=True)
time.sleep(60)
"""


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_with_its_owner(number: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert owner.stdout is not None
    pid, folder = owner.stdout.readline().split()
    assert not gone(int(pid))
    owner.send_signal(number)
    owner.wait(10)
    assert wait_until(lambda: gone(int(pid)), 10)
    assert wait_until(lambda: not Path(folder).exists(), 10)


class Forking(Child):
    """A leader with a grandchild that outlives it unless the whole group is ended."""

    name = "forking process"
    grace_s = 0.3

    def command(self, lifeline: int) -> Sequence[str]:
        script = "sleep 60 & echo $! ; exec sleep 61"
        return ["/bin/sh", "-c", script]

    def is_ready(self) -> bool:
        return self.stdout_path.read_bytes().endswith(b"\n")


def test_the_whole_group_ends() -> None:
    with Forking() as child:
        grandchild = int(child.stdout_path.read_text())
        leader = child.pid
    assert gone(leader)
    assert wait_until(lambda: gone(grandchild), 5)


def test_a_killed_leader_takes_its_group_along() -> None:
    with Forking() as child:
        grandchild = int(child.stdout_path.read_text())
        child.kill()
        assert wait_until(lambda: gone(grandchild), 5)
        assert not child.is_running()


class Broken(Child):
    name = "broken process"
    unavailable = Reason.ENGINE_UNAVAILABLE

    def command(self, lifeline: int) -> Sequence[str]:
        return ["/bin/sh", "-c", "echo first >&2; echo 'no such model' >&2; exit 7"]

    def is_ready(self) -> bool:
        return False


def test_a_failed_start_shows_the_end_of_stderr() -> None:
    child = Broken()
    with pytest.raises(Refused, match="no such model") as caught:
        child.start()
    assert caught.value.reason == Reason.ENGINE_UNAVAILABLE
    child.close()
    assert not child.is_running()


class Missing(Broken):
    def command(self, lifeline: int) -> Sequence[str]:
        return ["/nonexistent/program"]


def test_a_missing_program_is_named() -> None:
    child = Missing()
    with pytest.raises(Refused, match="/nonexistent/program"):
        child.start()
    child.close()


class TestEmbeddedRedis:
    def test_is_private_durable_and_evicts_nothing(self) -> None:
        with EmbeddedRedis() as server:
            client = redis.Redis.from_url(server.url)
            policy = client.config_get("maxmemory-policy")
            assert policy == {"maxmemory-policy": "noeviction"}
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            assert client.config_get("port") == {"port": "0"}
            assert server.socket_path.stat().st_mode & 0o777 == 0o700
            assert server.folder.stat().st_mode & 0o777 == 0o700
            folder = server.folder
        assert not folder.exists()

    def test_keeps_what_was_written_over_kill_9(self) -> None:
        with EmbeddedRedis(fsync="always") as server:
            client = redis.Redis.from_url(server.url)
            client.set("page", "1")
            server.kill()
            server.start()
            assert redis.Redis.from_url(server.url).get("page") == b"1"

    def test_state_is_kept_between_owners_and_used_by_one_at_a_time(self, tmp_path: Path) -> None:
        state = tmp_path / "state"
        with EmbeddedRedis(state) as server:
            redis.Redis.from_url(server.url).set("page", "1")
            second = EmbeddedRedis(state)
            with pytest.raises(Refused, match="in use") as caught:
                second.start()
            assert caught.value.reason == Reason.LEDGER_UNAVAILABLE
            second.close()
        with EmbeddedRedis(state) as server:
            assert redis.Redis.from_url(server.url).get("page") == b"1"

    def test_a_socket_path_stays_short_whatever_the_state_folder(self, tmp_path: Path) -> None:
        state = tmp_path / ("deep" * 30) / ("deep" * 30)
        with EmbeddedRedis(state) as server:
            assert redis.Redis.from_url(server.url).ping()

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        blocked = tmp_path / "file"
        blocked.write_text("")
        server = EmbeddedRedis(blocked / "state")
        with pytest.raises(Refused, match="file/state"):
            server.start()
        server.close()


def test_wait_until_gives_up() -> None:
    started = time.monotonic()
    assert not wait_until(lambda: False, 0.05)
    assert time.monotonic() >= started + 0.05


class _Sleeper(Child):
    name = "sleeper"

    def command(self, lifeline: int) -> list[str]:
        return ["sleep", "60"]

    def is_ready(self) -> bool:
        return True


def test_what_up_keeps_starts_again_when_it_dies() -> None:
    from pagemill.extraction.cli.up import _Kept

    with _Sleeper() as sleeper:
        kept = _Kept(sleeper)
        kept.look()
        first = sleeper.pid
        sleeper.kill()
        assert wait_until(lambda: kept.look() or sleeper.is_running(), 10)
        assert sleeper.pid not in (0, first)
