"""Closing under the default model: what would be cut off is whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pagemill import schemas
from pagemill.engine.config import EngineConfig
from pagemill.engine.inprocess import InProcessEngine
from pagemill.engine.protocol import Request, SamplingParams
from pagemill.engine.tokenizer import Tokenizer
from pagemill.schemas.compiler import compile

PAGE = (
    "Oak table. A table of oiled oak for eight, made by hand in our workshop since 1987. "
    "1,249.00 EUR, in stock. Brand: Holzwerk. The top is 4 cm thick and 200 cm long, the legs "
    "come off for the move, and the surface is easy to care for: oil it once a year."
)
CASES = [(60, 0.0), (100, 0.0), (60, 1.0)]  # max_tokens, temperature


@pytest.mark.model
def test_small_budgets_give_whole_records(model_files: Any) -> None:
    schema = schemas.library.get("product")
    compiled = compile(schema, timeout_s=30.0)
    tokenizer = Tokenizer.load(model_files.directory)
    prompt = tokenizer.chat(
        [{"role": "user", "content": f"Write the product as JSON: {PAGE}"}],
    )
    ids = b"".join(part.astype("<i4").tobytes() for part in prompt)

    def texts(close_records: bool) -> list[tuple[str, bool]]:
        config = EngineConfig(
            max_num_seqs=4, max_model_len=1024, num_blocks=160, close_records=close_records
        )
        found: dict[str, tuple[str, bool]] = {}
        with InProcessEngine.start(config) as engine:
            tokens: dict[str, list[int]] = {str(case): [] for case in CASES}
            requests = [
                Request(
                    str((budget, temperature)),
                    ids,
                    SamplingParams(max_tokens=budget, temperature=temperature, seed=5),
                    grammar=compiled.hash,
                )
                for budget, temperature in CASES
            ]
            for output in engine.generate(
                requests,
                tokenizer_hash=tokenizer.hash,
                grammars={compiled.hash: compiled.table},
            ):
                tokens[output.request_id].extend(output.token_ids)
                if output.usage is not None:
                    text = tokenizer.decode(tokens[output.request_id])
                    found[output.request_id] = (text, output.usage.closed_early)
        return [found[str(case)] for case in CASES]

    validator = schemas.Validator(schema)
    closed = texts(close_records=True)
    for text, _ in closed:
        assert not validator.errors(json.loads(text))
    assert closed[0][1]
    for (kept, cut), (text, _) in zip(closed, texts(close_records=False), strict=True):
        # Where the record fitted, the switch changes nothing; elsewhere it saved the record.
        if not cut:
            assert text == kept
        else:
            with pytest.raises(ValueError, match=r"Expecting|Unterminated|delimiter|Invalid"):
                json.loads(text)
