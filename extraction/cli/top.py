"""`pagemill top`: queue and engine at work, as they change."""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.table import Table

from .console import stdout
from .options import EngineEndpoint, RedisUrl

if TYPE_CHECKING:
    from pagemill.engine.client import EngineClient
    from pagemill.engine.protocol import EngineStats

    from ..config import Settings
    from ..ledger import Ledger, QueueDepth

# Rates are means over this time.
_WINDOW_S = 10.0
_ENGINE_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Moment:
    """What is seen at one time; None for what doesn't answer. Counters only grow."""

    at_s: float
    queue: dict[str, Any] | None
    engine: dict[str, Any] | None
    messages: int | None


def top(
    interval: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print, end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON each time.")] = False,
    redis_url: RedisUrl = None,
    engine: EngineEndpoint = None,
) -> None:
    """Watch pages waiting, done and failed, the engine's batch and cache, and rates of all."""
    from ..assembly import open_ledger
    from ..config import load_settings

    settings = load_settings(redis_url=redis_url, engine_endpoint=engine)
    watch = Watch(settings, open_ledger(settings, timeout_s=2.0))
    with contextlib.closing(watch), contextlib.ExitStack() as stack:
        plain = as_json or not stdout.is_terminal
        live: Any = None
        if not plain and not once:
            from rich.live import Live

            live = stack.enter_context(Live(console=stdout, screen=False, auto_refresh=False))
        watch.look()
        while True:
            time.sleep(interval)
            watch.look()
            if plain:
                typer.echo(json.dumps(watch.snapshot()))
            elif live is not None:
                live.update(table(watch.snapshot()), refresh=True)
            else:
                stdout.print(table(watch.snapshot()))
            if once:
                return


class Watch:
    """Looks at ledger and engine, and knows the rates between looks."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._settings = settings
        self._ledger = ledger
        self._engine: EngineClient | None = None
        self._seen: deque[Moment] = deque()

    def look(self) -> None:
        """Take one look; what doesn't answer is None in it, and asked again the next time."""
        now = time.monotonic()
        depth, messages = self._queue()
        queue = None if depth is None else msgspec.structs.asdict(depth)
        self._seen.append(Moment(now, queue, _engine_figures(self._stats()), messages))
        while len(self._seen) > 2 and self._seen[1].at_s < now - _WINDOW_S:
            self._seen.popleft()

    def snapshot(self) -> dict[str, Any]:
        """The last look, and `rates` a second over the last ten seconds."""
        last, first = self._seen[-1], self._seen[0]
        rates = {
            "pages_done": _rate(first, last, "queue", "done"),
            "pages_failed": _rate(first, last, "queue", "failed"),
            "prompt_tokens": _rate(first, last, "engine", "prompt_tokens"),
            "output_tokens": _rate(first, last, "engine", "generation_tokens"),
        }
        seen = asdict(last)
        seen.pop("at_s")
        return {**seen, "rates": rates}

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._ledger.redis.close()

    def _queue(self) -> tuple[QueueDepth | None, int | None]:
        from ..doorbell import messages_waiting
        from ..reason import Refused

        try:
            waiting = messages_waiting(self._ledger.redis, self._settings.queue)
            return self._ledger.depth(), waiting
        except Refused:
            return None, None

    def _stats(self) -> EngineStats | None:
        from pagemill.engine.client import EngineClient
        from pagemill.engine.errors import EngineError

        try:
            if self._engine is None:
                self._engine = EngineClient.connect(
                    self._settings.engine_endpoint, connect_timeout_s=_ENGINE_TIMEOUT_S
                )
            return self._engine.stats(timeout_s=_ENGINE_TIMEOUT_S)
        except EngineError:
            return None


def _engine_figures(stats: EngineStats | None) -> dict[str, Any] | None:
    if stats is None:
        return None
    asked = sum(queries for queries, _ in stats.prefix_cache.values())
    found = sum(hits for _, hits in stats.prefix_cache.values())
    used = 1 - stats.free_blocks / stats.total_blocks if stats.total_blocks else 0.0
    return {
        "running": stats.running,
        "waiting": stats.waiting,
        "credit": stats.credit,
        "kv_cache_usage": round(used, 4),
        "prefix_hit_rate": round(found / asked, 4) if asked else 0.0,
        "prompt_tokens": stats.counters.get("prompt_tokens", 0),
        "generation_tokens": stats.counters.get("generation_tokens", 0),
    }


def _rate(first: Moment, last: Moment, part: str, counter: str) -> float | None:
    """Growth a second; None where it isn't known, or a counter began anew with its process."""
    before, after = getattr(first, part), getattr(last, part)
    seconds = last.at_s - first.at_s
    if before is None or after is None or seconds <= 0 or after[counter] < before[counter]:
        return None
    return round(float(after[counter] - before[counter]) / seconds, 2)


def table(seen: dict[str, Any]) -> Table:
    """The figures of a snapshot for the terminal."""
    shown = Table.grid(padding=(0, 3))
    rates, queue, engine = seen["rates"], seen["queue"], seen["engine"]
    if queue is None:
        shown.add_row("queue", "Redis doesn't answer")
    else:
        waits = f"oldest waits {queue['oldest_s']:.0f} s, {seen['messages']} messages"
        shown.add_row("queue", f"{queue['queued']} queued, {queue['leased']} leased", waits)
        ended = f"{queue['done']} done, {queue['failed']} failed, {queue['dead']} dead"
        speed = f"{_shown(rates['pages_done'])} done/s, {_shown(rates['pages_failed'])} failed/s"
        shown.add_row("pages", ended, speed)
        lost = f"{queue['lost']} leases lost, {queue['zombie_commits']} late commits refused"
        shown.add_row("ledger", f"{queue['bytes'] / 2**20:.1f} MiB", lost)
    if engine is None:
        shown.add_row("engine", "doesn't answer")
    else:
        batch = f"{engine['running']} running, {engine['waiting']} waiting"
        shown.add_row("engine", batch, f"would take {engine['credit']} more")
        cache = f"{engine['kv_cache_usage']:.0%} of the KV cache used"
        shown.add_row("cache", cache, f"{engine['prefix_hit_rate']:.0%} of prompt tokens found")
        speed = f"{_shown(rates['prompt_tokens'])} prompt, {_shown(rates['output_tokens'])} output"
        shown.add_row("tokens/s", speed, "")
    return shown


def _shown(rate: float | None) -> str:
    return "?" if rate is None else f"{rate:.1f}"
