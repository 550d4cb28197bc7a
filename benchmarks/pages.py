"""What page reading keeps, what it costs, and how fast it is, on real pages with gold values.

    python benchmarks/pages.py DIR --json

DIR has a folder per set with gold.jsonl ({"id", "url", "html", "gold", "meta"}) and pages. The
prompt's text of a page is its visible text and its metadata block as the set's schema asks for it,
known values left out, before anything is cut for length. Per set:

- retained: share of gold values (a list's items one by one; of alternatives any) whose letters
  and digits stand in the prompt's text or in a known value; on products, of the values that stand
  in plain text.
- retained_text: the same in the visible text alone.
- chars_ratio: characters of the prompt's text / of plain text (all text outside of scripts and
  styles, white space collapsed), median over pages; text_ratio: the visible text's alone.
- chars_ratio_templates (--templates): chars_ratio once a site's first three pages were learnt, what
  its pages share being cut; lines with gold values count as such that held a value, as they would
  if records were right. retained_templates: retained of these pages.
- tokens_p50: tokens of the prompt's text, with the default model's tokenizer (--no-tokens: none).
- pages_per_s: pages read in a second of this process's CPU time, prompts and tokens left out.
- barriers: pages taken for captchas, logins and the like, by reason; gold pages are none.
- refused: pages that were not read, by reason. slowest_s: the page that took longest.

encoding_accuracy: pages of main_text decoded as their true encoding decodes them. crashes: pages
on which anything but a refusal was raised, or that took longer than the time cap.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from pagemill import schemas
from pagemill.extraction import grounding, prompt
from pagemill.extraction.known import find, known_sources
from pagemill.extraction.page import PageLimits, barrier, decode, read
from pagemill.extraction.page.decode import python_codec
from pagemill.extraction.reason import Reason, Refused
from pagemill.extraction.schema_prompt import SchemaPrompt
from pagemill.extraction.stack import EmbeddedRedis
from pagemill.extraction.templates import NOTHING, SiteTemplates
from redis import Redis
from selectolax.lexbor import LexborHTMLParser

# The fields whose values a cleaner may lose, and the schema that asks for a set's metadata.
SETS: dict[str, tuple[tuple[str, ...] | None, str | None]] = {
    "products": (("price", "brand", "sku"), "product"),
    "swde": (None, None),
    "swde_books": (None, "book"),
    "contacts": (None, None),
    "recipes": (("title", "ingredients", "instructions_list"), "recipe"),
    "article_meta": (("title", "author"), "article"),
    "articles": ((), "article"),
    "dates": ((), "article"),
    "readability": (("title", "byline"), "article"),
    "main_text": ((), None),
    "list_pages": ((), None),
    "news_multilingual": (("title",), "article"),
}
_UNSEEN = "script, style, noscript, template, head"
_NO_LETTERS = re.compile(r"[\W_]+")
_WORD = re.compile(r"\S+")
_ROOM = 1 << 22


class _Words:
    """Stands in for a tokenizer where tokens don't count."""

    lines_apart = False

    def encode(self, text: str) -> np.ndarray:
        return self.encode_with_starts(text)[0]

    def encode_with_starts(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        starts = np.array([word.start() for word in _WORD.finditer(text)], np.int32)
        return np.zeros(len(starts), np.int32), starts

    def chat(self, messages: list[dict[str, Any]]) -> list[Any]:
        return [np.zeros(1, np.int32) for _ in messages]


def letters(text: str) -> str:
    """Letters and digits alone, in one form: what a layout or a syntax can't change."""
    return _NO_LETTERS.sub("", unicodedata.normalize("NFKC", text).casefold())


def plain_text(source: str) -> str:
    """All text outside of scripts and styles, hidden or not."""
    tree = LexborHTMLParser(source)
    for node in tree.css(_UNSEEN):
        node.decompose()
    root = tree.body or tree.root
    return " ".join(root.text(separator=" ").split()) if root is not None else ""


def wanted_values(gold: dict[str, Any], fields: tuple[str, ...] | None, any_of: bool) -> Iterator:
    """(field, alternatives) of each gold value."""
    for field, value in gold.items():
        if fields is not None and field not in fields:
            continue
        items = value if isinstance(value, list) else [value]
        texts = [str(item) for item in items if isinstance(item, str | int | float)]
        if any_of and texts:
            yield field, texts
        elif not any_of:
            yield from ((field, [text]) for text in texts)


class SetReport:
    """Counts of one set."""

    def __init__(self) -> None:
        self.kept: Counter[str] = Counter()
        self.kept_in_text: Counter[str] = Counter()
        self.wanted: Counter[str] = Counter()
        self.ratios: list[float] = []
        self.text_ratios: list[float] = []
        self.tokens: list[int] = []
        self.cut_ratios: list[float] = []
        self.cut_wanted = self.cut_kept = 0
        self.refused: Counter[str] = Counter()
        self.barriers: Counter[str] = Counter()
        self.crashes: list[str] = []
        self.pages = 0
        self.seconds = 0.0
        self.slowest = 0.0

    def templates_json(self) -> dict[str, Any]:
        if not self.cut_ratios:
            return {}
        kept = self.cut_kept / self.cut_wanted if self.cut_wanted else 1.0
        return {
            "chars_ratio_templates": round(median(self.cut_ratios), 3),
            "retained_templates": round(kept, 4),
            "pages_templates": len(self.cut_ratios),
        }

    def as_json(self) -> dict[str, Any]:
        wanted = sum(self.wanted.values())
        return self.templates_json() | {
            "pages": self.pages,
            "retained": round(sum(self.kept.values()) / wanted, 4) if wanted else None,
            "retained_text": round(sum(self.kept_in_text.values()) / wanted, 4) if wanted else None,
            "by_field": {
                field: round(self.kept[field] / count, 3) for field, count in self.wanted.items()
            },
            "chars_ratio": round(median(self.ratios), 3) if self.ratios else None,
            "text_ratio": round(median(self.text_ratios), 3) if self.text_ratios else None,
            "tokens_p50": int(median(self.tokens)) if self.tokens else None,
            "pages_per_s": round(self.pages / self.seconds, 1) if self.seconds else None,
            "slowest_s": round(self.slowest, 3),
            "barriers": dict(self.barriers),
            "refused": dict(self.refused),
        }


def lines_of(folder: Path, limit: int) -> Iterator[dict[str, Any]]:
    with (folder / "gold.jsonl").open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number == limit:
                return
            yield json.loads(line)


def measure(
    folder: Path,
    limit: int,
    tokenizer: Any,
    *,
    speed_only: bool,
    misses: bool,
    native: bool,
    sites: SiteTemplates | None = None,
) -> Any:
    fields, name = SETS[folder.name]
    schema = SchemaPrompt.of(schemas.library.get(name)) if name else SchemaPrompt("")
    sources = known_sources(schemas.library.get(name)) if name else ()
    report = SetReport()
    for line in lines_of(folder, limit):
        body = (folder / line["html"]).read_bytes()
        started, cpu = time.monotonic(), time.process_time()
        try:
            page = read(body, url=line.get("url"), native=native)
        except Refused as refusal:
            page = None
            report.refused[refusal.reason.value] += 1
            slow = refusal.reason is Reason.PAGE_UNREADABLE
            if slow and time.monotonic() - started > PageLimits().max_seconds:
                report.crashes.append(line["id"])
        except Exception as error:
            page = None
            report.crashes.append(f"{line['id']}: {type(error).__name__}")
        report.seconds += time.process_time() - cpu
        report.slowest = max(report.slowest, time.process_time() - cpu)
        report.pages += 1
        if page is None or speed_only:
            continue
        try:
            barrier.check(page)
        except Refused as refusal:
            report.barriers[refusal.reason.value] += 1
            if misses:
                print(f"{line['id']}\t{refusal.reason.value}", file=sys.stderr)
        known = find(page, sources)
        [built] = prompt.build(
            tokenizer,
            schema,
            page,
            budget=_ROOM,
            max_page_tokens=_ROOM,
            known=known.fields(),
        )
        site = sites.template(page.url, tenant="", schema=folder.name) if sites else NOTHING
        if site is not NOTHING:
            text = site.cut(page.text)
            [cut] = prompt.build(
                tokenizer,
                schema,
                page,
                budget=_ROOM,
                max_page_tokens=_ROOM,
                known=known.fields(),
                text=text,
            )
        told = [json.dumps(each.value, ensure_ascii=False) for each in known.values.values()]
        report.tokens.append(len(tokenizer.encode(built.page_text)))
        plain = plain_text(page.source)
        if len(plain) > 200:
            report.ratios.append(len(built.page_text) / len(plain))
            report.text_ratios.append(len(page.text) / len(plain))
            if site is not NOTHING:
                report.cut_ratios.append(len(cut.page_text) / len(plain))
        any_of = bool(line["meta"].get("gold_is_list_of_alternatives"))
        whole, seen = letters(" ".join([built.page_text, *told])), letters(page.text)
        visible = letters(plain) if any_of else ""
        for field, texts in wanted_values(line["gold"], fields, any_of):
            looked_for = [letters(text) for text in texts if letters(text)]
            if not looked_for or (any_of and not any(text in visible for text in looked_for)):
                continue
            report.wanted[field] += 1
            report.kept[field] += any(text in whole for text in looked_for)
            report.kept_in_text[field] += any(text in seen for text in looked_for)
            if site is not NOTHING:
                in_cut = letters(" ".join([cut.page_text, *told]))
                report.cut_wanted += 1
                report.cut_kept += any(text in in_cut for text in looked_for)
            if misses and not any(text in whole for text in looked_for):
                print(f"{line['id']}\t{field}\t{texts[0][:120]!r}", file=sys.stderr)
        if sites is not None:
            evidence = grounding.locate(line["gold"], page.text)
            sites.learn(page.url, page.text, evidence, tenant="", schema=folder.name)
    return report


def encoding_accuracy(folder: Path) -> float:
    """Share of pages whose text is what their true encoding makes of them."""
    right = total = 0
    for line in lines_of(folder, -1):
        codec = python_codec(line["meta"].get("encoding", {}).get("encoding"))
        if codec is None:
            continue
        body = (folder / line["html"]).read_bytes()
        total += 1
        right += decode(body).text == body.decode(codec, "replace").removeprefix("\ufeff")
    return round(right / total, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--limit", type=int, default=-1, help="pages of each set")
    parser.add_argument("--model", default=None, help="whose tokenizer counts the tokens")
    parser.add_argument("--no-tokens", action="store_true")
    parser.add_argument("--speed-only", action="store_true", help="read the pages, nothing else")
    parser.add_argument("--python", action="store_true", help="the text by a walk in Python")
    parser.add_argument("--templates", action="store_true", help="learn sites as pages go by")
    parser.add_argument("--misses", action="store_true", help="name the values that are lost")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    tokenizer: Any = _Words()
    if not (arguments.no_tokens or arguments.speed_only):
        from pagemill.engine import store
        from pagemill.engine.tokenizer import Tokenizer

        tokenizer = Tokenizer.load(store.resolve(arguments.model or store.DEFAULT_MODEL).directory)
    with ExitStack() as stack:
        sites = None
        if arguments.templates:
            redis = Redis.from_url(stack.enter_context(EmbeddedRedis(fsync="no")).url)
            sites = SiteTemplates(redis, kept_s=0.0)
        run(arguments, tokenizer, sites)


def run(arguments: argparse.Namespace, tokenizer: Any, sites: SiteTemplates | None) -> None:
    found: dict[str, Any] = {}
    crashes: list[str] = []
    for name in arguments.sets.split(","):
        folder = arguments.data / name
        if not (folder / "gold.jsonl").exists():
            print(f"{name}: not in {arguments.data}", file=sys.stderr)
            continue
        report = measure(
            folder,
            arguments.limit,
            tokenizer,
            speed_only=arguments.speed_only,
            misses=arguments.misses,
            native=not arguments.python,
            sites=sites,
        )
        crashes += report.crashes
        found[name] = report.as_json()
        if arguments.no_tokens:
            found[name].pop("tokens_p50")
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    if "main_text" in found:
        found["encoding_accuracy"] = encoding_accuracy(arguments.data / "main_text")
    for crash in crashes:
        print(f"crash: {crash}", file=sys.stderr)
    found["crashes"] = len(crashes)
    print(json.dumps(found, indent=None if arguments.json else 1))


if __name__ == "__main__":
    main()
