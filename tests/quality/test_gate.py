"""Reading may not become worse: pages of several languages and kinds, held against a baseline.

Each page is NAME.html beside NAME.json: values that a record would need, and what is known without
a model. `baseline.json` has the counts to hold; `python tests/quality/test_gate.py` writes it anew
when a change is for the better.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pagemill import schemas
from pagemill.extraction.known import find, known_sources
from pagemill.extraction.metadata_block import metadata_lines
from pagemill.extraction.page import barrier, read
from pagemill.extraction.schema_prompt import SchemaPrompt

FOLDER = Path(__file__).parent
BASELINE = FOLDER / "baseline.json"


def measure() -> dict[str, Any]:
    """Counts over all pages: values in the prompt or known, known values right and wrong."""
    found = {"values": 0, "known_right": 0, "known_wrong": 0, "chars": 0}
    for path in sorted((FOLDER / "pages").glob("*.html")):
        expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        schema = schemas.library.get(expected["schema"])
        page = read(path.read_bytes(), url=expected["url"])
        barrier.check(page)
        known = find(page, known_sources(schema))
        facts = metadata_lines(page, SchemaPrompt.of(schema), known.fields())
        prompt = "\n".join([page.text, *facts])
        told = {pointer[1:]: value.value for pointer, value in known.values.items()}
        seen = prompt + json.dumps(told, ensure_ascii=False)
        found["values"] += sum(value in seen for value in expected["values"])
        found["chars"] += len(prompt)
        for field, value in expected["known"].items():
            found["known_right"] += told.get(field) == value
            found["known_wrong"] += field in told and told[field] != value
    return found


def test_nothing_is_worse_than_the_baseline() -> None:
    now, before = measure(), json.loads(BASELINE.read_text(encoding="utf-8"))
    assert now["values"] >= before["values"]
    assert now["known_right"] >= before["known_right"]
    assert now["known_wrong"] <= before["known_wrong"]
    assert now["chars"] <= 1.02 * before["chars"]


if __name__ == "__main__":
    BASELINE.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    print(BASELINE.read_text(encoding="utf-8"))
