"""A Scrapy crawl as a source: responses into the ledger in bursts, records back as items.

    ITEM_PIPELINES = {"pagemill.workers.sources.scrapy.PagemillPipeline": 100}
    EXTENSIONS = {"pagemill.workers.sources.scrapy.PagemillRecords": 500}
    PAGEMILL_SCHEMA = "product"

A spider yields `PagemillPage(response)` for each page that it wants a record of. The pipeline
takes it out of the crawl's items once the ledger owes its record; the extension brings records
into the crawl as dicts (`id`, `url`, `status`, `record`, `error`, ...), which go through the other
pipelines and feeds like any item, and keeps the spider open until all have come. Without the
extension the crawl ends at once, and `pagemill results BATCH` has the records.

Settings, all optional but the schema: PAGEMILL_SCHEMA (a name or a JSON Schema), PAGEMILL_OPTIONS
(of the extraction), PAGEMILL_BATCH, PAGEMILL_BURST (64 pages), PAGEMILL_BURST_WAIT (0.2 s),
PAGEMILL_POLL (0.5 s), PAGEMILL_PATIENCE (seconds without a record after which the spider may
close, 600), PAGEMILL_REDIS_URL and PAGEMILL_MODEL over the environment's.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import msgspec
from pagemill.extraction.assembly import open_ledger
from pagemill.extraction.bell import Bell
from pagemill.extraction.config import load_settings
from pagemill.extraction.finished import record_line
from pagemill.extraction.intake import fix_schema, parse_options, submission
from pagemill.extraction.ledger import BatchRecord, PageSubmission
from pagemill.extraction.reason import Reason, Refused
from pagemill.schemas import SchemaRegistry
from pagemill.schemas import load as load_schema
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider, DropItem
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.utils.defer import deferred_f_from_coro_f, maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread

_FULL_PAUSE_S = 0.5
_RECORDS_AT_ONCE = 200


@dataclass
class PagemillPage:
    """A response of which a record is wanted.

    `id` comes back with the record (else the response's URL); `schema` is a name where it isn't
    the crawl's.
    """

    response: Response
    id: str | None = None
    schema: str | None = None


class _Stack:
    """Ledger, registry and bell of one crawl. Its calls block: they run in threads."""

    def __init__(self, crawler: Crawler) -> None:
        scrapy = crawler.settings
        source = scrapy.get("PAGEMILL_SCHEMA")
        if isinstance(source, str) and source.lstrip().startswith("{"):
            source = load_schema(source.encode())  # as Scrapy reads objects on its command line
        self.settings = load_settings(
            redis_url=scrapy.get("PAGEMILL_REDIS_URL"), model=scrapy.get("PAGEMILL_MODEL")
        )
        self.ledger = open_ledger(self.settings)
        self.ledger.ping()
        self.bell = Bell(self.settings, self.ledger.redis)
        self._registry = SchemaRegistry(self.ledger.redis, self.settings.namespace)
        self._refs: dict[str | None, str] = {}
        if source:
            self._refs[None] = fix_schema(self._registry, source)
        self._options = parse_options(
            {"max_tokens": self.settings.max_tokens, **scrapy.getdict("PAGEMILL_OPTIONS")}
        )

    def submission(self, page: PagemillPage) -> PageSubmission:
        response = page.response
        header = response.headers.get("Content-Type")
        return submission(
            response.body,
            schema=self._ref(page.schema),
            model=self.settings.model,
            url=response.url,
            client_id=page.id or response.url,
            content_type=header.decode("latin-1") if header else None,
            options=self._options,
        )

    def _ref(self, name: str | None) -> str:
        if name not in self._refs:
            if name is None:
                raise Refused(
                    Reason.REQUEST_INVALID,
                    "no schema for this page",
                    advice="set PAGEMILL_SCHEMA, or give PagemillPage a schema",
                )
            self._refs[name] = fix_schema(self._registry, name)
        return self._refs[name]

    def submit(self, pages: list[PagemillPage], batch: str, stopped: Callable[[], bool]) -> None:
        """Hand pages over; a full ledger is waited for, and so holds the crawl back."""
        submissions = [self.submission(page) for page in pages]
        while True:
            try:
                self.ledger.submit(submissions, batch=batch)
                break
            except Refused as refused:
                if refused.reason not in (Reason.LEDGER_FULL, Reason.RATE_LIMITED) or stopped():
                    raise
                self.bell.ring()
                time.sleep(_FULL_PAUSE_S)
        self.bell.ring()

    def close(self) -> None:
        self.bell.close()
        self.ledger.redis.close()


class _Kept:
    """What is kept of a crawl from one run to the next (JOBDIR), in the spider's `state`."""

    def __init__(self, kept: dict[str, Any]) -> None:
        self._kept = kept

    @property
    def batch(self) -> str:
        return str(self._kept["batch"])

    @property
    def cursor(self) -> str:
        return str(self._kept.get("cursor", ""))

    @cursor.setter
    def cursor(self, cursor: str) -> None:
        self._kept["cursor"] = cursor

    @property
    def pages(self) -> int:
        """Pages that the ledger has accepted."""
        return int(self._kept.get("pages", 0))

    def count(self, result: object, pages: int) -> object:
        self._kept["pages"] = self.pages + pages
        return result


def _kept(spider: Spider, settings: BaseSettings) -> _Kept:
    holder: Any = spider
    if not hasattr(holder, "state"):  # Scrapy's own extension makes it when there is a JOBDIR
        holder.state = {}
    kept: dict[str, Any] = holder.state.setdefault("pagemill", {})
    if "batch" not in kept:
        word = re.sub(r"[^A-Za-z0-9_.-]", "_", spider.name)[:64]
        kept["batch"] = settings.get("PAGEMILL_BATCH") or f"scrapy-{word}-{uuid.uuid4().hex}"
        spider.logger.info("pagemill: pages go into batch %s", kept["batch"])
    return _Kept(kept)


class PagemillPipeline:
    """Hands the crawl's `PagemillPage` items to the ledger; other items pass through.

    A page that the ledger refuses (too large, say) is logged as an error of the item.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._burst_size = crawler.settings.getint("PAGEMILL_BURST", 64)
        self._burst_wait_s = crawler.settings.getfloat("PAGEMILL_BURST_WAIT", 0.2)
        self._stack: _Stack | None = None
        self._burst: _Burst | None = None
        self._stopped = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def open_spider(self) -> None:
        """Look up the schema and reach Redis before the first request; Refused ends the crawl."""
        self._stack = await _in_thread(_Stack, self._crawler)

    async def close_spider(self) -> None:
        self._stopped = True
        if self._stack is not None:
            await _in_thread(self._stack.close)

    async def process_item(self, item: Any) -> Any:
        if not isinstance(item, PagemillPage):
            return item
        burst = self._burst
        if burst is None:
            from twisted.internet import reactor

            burst = self._burst = _Burst()
            timer: Any = reactor
            burst.timer = timer.callLater(self._burst_wait_s, self._send, burst)
        burst.pages.append(item)
        if len(burst.pages) >= self._burst_size:
            self._send(burst)
        answer: Deferred[None] = Deferred()
        burst.waiting.append(answer)
        await maybe_deferred_to_future(answer)
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value("pagemill/pages")
        raise DropItem("the ledger has the page", log_level="DEBUG")

    def _send(self, burst: _Burst) -> None:
        if self._burst is burst:
            self._burst = None
        if burst.timer is not None and burst.timer.active():
            burst.timer.cancel()
        assert self._stack is not None
        assert self._crawler.spider is not None
        # Not before: what was kept of an earlier run is there once the spider has opened.
        state = _kept(self._crawler.spider, self._crawler.settings)
        sent = deferToThread(self._stack.submit, burst.pages, state.batch, lambda: self._stopped)
        sent.addCallback(state.count, len(burst.pages))
        sent.addCallbacks(burst.accepted, burst.refused)


class _Burst:
    """Pages that go to the ledger together, and the items that wait for that."""

    def __init__(self) -> None:
        self.pages: list[PagemillPage] = []
        self.waiting: list[Deferred[None]] = []
        self.timer: Any = None

    def accepted(self, _: object) -> None:
        for answer in self.waiting:
            answer.callback(None)

    def refused(self, failure: Any) -> None:
        for answer in self.waiting:
            answer.errback(failure)


class PagemillRecords:
    """Brings the batch's records into the crawl as items, and keeps the spider open for them."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._poll_s = crawler.settings.getfloat("PAGEMILL_POLL", 0.5)
        self._patience_s = crawler.settings.getfloat("PAGEMILL_PATIENCE", 600.0)
        self._stack: _Stack | None = None
        # Pages that had been accepted when last no record was owed.
        self._settled = -1
        self._progress_at = time.monotonic()
        self._loop: LoopingCall | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        extension = cls(crawler)
        crawler.signals.connect(extension.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(extension.spider_idle, signal=signals.spider_idle)
        crawler.signals.connect(extension.spider_closed, signal=signals.spider_closed)
        return extension

    async def spider_opened(self, spider: Spider) -> None:
        self._stack = await _in_thread(_Stack, self._crawler)
        self._loop = LoopingCall(deferred_f_from_coro_f(self._poll), spider)
        self._loop.start(self._poll_s, now=False)

    def spider_idle(self, spider: Spider) -> None:
        """Hold the spider while records are owed, but not for ever."""
        kept = _kept(spider, self._crawler.settings)
        if self._settled == kept.pages:
            return
        if time.monotonic() - self._progress_at > self._patience_s:
            spider.logger.error(
                "pagemill: no record for %.0f s; `pagemill results %s` has them when they come",
                self._patience_s,
                kept.batch,
            )
            return
        raise DontCloseSpider

    async def spider_closed(self, spider: Spider) -> None:
        if self._loop is not None and self._loop.running:
            self._loop.stop()
        if self._stack is not None:
            await _in_thread(self._stack.close)

    async def _poll(self, spider: Spider) -> None:
        kept = _kept(spider, self._crawler.settings)
        pages = kept.pages
        try:
            owed, records, cursor = await _in_thread(self._look, kept.batch, kept.cursor)
        except Refused as refused:
            spider.logger.warning("pagemill: %s: %s", refused.reason, refused)
            return
        if not owed and not records:
            self._settled = pages
        engine = self._crawler.engine
        if not records or engine is None or engine.spider is None:
            return
        self._progress_at = time.monotonic()
        # A request that fetches nothing: its callback's items take the way of all items.
        request = Request(
            "data:,",
            callback=partial(self._items, records),
            priority=1000,
            dont_filter=True,
            meta={"allow_offsite": True},
        )
        engine.crawl(request)
        kept.cursor = cursor

    def _look(self, batch: str, cursor: str) -> tuple[bool, list[BatchRecord], str]:
        """Whether records are owed, and those that are new; blocks."""
        assert self._stack is not None
        ledger = self._stack.ledger
        status = ledger.batch(batch)
        if status is None:
            return False, [], cursor
        records, following = ledger.records(batch, cursor, _RECORDS_AT_ONCE)
        return not status.finished, records, following

    def _items(self, records: list[BatchRecord], response: Response) -> Iterator[dict[str, Any]]:
        for record in records:
            item: dict[str, Any] = msgspec.json.decode(record_line(record))
            if self._crawler.stats is not None:
                self._crawler.stats.inc_value(f"pagemill/records/{item['status']}")
            yield item


async def _in_thread(call: Callable[..., Any], *args: Any) -> Any:
    with_thread: Deferred[Any] = deferToThread(call, *args)
    return await maybe_deferred_to_future(with_thread)
