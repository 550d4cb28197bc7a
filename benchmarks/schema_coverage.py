"""How much of real-world JSON Schema the compiler serves, and whether it is ever wrong.

    python benchmarks/schema_coverage.py DATA [--json] [--limit N] [--split NAME] [--strict]
                                         [--without-llguidance]

DATA holds `index.jsonl` and schema files with labelled instances (MaskBench's form). A schema
passes when it compiles, no valid instance is refused and no invalid one accepted. Instances are
taken in the form that a record has: compact, members in declared order. Schemas are read as the
standard has it (`x-pagemill-standard`), since that is how the instances were labelled; --strict
takes them as an extraction would, with closed objects and without unknown names. Caches start
empty; the compiling process is warm. llguidance gets the same texts in the same run, where it is
installed. With --json the last line of standard output is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from pagemill._core import ByteDfa
from pagemill.schemas import SchemaReason, SchemaRefused
from pagemill.schemas.compiler import Compiler


@dataclass
class Split:
    """Counts of schemas; `valid_refused` and `invalid_accepted` have at least one such instance."""

    n: int = 0
    compiled: int = 0
    refused: int = 0
    timeout: int = 0
    valid_refused: int = 0
    invalid_accepted: int = 0
    passed: int = 0


@dataclass
class Outcome:
    split: Split
    llguidance: Split = field(default_factory=Split)
    compile_ms: list[float] = field(default_factory=list)


def orders(schema: Any, ranks: dict[str, int]) -> dict[str, int]:
    """Every declared name of a schema with its place among all."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        for name in properties if isinstance(properties, dict) else ():
            ranks.setdefault(name, len(ranks))
        for value in schema.values():
            orders(value, ranks)
    elif isinstance(schema, list):
        for item in schema:
            orders(item, ranks)
    return ranks


def resolve(root: Any, schema: Any, hops: int = 0) -> list[dict[str, Any]]:
    """The object schemas that speak of the value itself, through references and combinations."""
    if not isinstance(schema, dict) or hops > 12:
        return []
    found = [schema]
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        target = root
        try:
            for token in reference[1:].split("/")[1:]:
                token = token.replace("~1", "/").replace("~0", "~")
                target = target[int(token)] if isinstance(target, list) else target[token]
        except (KeyError, IndexError, ValueError, TypeError):
            target = None
        found += resolve(root, target, hops + 1)
    for keyword in ("allOf", "anyOf", "oneOf"):
        for branch in schema.get(keyword) or []:
            found += resolve(root, branch, hops + 1)
    return found


def in_declared_order(root: Any, schemas: list[dict[str, Any]], value: Any) -> Any:
    """The instance with the members of each object in the order in which they are declared."""
    if isinstance(value, dict):
        names: dict[str, None] = {}
        for schema in schemas:
            if isinstance(schema.get("properties"), dict):
                names.update(dict.fromkeys(schema["properties"]))
        for schema in schemas:
            required = schema.get("required")
            if isinstance(required, list):
                names.update(dict.fromkeys(n for n in required if isinstance(n, str)))
        ordered = [n for n in names if n in value] + [n for n in value if n not in names]
        result = {}
        for name in ordered:
            below: list[dict[str, Any]] = []
            for schema in schemas:
                properties = schema.get("properties")
                if isinstance(properties, dict) and name in properties:
                    below += resolve(root, properties[name])
                elif "additionalProperties" in schema:
                    below += resolve(root, schema["additionalProperties"])
            result[name] = in_declared_order(root, below, value[name])
        return result
    if isinstance(value, list):
        below = []
        for schema in schemas:
            items = schema.get("items")
            for item in items if isinstance(items, list) else [items]:
                below += resolve(root, item)
            for item in schema.get("prefixItems") or []:
                below += resolve(root, item)
        return [in_declared_order(root, below, item) for item in value]
    return value


def text_of(schema: Any, value: Any) -> bytes:
    ordered = in_declared_order(schema, resolve(schema, schema), value)
    text = json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def measure(
    compiler: Compiler, name: str, case: dict[str, Any], outcome: Outcome, notes: Counter[str]
) -> None:
    """Compile one schema and try its instances."""
    split = outcome.split
    split.n += 1
    try:
        made = compiler.compile(case["schema"], 2.0, 1 << 30)
    except SchemaRefused as refusal:
        if refusal.reason is SchemaReason.SCHEMA_COMPILE_TIMEOUT:
            split.timeout += 1
        else:
            split.refused += 1
        last = refusal.at.rsplit("/", 1)[-1]
        notes[f"{refusal.reason.value}: {refusal.message[:60]} [{last[:20]}]"] += 1
        print(f"refused {name}: {refusal}", file=sys.stderr)
        return
    outcome.compile_ms.append(made.compile_ms)
    dfa = ByteDfa.from_bytes(made.table)
    judge(name, case, dfa.accepts, split, sys.stderr)


def judge(
    name: str,
    case: dict[str, Any],
    accepts: Callable[[bytes], bool],
    split: Split,
    log: TextIO | None,
) -> None:
    """Try the instances of a schema that compiled."""
    split.compiled += 1
    wrong = {True: 0, False: 0}
    for test in case.get("tests", []):
        if accepts(text_of(case["schema"], test["data"])) != test["valid"]:
            wrong[test["valid"]] += 1
            kind = "valid refused" if test["valid"] else "INVALID ACCEPTED"
            if log is not None:
                print(f"{kind} {name}: {test.get('description', '')[:80]}", file=log)
    split.valid_refused += wrong[True] > 0
    split.invalid_accepted += wrong[False] > 0
    split.passed += not any(wrong.values())


class Llguidance:
    """llguidance over single bytes, compact JSON; None of it where it isn't installed."""

    def __init__(self) -> None:
        import llguidance

        self._matcher = llguidance.LLMatcher
        self._tokenizer = llguidance.LLTokenizer("byte")

    def measure(self, case: dict[str, Any], split: Split) -> None:
        split.n += 1
        text = json.dumps(case["schema"])
        try:
            grammar = self._matcher.grammar_from_json_schema(
                text, overrides={"whitespace_flexible": False}
            )
        except ValueError:
            split.refused += 1
            return
        if self._matcher(self._tokenizer, grammar).is_error():
            split.refused += 1
            return

        def accepts(instance: bytes) -> bool:
            matcher = self._matcher(self._tokenizer, grammar)
            taken = matcher.try_consume_tokens(list(instance))
            return bool(taken == len(instance) and matcher.is_accepting())

        judge("", case, accepts, split, None)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--limit", type=int, default=0, help="schemas per split")
    parser.add_argument("--split", default="")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--without-llguidance", action="store_true")
    options = parser.parse_args()
    llguidance = None
    if not options.without_llguidance and find_spec("llguidance") is not None:
        llguidance = Llguidance()
    outcomes: dict[str, Outcome] = defaultdict(lambda: Outcome(Split()))
    notes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as cache:
        compiler = Compiler(Path(cache))
        compiler.compile({"type": "null"}, 60.0, 1 << 30)  # starts the process
        for line in (options.data / "index.jsonl").read_text().splitlines():
            entry = json.loads(line)
            name = entry["id"].split("/")[0]
            if options.split and name != options.split:
                continue
            outcome = outcomes[name]
            if options.limit and outcome.split.n >= options.limit:
                continue
            case = json.loads((options.data / entry["file"]).read_text())
            if entry["form"] != "maskbench":
                case = {"schema": case, "tests": []}
            if llguidance is not None:
                llguidance.measure(case, outcome.llguidance)
            if not options.strict and isinstance(case["schema"], dict):
                case["schema"]["x-pagemill-standard"] = True
            measure(compiler, entry["id"], case, outcome, notes)
        compiler.close()
    report(outcomes, notes, options.json)


def report(outcomes: dict[str, Outcome], notes: Counter[str], as_json: bool) -> None:
    times = sorted(ms for outcome in outcomes.values() for ms in outcome.compile_ms)
    percentiles = {
        "p50": statistics.median(times) if times else 0.0,
        "p95": times[int(len(times) * 0.95)] if times else 0.0,
    }
    total = sum(outcome.split.n for outcome in outcomes.values())
    passed = sum(outcome.split.passed for outcome in outcomes.values())
    out = sys.stderr if as_json else sys.stdout
    print(f"{'split':22}" + "".join(f"{column:>18}" for column in asdict(Split())), file=out)
    for name, outcome in outcomes.items():
        row = "".join(f"{value:>18}" for value in asdict(outcome.split).values())
        print(f"{name:22}{row}", file=out)
        if outcome.llguidance.n:
            row = "".join(f"{value:>18}" for value in asdict(outcome.llguidance).values())
            print(f"{'  llguidance':22}{row}", file=out)
    print(f"passed {passed} of {total}; compile ms {percentiles}", file=out)
    for note, count in notes.most_common(30):
        print(f"{count:5}  {note}", file=out)
    if as_json:
        result = {
            "splits": {name: asdict(outcome.split) for name, outcome in outcomes.items()},
            "pass": passed / total if total else 0.0,
            "compile_ms": percentiles,
        }
        beside = sum(outcome.llguidance.passed for outcome in outcomes.values())
        if any(outcome.llguidance.n for outcome in outcomes.values()):
            result["llguidance"] = {
                "splits": {name: asdict(outcome.llguidance) for name, outcome in outcomes.items()},
                "pass": beside / total if total else 0.0,
            }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
