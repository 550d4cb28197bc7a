"""The example of docs/ledger.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import redis

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"


def test_the_example_runs(redis_client: redis.Redis, redis_server: object) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    exec(example, {"redis_url": redis_server.url})  # type: ignore[attr-defined]
