"""A burst of pages through `/v1/chat/completions`: how fast records come, and in what memory.

    python benchmarks/burst.py --pages DIR --limit 32 --json

DIR is a folder of .txt files. Starts an engine and the API for each kind of weights, sends all
pages at once, each as a streamed chat completion with `response_format` json_schema, and measures
at the client. System message and schema are the same for all pages, and the engine is fresh: the
prefix is shared, but no page is known, and draft stores are cold.

Keys, for each of --kinds: pages_per_s, prompt_tok_per_s, output_tok_per_s, latency_p50_s,
latency_p95_s, ttft_p50_s, ttft_p95_s, valid_share (against the schema, by jsonschema),
peak_rss_mib (engine, API and its server, sampled), output_tokens_mean, drafted_share,
python_share (of the step loop's time, what isn't spent in the decoder's one call: the loop,
masks, drafts). With fp32 among the kinds:
identical_share and field_agreement of the others' records with fp32's, and output_tokens_ratio, the
mean number of output tokens over fp32's. With --ablate also `without`: the same keys with one
optimisation off; --only NAME runs some of them, without the run that has all on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jsonschema
from pagemill.engine import EngineClient
from pagemill.extraction.config import Settings
from pagemill.extraction.stack import ApiProcess, EmbeddedRedis, EngineProcess

INSTRUCTIONS = (
    "You are given the text of a web page. Answer with one JSON object that describes the page, "
    "and nothing else. Take only what the page itself says: its title word for word, its author "
    "and its date of publication where they are named, otherwise null. Give the language as a "
    "code. Sum the page up in one or two sentences, and add up to five short tags. The object "
    "follows this JSON Schema:\n"
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["title", "author", "date_published", "language", "summary", "tags"],
    "properties": {
        "title": {"type": "string", "maxLength": 200},
        "author": {"anyOf": [{"type": "string", "maxLength": 100}, {"type": "null"}]},
        "date_published": {"anyOf": [{"type": "string", "maxLength": 40}, {"type": "null"}]},
        "language": {
            "enum": ["en", "de", "fr", "es", "it", "pt", "nl", "pl", "ru", "zh", "ja", "other"]
        },
        "summary": {"type": "string", "maxLength": 300},
        "tags": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 40}},
    },
}
# Engine options that switch one optimisation off.
ABLATIONS = {
    "drafts": ["--speculation", "off"],
    "forced_runs": ["--speculation", "page"],
    "copied_spans": ["--speculation", "forced"],
    "prefix_cache": ["--no-enable-prefix-caching"],
    "cascade": ["--no-enable-cascade-attention"],
    "int8_kv": ["--kv-cache-dtype", "fp32"],
    # Every prompt in one step, so that the step has to hold the longest.
    "chunked_prefill": [
        *("--no-enable-chunked-prefill", "--max-model-len", "4096"),
        *("--max-num-batched-tokens", "4096"),
    ],
    "batching": ["--max-num-seqs", "1"],
    "sparse_logits": ["--no-sparse-logits"],
    "amx": ["--instruction-set", "avx512"],
    "avx512": ["--instruction-set", "avx2"],
}
TIMEOUT_S = 1800.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of the others lie, by interpolation."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


class Memory(threading.Thread):
    """Samples the resident memory of some processes and their descendants; `peak` in bytes."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__(daemon=True)
        self.pids = pids
        self.peak = 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.2):
            self.peak = max(self.peak, sum(_resident(pid) for pid in self._family()))

    def _family(self) -> set[int]:
        parents: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    parents[int(entry.name)] = int(fields[1])
        family = set(self.pids)
        while more := {child for child, parent in parents.items() if parent in family} - family:
            family |= more
        return family


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    return 0


@dataclass
class Answer:
    """What came for one page."""

    text: str = ""
    finish: str | None = None
    ttft_s: float | None = None
    latency_s: float = 0.0
    usage: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


async def ask(client: httpx.AsyncClient, body: dict[str, Any]) -> Answer:
    answer = Answer()
    started = time.perf_counter()
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
            if reply.status_code != 200:
                answer.error = f"{reply.status_code} {(await reply.aread())[:200]!r}"
                return answer
            async for line in reply.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    answer.error = str(event["error"])
                answer.usage = event.get("usage") or answer.usage
                for choice in event.get("choices", ()):
                    if piece := choice["delta"].get("content"):
                        answer.ttft_s = answer.ttft_s or time.perf_counter() - started
                        answer.text += piece
                    answer.finish = choice.get("finish_reason") or answer.finish
    except httpx.HTTPError as error:
        answer.error = repr(error)
    answer.latency_s = time.perf_counter() - started
    return answer


async def send(
    url: str, pages: list[str], schema: dict[str, Any], max_tokens: int, tag: str
) -> list[Answer]:
    system = INSTRUCTIONS + json.dumps(schema)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=url, timeout=TIMEOUT_S, limits=limits, trust_env=False
    ) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]
        shape = {"name": "page", "strict": True, "schema": schema}
        bodies = [
            {
                "model": model,
                "messages": [
                    {"role": "system", "content": system},
                    {"role": "user", "content": f"{tag}\n{page}"},
                ],
                "max_tokens": max_tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "response_format": {"type": "json_schema", "json_schema": shape},
            }
            for page in pages
        ]
        return list(await asyncio.gather(*(ask(client, body) for body in bodies)))


def records_of(answers: list[Answer], schema: dict[str, Any]) -> list[dict[str, Any] | None]:
    """The valid records; None for a page without one."""
    validator = jsonschema.Draft202012Validator(schema)
    records: list[dict[str, Any] | None] = []
    for answer in answers:
        record = None
        with contextlib.suppress(json.JSONDecodeError):
            record = json.loads(answer.text)
        valid = answer.error is None and validator.is_valid(record)
        records.append(record if valid else None)
    return records


def measure(
    pages: list[str], schema: dict[str, Any], options: list[str], max_tokens: int, tag: str
) -> tuple[dict[str, Any], list[dict[str, Any] | None]]:
    """One burst at a fresh engine: figures, and the valid records."""
    with EmbeddedRedis() as server, EngineProcess(options=options) as engine:
        settings = Settings(redis_url=server.url, engine_endpoint=engine.endpoint)
        with ApiProcess(settings) as api, EngineClient.connect(engine.endpoint) as watcher:
            # Compiles the schema and the instructions' tokens once; none of the burst's pages.
            warm = asyncio.run(send(api.url, ["Nothing."], schema, max_tokens, "warm"))
            if warm[0].error:
                raise SystemExit(f"the warm-up failed: {warm[0].error}")
            before = dict(watcher.stats().counters)
            memory = Memory([engine.pid, api.pid, server.pid])
            memory.start()
            started = time.perf_counter()
            answers = asyncio.run(send(api.url, pages, schema, max_tokens, tag))
            wall = time.perf_counter() - started
            memory.done.set()
            memory.join()
            after = watcher.stats().counters
    records = records_of(answers, schema)
    good = [answer for answer in answers if answer.error is None]
    for problem in sorted({answer.error for answer in answers if answer.error})[:3]:
        say(f"  error: {problem}")
    if not good:
        raise SystemExit("no page was answered")
    spent = {name: after[name] - before.get(name, 0) for name in after}
    steps_us = spent["plan_us"] + spent["execute_us"] + spent["commit_us"]
    outputs = [answer.usage["completion_tokens"] for answer in good]
    first = [answer.ttft_s for answer in good if answer.ttft_s is not None]
    latencies = [answer.latency_s for answer in good]
    figures = {
        "pages_per_s": len(good) / wall,
        "prompt_tok_per_s": sum(answer.usage["prompt_tokens"] for answer in good) / wall,
        "output_tok_per_s": sum(outputs) / wall,
        "latency_p50_s": quantile(latencies, 0.5),
        "latency_p95_s": quantile(latencies, 0.95),
        "ttft_p50_s": quantile(first, 0.5),
        "ttft_p95_s": quantile(first, 0.95),
        "valid_share": sum(record is not None for record in records) / len(answers),
        "peak_rss_mib": memory.peak / 2**20,
        "output_tokens_mean": statistics.fmean(outputs),
        "drafted_share": (spent["forced_tokens"] + spent["copied_tokens"]) / max(1, sum(outputs)),
        "python_share": 1 - spent["forward_us"] / max(1, steps_us),
        "wall_s": wall,
        "steps": spent["steps"],
    }
    return figures, records


def agreement(
    records: list[dict[str, Any] | None], others: list[dict[str, Any] | None]
) -> dict[str, float]:
    """Shares of records and of their fields that are the same in both runs."""
    same = fields = equal = 0
    for one, other in zip(records, others, strict=True):
        same += one == other
        if one is not None and other is not None:
            fields += len(one)
            equal += sum(one[name] == other.get(name) for name in one)
    return {"identical_share": same / len(records), "field_agreement": equal / max(1, fields)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=Path, required=True, help="folder of .txt files")
    parser.add_argument("--limit", type=int, default=0, help="only the first pages (0: all)")
    parser.add_argument("--kinds", nargs="+", default=["int8", "bf16"], help="values of --dtype")
    parser.add_argument("--schema", type=Path, help="another JSON Schema file")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--ablate", action="store_true", help="also with each optimisation off")
    parser.add_argument("--only", nargs="+", choices=ABLATIONS, help="of the ablations only these")
    parser.add_argument("--engine-option", nargs="+", default=[], help="words for the engine")
    parser.add_argument("--json", action="store_true", help="figures as the last line of output")
    arguments = parser.parse_args()

    files = sorted(arguments.pages.glob("*.txt"))
    pages = [file.read_text() for file in files[: arguments.limit or None]]
    if not pages:
        parser.error(f"no .txt files in {arguments.pages}")
    schema = json.loads(arguments.schema.read_text()) if arguments.schema else SCHEMA
    results: dict[str, dict[str, Any]] = {}
    records: dict[str, list[dict[str, Any] | None]] = {}
    for kind in arguments.kinds:
        options = ["--dtype", kind, *arguments.engine_option]
        # Pages stand behind the same tag in all runs, so that records can be compared.
        tag = "Page " + hashlib.sha256(str(len(pages)).encode()).hexdigest()[:6]
        results[kind] = {}
        if not arguments.only:
            results[kind], records[kind] = measure(
                pages, schema, options, arguments.max_tokens, tag
            )
            say(f"{kind}: " + _line(results[kind]))
        if arguments.ablate or arguments.only:
            without = results[kind]["without"] = {}
            for name in arguments.only or ABLATIONS:
                without[name], _ = measure(
                    pages, schema, options + ABLATIONS[name], arguments.max_tokens, tag
                )
                say(f"{kind} without {name}: " + _line(without[name]))
    if "fp32" in records:
        for kind, found in records.items():
            if kind != "fp32":
                beside = agreement(found, records["fp32"])
                lengths = [results[name]["output_tokens_mean"] for name in (kind, "fp32")]
                beside["output_tokens_ratio"] = lengths[0] / lengths[1]
                results[kind] |= beside
                say(f"{kind} beside fp32: {_line(beside)}")
    if arguments.json:
        print(json.dumps(results))
    return 0


def _line(figures: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


if __name__ == "__main__":
    sys.exit(main())
