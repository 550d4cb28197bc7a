"""Results as tables: every value of every record is somewhere in the file."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pagemill.extraction.cli.output import Format, chosen_format
from pagemill.extraction.cli.writers import make_writer
from pagemill.extraction.reason import Reason
from pagemill.extraction.record import PageInput, Result

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": ["string", "null"]},
        "price": {"type": "number"},
        "stock": {"type": "integer"},
        "fresh": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "parts": {"type": "array", "items": {"type": "object"}},
        "kind": {"enum": ["a", "b", None]},
        "id": {"type": "string"},
    },
}
HARD = '=1+1, "quoted"\r\nnext\tline \u2028 é \U0001f600'


def result(record: Any, **more: Any) -> Result:
    return Result(id="p", url="https://a.example/", status="done", record=record, **more)


def written(kind: Format, results: list[Result], schema: dict[str, Any] = SCHEMA) -> bytes:
    sink = io.BytesIO()
    writer = make_writer(kind, sink, schema)
    for each in results:
        writer.write(each)
    writer.close()
    return sink.getvalue()


def csv_rows(results: list[Result]) -> list[dict[str, str]]:
    text = written(Format.CSV, results).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def parquet_rows(results: list[Result]) -> list[dict[str, Any]]:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows: list[dict[str, Any]] = parquet.read_table(
        io.BytesIO(written(Format.PARQUET, results))
    ).to_pylist()
    return rows


FULL = {
    "name": HARD,
    "price": 1.5,
    "stock": 3,
    "fresh": True,
    "tags": ["a", "b,c"],
    "parts": [{"x": 1}],
    "kind": "a",
    "id": "own",
}


def test_csv_holds_each_field_in_its_column() -> None:
    [row] = csv_rows([result(FULL)])
    assert (row["id"], row["status"], row["name"], row["price"]) == ("p", "done", HARD, "1.5")
    assert (row["stock"], row["fresh"], row["kind"], row["other"]) == ("3", "true", "a", "")
    assert json.loads(row["tags"]) == ["a", "b,c"]
    assert json.loads(row["parts"]) == [{"x": 1}]
    assert row["id_"] == "own"  # The record's own id beside the page's.


def test_parquet_has_types() -> None:
    [row] = parquet_rows([result(FULL)])
    assert (row["id"], row["name"], row["price"], row["stock"]) == ("p", HARD, 1.5, 3)
    assert (row["fresh"], row["tags"], row["kind"]) == (True, ["a", "b,c"], "a")
    assert json.loads(row["parts"]) == [{"x": 1}]
    assert row["id_"] == "own"
    assert row["other"] is None


def test_what_has_no_column_or_does_not_fit_is_kept() -> None:
    odd = {"price": "free", "stock": 2**70, "fresh": None, "more": [1]}
    [row] = parquet_rows([result(odd)])
    assert json.loads(row["other"]) == {"price": "free", "stock": 2**70, "more": [1]}
    assert row["price"] is None
    [line] = csv_rows([result(odd)])
    assert (line["price"], line["stock"], json.loads(line["other"])) == (
        "free", str(2**70), {"more": [1]},
    )  # fmt: skip


def test_a_list_of_records_and_a_failure_have_rows() -> None:
    page = PageInput(id="bad", body=b"")
    rows = [result([{"name": "x"}]), Result.failed(page, Reason.PAGE_EMPTY, "no text")]
    for found in (csv_rows(rows), parquet_rows(rows)):
        assert json.loads(found[0]["other"]) == [{"name": "x"}]
        assert (found[1]["status"], found[1]["reason"]) == ("failed", "page_empty")
        assert found[1]["message"] == "no text"


def test_more_rows_than_a_group() -> None:
    assert len(parquet_rows([result({"name": str(n)}) for n in range(2500)])) == 2500


def test_formats_follow_the_suffix() -> None:
    assert chosen_format(None, None) is Format.NDJSON
    assert chosen_format(None, "x.CSV") is Format.CSV
    assert chosen_format(None, "x.parquet") is Format.PARQUET
    assert chosen_format(Format.NDJSON, "x.csv") is Format.NDJSON


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


# The first text that hypothesis draws takes it seconds.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "x", "other"]), json_values))
def test_any_record_can_be_written_and_parquet_loses_nothing(record: dict[str, Any]) -> None:
    sound = json.loads(json.dumps(record).encode("utf-8", "replace"))
    [row] = parquet_rows([result(sound)])
    other = json.loads(row["other"]) if row["other"] else {}
    for name, value in sound.items():
        column = {"id": "id_"}.get(name, name)
        if name in other:
            assert other[name] == value
        elif name == "parts" and value is not None:
            assert json.loads(row[column]) == value
        else:
            assert row[column] == value
    assert csv_rows([result(sound)])
