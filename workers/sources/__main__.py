"""`python -m pagemill.workers.sources list|hashes|files|warc ...`: pump pages into the ledger."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence

import msgspec
from pagemill import schemas
from pagemill.extraction import logs
from pagemill.extraction.assembly import open_ledger
from pagemill.extraction.config import load_settings
from pagemill.extraction.doorbell import ring
from pagemill.extraction.intake import fix_schema, parse_options
from pagemill.extraction.reason import Refused

from ..app import app
from .files import FileSource
from .pump import Source, pump
from .redis_hash import RedisHashSource
from .redis_list import FieldMap, RedisListSource
from .warc import WarcSource


def main(arguments: Sequence[str] | None = None) -> int:
    """Pump until the source ends or a signal comes, and print a report; status 1 if refused."""
    parser = argparse.ArgumentParser(prog="python -m pagemill.workers.sources")
    parser.add_argument("kind", choices=("list", "hashes", "files", "warc"))
    parser.add_argument("source", nargs="+", help="list key, key pattern, or paths")
    parser.add_argument("--schema", required=True, help="registered name, or name@version")
    parser.add_argument("--batch", help="batch id under which progress and records are found")
    parser.add_argument("--fields", default="", help="list: field map, e.g. 'html=body|content'")
    parser.add_argument("--follow", action="store_true", help="list: wait for more")
    given = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        settings = load_settings()
        logs.configure(settings.log_level, settings.log_format)
        ledger = open_ledger(settings)
        redis = ledger.redis
        source: Source
        if given.kind == "list":
            source = RedisListSource(
                redis,
                given.source[0],
                max_page_bytes=settings.max_page_bytes,
                fields=FieldMap.parse(given.fields),
                follow=given.follow,
            )
        elif given.kind == "hashes":
            source = RedisHashSource(redis, given.source[0], max_page_bytes=settings.max_page_bytes)
        elif given.kind == "warc":
            source = WarcSource(given.source, max_page_bytes=settings.max_page_bytes)
        else:
            source = FileSource(given.source, max_page_bytes=settings.max_page_bytes)
        report = pump(
            source,
            ledger,
            schema=fix_schema(schemas.SchemaRegistry(redis, settings.namespace), given.schema),
            model=settings.model,
            options=parse_options({"max_tokens": settings.max_tokens}),
            batch=given.batch,
            ring=lambda: ring(app, redis, settings.queue),
            stop=stop.is_set,
        )
    except (Refused, schemas.SchemaRefused) as refused:
        print(f"pagemill: {refused} ({refused.reason})", file=sys.stderr)
        return 1
    print(msgspec.json.encode(report).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
