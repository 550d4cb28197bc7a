"""How good records are, end to end, field by field, by the data's own score.py.

    python benchmarks/quality.py DIR --limit 20 --json

DIR has score.py and a folder per set with gold.jsonl and pages. Each page goes the whole way with
the default model, once with the page's metadata (`on`: known values and the metadata block) and
once without (`off`); `--modes known` leaves the model out: the record is what is known. Pages are
taken evenly from each set's file. Keys: `<set>.<mode>.<field>.{precision,recall,f1}`, and of the
first mode `evidence.{share,correct,pieces}`: string values that have evidence; of evidence that
says `exact`, the share whose place holds the value; of places in the visible text, the share whose
pieces of the source say the same. `baselines`: published outputs for the same products.

`--ablate` takes 40 pages of each set through `on` and then with one part after the other left out:
`off`, `no_known_values` (the model answers what metadata would) and `one_window` (long pages are
cut).
"""

from __future__ import annotations

import argparse
import html
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pagemill import schemas
from pagemill.extraction import known as known_values
from pagemill.extraction.bound_schema import BoundSchema, bind
from pagemill.extraction.extractor import Extractor
from pagemill.extraction.page import Page, read
from pagemill.extraction.reason import Refused
from pagemill.extraction.record import Evidence, ExtractOptions, PageInput, Result

# Of each set: the schema, and the gold fields with the schema's fields that answer them.
SETS: dict[str, tuple[str, dict[str, str]]] = {
    "products": (
        "product",
        {name: name for name in ("price", "sku", "availability", "brand", "mpn", "gtin")},
    ),
    "recipes": (
        "recipe",
        {
            "title": "title",
            "author": "author",
            "yields": "yields",
            "prep_time": "prep_minutes",
            "cook_time": "cook_minutes",
            "total_time": "total_minutes",
            "ingredients": "ingredients",
            "instructions_list": "instructions",
        },
    ),
    "dates": ("article", {"date": "date_published"}),
    "article_meta": (
        "article",
        {"title": "title", "author": "authors", "date": "date_published"},
    ),
}
# What differs from the defaults; `known` has no model.
MODES: dict[str, dict[str, Any]] = {
    "on": {},
    "off": {"metadata": False},
    "no_known_values": {"known_values": False},
    "one_window": {"max_windows": 1},
    "known": {},
}
ABLATED_PAGES = 40
Lines = list[dict[str, Any]]


def pages_of(folder: Path, limit: int, fields: Sequence[str]) -> Lines:
    """`limit` labelled lines spread over the set."""
    text = (folder / "gold.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.split("\n") if line]
    lines = [line for line in lines if any(line["gold"].get(field) for field in fields)]
    step = max(1.0, len(lines) / limit) if limit > 0 else 1.0
    return [lines[int(i * step)] for i in range(min(len(lines), int(len(lines) / step)))]


def input_of(folder: Path, line: dict[str, Any]) -> PageInput:
    return PageInput(id=line["id"], url=line["url"], body=(folder / line["html"]).read_bytes())


def known_alone(page: PageInput, schema: BoundSchema) -> Result:
    """What is known without a model; the other fields are absent."""
    try:
        content = read(page.body, url=page.url)
    except Refused as refusal:
        return Result.failed(page, refusal.reason, str(refusal))
    found = known_values.find(content, schema.known_sources)
    record = {pointer[1:]: value.value for pointer, value in found.values.items()}
    evidence = found.evidence()
    return Result(id=page.id, url=page.url, status="done", record=record, evidence=evidence)


def score(data: Path, lines: Lines, results: dict[str, Any], fields: Sequence[str]) -> Any:
    """The report of score.py on these lines alone."""
    with tempfile.TemporaryDirectory() as folder:
        gold, predicted = Path(folder, "gold.jsonl"), Path(folder, "predicted.jsonl")
        gold.write_text("".join(json.dumps(line) + "\n" for line in lines))
        predicted.write_text(
            "".join(
                json.dumps({"id": line["id"], "record": results.get(line["id"])}) + "\n"
                for line in lines
            )
        )
        command = [sys.executable, str(data / "score.py"), str(gold), str(predicted), "--json"]
        command += ["--labelled-only", "--fields", ",".join(fields)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)


def per_field(report: Any) -> dict[str, dict[str, float | None]]:
    kept = ("precision", "recall", "f1")
    return {
        name: {key: value if (value := field.get(key)) is None else round(value, 3) for key in kept}
        for name, field in report["fields"].items()
    }


def strings_of(record: Any, at: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(record, str) and record:
        yield at, record
    elif isinstance(record, dict):
        for key, value in record.items():
            yield from strings_of(value, f"{at}/{key}")
    elif isinstance(record, list):
        for i, value in enumerate(record):
            yield from strings_of(value, f"{at}/{i}")


# What stands between texts of different elements, of ours or as white space.
_JOINTS = re.compile(r"[\s|~\[\]#:/-]+")


def said_by_source(page: Page, start: int, end: int) -> bool:
    """Whether the source's pieces for a place say what stands there."""
    pieces = page.source_pieces(start, end)
    source = "".join(html.unescape(page.source[piece.start : piece.end]) for piece in pieces)
    return _JOINTS.sub("", source) == _JOINTS.sub("", page.text[start:end])


class EvidenceCount:
    """How many string values have evidence, and whether it is right."""

    def __init__(self) -> None:
        self.strings = self.with_evidence = self.exact = self.right = 0
        self.places = self.right_pieces = 0

    def add(self, page: PageInput, result: Result) -> None:
        if result.record is None:
            return
        content = read(page.body, url=page.url)
        told: dict[str, Evidence] = {each.pointer: each for each in result.evidence}
        for pointer, value in strings_of(result.record):
            self.strings += 1
            evidence = told.get(pointer)
            if evidence is None:
                continue
            self.with_evidence += 1
            if evidence.source == "text":
                text: str | None = content.text
                self.places += 1
                self.right_pieces += said_by_source(content, evidence.start, evidence.end)
            elif evidence.source == "link":
                text = next(link.href for link in content.links() if link.id == evidence.path)
            elif evidence.path == "url":
                text = page.url
            else:
                text = content.metadata.value_at(evidence.path)
            if evidence.exact:
                self.exact += 1
                self.right += text is not None and text[evidence.start : evidence.end] == value

    def as_json(self) -> dict[str, float | None]:
        return {
            "share": round(self.with_evidence / self.strings, 4) if self.strings else None,
            "correct": round(self.right / self.exact, 4) if self.exact else None,
            "pieces": round(self.right_pieces / self.places, 4) if self.places else None,
        }


def out_of_stock_recall(lines: Lines, results: dict[str, Any]) -> float | None:
    wanted = [line["id"] for line in lines if "OutOfStock" in line["gold"].get("availability", ())]
    right = sum((results.get(each) or {}).get("availability") == "OutOfStock" for each in wanted)
    return round(right / len(wanted), 3) if wanted else None


def baselines(data: Path, lines: Lines) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("zyte", "diffbot", "extruct"):
        path = data / "products" / f"baseline_{name}.json"
        if path.exists():
            report = score(
                data, lines, json.loads(path.read_text()), ("price", "sku", "availability")
            )
            found[name] = {field: each["f1"] for field, each in per_field(report).items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--modes", default="on,off", help=f"of {', '.join(MODES)}")
    parser.add_argument("--ablate", action="store_true", help="one part after the other left out")
    parser.add_argument("--limit", type=int, help="pages of each set (10); 0: all")
    parser.add_argument("--model", default=None)
    parser.add_argument("--max-tokens", type=int, default=768)
    parser.add_argument("--max-page-tokens", type=int, default=3072)
    parser.add_argument("--max-windows", type=int, default=ExtractOptions().max_windows)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    modes = arguments.modes.split(",")
    if arguments.ablate:
        modes = [mode for mode in MODES if mode != "known"]
    if arguments.limit is None:
        arguments.limit = ABLATED_PAGES if arguments.ablate else 10
    if unknown := set(modes) - set(MODES):
        parser.error(f"no mode {unknown.pop()}: there are {', '.join(MODES)}")
    found: dict[str, Any] = {}
    count = EvidenceCount()
    with ExitStack() as stack:
        runner: Any = None
        if set(modes) - {"known"}:
            runner = _Runner(arguments, stack)
        for name in arguments.sets.split(","):
            schema_name, fields = SETS[name]
            folder = arguments.data / name
            schema = bind(schemas.library.get(schema_name))
            lines = pages_of(folder, arguments.limit, list(fields))
            pages = [input_of(folder, line) for line in lines]
            found[name] = {"pages": len(pages)}
            for mode in modes:
                started = time.perf_counter()
                if mode == "known":
                    results = [known_alone(page, schema) for page in pages]
                else:
                    results = runner.run(pages, schema, MODES[mode])
                records = {
                    result.id: {
                        gold: result.record[field]
                        for gold, field in fields.items()
                        if field in result.record
                    }
                    for result in results
                    if isinstance(result.record, dict)
                }
                report = per_field(score(arguments.data, lines, records, list(fields)))
                if name == "products":
                    report["availability"]["out_of_stock_recall"] = out_of_stock_recall(
                        lines, records
                    )
                report["seconds"] = round(time.perf_counter() - started, 1)  # type: ignore[assignment]
                found[name][mode] = report
                print(name, mode, json.dumps(report), file=sys.stderr, flush=True)
                if mode == modes[0]:
                    by_id = {page.id: page for page in pages}
                    for result in results:
                        count.add(by_id[result.id], result)
            if name == "products":
                found["baselines"] = baselines(arguments.data, lines)
    found["evidence"] = count.as_json()
    print(json.dumps(found, indent=None if arguments.json else 1))


class _Runner:
    """The default model in this process."""

    def __init__(self, arguments: argparse.Namespace, stack: ExitStack) -> None:
        from pagemill.engine import store
        from pagemill.engine.config import EngineConfig
        from pagemill.engine.inprocess import InProcessEngine
        from pagemill.engine.tokenizer import Tokenizer

        config = EngineConfig(model=arguments.model or store.DEFAULT_MODEL)
        tokenizer = Tokenizer.load(store.resolve(config.model).directory)
        self._engine = stack.enter_context(InProcessEngine.start(config))
        self._extractor = Extractor(tokenizer, max_model_len=self._engine.info.max_model_len)
        self._options = {
            "max_tokens": arguments.max_tokens,
            "max_page_tokens": arguments.max_page_tokens,
            "max_windows": arguments.max_windows,
        }

    def run(
        self, pages: list[PageInput], schema: BoundSchema, changes: dict[str, Any]
    ) -> list[Result]:
        options = ExtractOptions(**(self._options | changes))
        asked = [(page, schema) for page in pages]
        return list(self._extractor.run(self._engine, asked, options))


if __name__ == "__main__":
    main()
