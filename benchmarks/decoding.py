"""What drafts and canonical runs are worth on real pages, and that drafts change no answer.

    python benchmarks/decoding.py --data DIR --json

DIR has folders products, recipes and articles, each with gold.jsonl ({"id", "url", "html"}). The
first --pages pages of each are extracted with the library's schemas, without metadata in the
prompt, once with each setting, by one engine in this process. Pages are computed before the first
run, so that all runs find their prompts in the prefix cache: wall_s is decoding.

Settings: `off` has no drafts, `forced` and `page` one kind, `auto` both; `free` has drafts, and
takes any split of forced text; `free_off` neither; `auto_dense` computes all logits where few
tokens are legal, too; `none` has all of it off. Draft stores are cold: nothing is known of earlier
records, at every single page (`auto_warm`: but for the run's own pages).

tokens_per_pass: tokens of records / passes of requests. logit_rows: positions whose logits were
computed, sparse_logit_rows: of those where few tokens are legal. forward_s: in the model. share: of
all tokens. identical: all runs of one --canonical-runs gave the same tokens. mask_warm_us: looking
up a known mask; mask_cold_us: the longest that making one took, over all situations of the schemas'
automata.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from pagemill import _core, schemas
from pagemill.engine import store
from pagemill.engine.config import EngineConfig, set_thread_environment
from pagemill.engine.protocol import GrammarTable, Outputs, Request, Submit
from pagemill.engine.tokenizer import Tokenizer
from pagemill.engine.vocabulary import Vocabulary
from pagemill.extraction.answers import Prepared
from pagemill.extraction.bound_schema import bind
from pagemill.extraction.extractor import Extractor
from pagemill.extraction.record import ExtractOptions, PageInput

SETS = {"products": "product", "recipes": "recipe", "articles": "article"}
# Speculation, canonical runs, cold stores, sparse logits.
SETTINGS = {
    "off": ("off", True, True, True),
    "auto": ("auto", True, True, True),
    "auto_dense": ("auto", True, True, False),
    "auto_warm": ("auto", True, False, True),
    "forced": ("forced", True, True, True),
    "page": ("page", True, True, True),
    "free_off": ("off", False, True, True),
    "free": ("auto", False, True, True),
    "none": ("off", False, True, False),
}
_CLIENT = b"benchmark"


def prepare(
    data: Path, extractor: Extractor, skip: int, limit: int, options: ExtractOptions
) -> tuple[list[Request], dict[str, bytes]]:
    requests: list[Request] = []
    tables: dict[str, bytes] = {}
    for folder, name in SETS.items():
        schema = bind(schemas.library.get(name))
        tables[schema.grammar.hash] = schema.grammar.table
        taken = 0
        with (data / folder / "gold.jsonl").open() as lines:
            for line in itertools.islice(lines, skip, None):
                page = json.loads(line)
                body = (data / folder / page["html"]).read_bytes()
                prepared = extractor.prepare(
                    PageInput(id=page["id"], url=page["url"], body=body), schema, options
                )
                if isinstance(prepared, Prepared):
                    requests.append(prepared.requests[0])
                    taken += 1
                if taken == limit:
                    break
    return requests, tables


class Runs:
    """One model; a fresh core and scheduler for each setting would compute the pages anew, so
    the settings take turns on one core."""

    def __init__(self, config: EngineConfig, tokenizer: Tokenizer, tables: Mapping[str, bytes]):
        from pagemill.engine.assembly import build_core, make_drafter

        self.core = build_core(config)
        self.most_sparse = self.core.executor.most_sparse
        self.config = config
        self.tables = tables
        self.tokenizer = tokenizer
        self.vocabulary = Vocabulary.of(tokenizer)
        self.make_drafter = make_drafter

    def use_canonical_runs(self, canonical: bool) -> None:
        """Grammars are made anew, with or without the tokenizer's own split of forced text."""
        from pagemill.engine.grammar_store import GrammarStore

        pairs = self.vocabulary.byte_pairs
        trie = _core.TokenTrie(self.vocabulary.tokens, self.vocabulary.eos_ids)
        encoder = pairs.encoder() if canonical and pairs is not None else None
        self.core.grammars = GrammarStore(trie, self.config.grammar_cache_bytes, encoder)

    def run(
        self,
        requests: list[Request],
        speculation: str,
        burst: int,
        *,
        cold: bool = True,
        sparse: bool = True,
    ) -> dict[str, Any]:
        config = dataclasses.replace(self.config, speculation=speculation)
        batch = self.core.executor.batch
        batch.drafter = None
        self.core.executor.most_sparse = self.most_sparse if sparse else 0
        before = self.core.stats().counters
        answers: dict[str, list[int]] = {request.request_id: [] for request in requests}
        started = time.perf_counter()
        for first in range(0, len(requests), burst):
            if cold or batch.drafter is None:
                batch.drafter = self.make_drafter(config, self.vocabulary, batch)
            self.core.handle(_CLIENT, Submit(self.tokenizer.hash, requests[first : first + burst]))
            for grammar, table in self.tables.items():
                self.core.handle(_CLIENT, GrammarTable(grammar, table))
            while self.core.busy:
                self.core.step()
                for _, message in self.core.take():
                    for output in message.outputs if isinstance(message, Outputs) else ():
                        answers[output.request_id].extend(output.token_ids)
        wall_s = time.perf_counter() - started
        after = self.core.stats().counters
        grown = {name: count - before.get(name, 0) for name, count in after.items()}
        passes = grown["scheduler_rows"] - grown["scheduler_prefill_chunks"]
        tokens = grown["scheduler_output_tokens"]
        forced, copied = grown["forced_tokens"] / tokens, grown["copied_tokens"] / tokens
        return {
            "answers": answers,
            "wall_s": round(wall_s, 2),
            "tokens_per_pass": round(tokens / passes, 3),
            "drafted": grown["scheduler_drafted_tokens"],
            "accepted": grown["scheduler_drafts_accepted"],
            "forward_s": round(grown["forward_us"] / 1e6, 2),
            "logit_rows": grown["logit_rows"],
            "sparse_logit_rows": grown["sparse_logit_rows"],
            "share": {
                "forced": round(forced, 3),
                "copied": round(copied, 3),
                "sampled": round(1 - forced - copied, 3),
            },
        }


def time_masks(table: bytes, vocabulary: Vocabulary) -> tuple[float, float]:
    """Microseconds of a mask that is known (median), and the longest of those made anew."""
    trie = _core.TokenTrie(vocabulary.tokens, vocabulary.eos_ids)
    dfa = _core.ByteDfa.from_bytes(table)
    encoder = vocabulary.byte_pairs.encoder() if vocabulary.byte_pairs else None
    # Of several tries the best: between two clock readings another process may have run.
    grammars = [_core.Grammar(dfa, trie, encoder) for _ in range(3)]
    row = grammars[0].start()
    warm, cold = [], []
    for state in range(dfa.num_states):
        row.state = state
        cold.append(min(grammar.time_mask(row, 1) for grammar in grammars))
        warm.append(grammars[0].time_mask(row, 1000) / 1000)
    return float(np.median(warm)) / 1e3, max(cold) / 1e3


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default=None)
    parser.add_argument("--pages", type=int, default=1, help="of each set")
    parser.add_argument("--skip", type=int, default=0, help="pages of each set passed by")
    parser.add_argument("--burst", type=int, default=1, help="pages at a time")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--max-page-tokens", type=int, default=768)
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    config = EngineConfig(
        model=arguments.model or store.DEFAULT_MODEL,
        max_num_seqs=max(arguments.burst, 1),
        dtype=arguments.dtype,
        num_blocks=4096,
    )
    set_thread_environment(config)
    tokenizer = Tokenizer.load(store.resolve(config.model).directory)
    options = ExtractOptions(
        max_tokens=arguments.max_tokens, max_page_tokens=arguments.max_page_tokens, metadata=False
    )
    extractor = Extractor(tokenizer, max_model_len=4096)
    requests, tables = prepare(arguments.data, extractor, arguments.skip, arguments.pages, options)
    runs = Runs(config, tokenizer, tables)
    replace = msgspec.structs.replace
    once = [replace(r, grammar=None, sampling=replace(r.sampling, max_tokens=1)) for r in requests]
    runs.run(once, "off", arguments.burst)
    report: dict[str, Any] = {"pages": len(requests), "runs": {}}
    expected: dict[bool, dict[str, list[int]]] = {}
    for name in arguments.settings:
        speculation, canonical, cold, sparse = SETTINGS[name]
        runs.use_canonical_runs(canonical)
        result = runs.run(requests, speculation, arguments.burst, cold=cold, sparse=sparse)
        answers = result.pop("answers")
        same = expected.setdefault(canonical, answers)
        result["identical"] = sum(answers[key] == same[key] for key in answers)
        print(name, result, file=sys.stderr, flush=True)
        report["runs"][name] = result
    if best := report["runs"].get("auto"):
        report |= {key: best[key] for key in ("share", "tokens_per_pass")}
        for name in ("off", "free_off", "auto_dense", "none"):
            if name in report["runs"]:
                report[f"speedup_over_{name}"] = round(
                    report["runs"][name]["wall_s"] / best["wall_s"], 2
                )
    report["identical"] = all(run["identical"] == len(requests) for run in report["runs"].values())
    vocabulary = Vocabulary.of(tokenizer)
    times = [time_masks(table, vocabulary) for table in tables.values()]
    report["mask_warm_us"] = round(max(warm for warm, _ in times), 3)
    report["mask_cold_us"] = round(max(cold for _, cold in times), 1)
    print(json.dumps(report, indent=None if arguments.json else 1))


if __name__ == "__main__":
    main()
