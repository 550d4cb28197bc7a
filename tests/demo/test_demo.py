"""`make demo`, with the real model: a record or a reason for each page, nothing left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pagemill import schemas
from pagemill.engine.store import ModelFiles

ROOT = Path(__file__).resolve().parents[2]
LAST_LINE = re.compile(r"demo: (\d+) pages, (\d+) done, (\d+) failed, [\d.]+ s")


def processes() -> set[int]:
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(1500)
def test_the_demo(model_files: ModelFiles, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "demo" / "run.py")],
        cwd=tmp_path,
        # A mark by which everything that it starts is found.
        env={**os.environ, "DEMO_RUN": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last = LAST_LINE.fullmatch(done.stdout.splitlines()[-1])
    assert last is not None, done.stdout
    pages, good, failed = map(int, last.groups())
    manifest = json.loads((ROOT / "demo" / "pages" / "manifest.json").read_text())
    assert pages == len(manifest) == good + failed
    lines = (ROOT / "demo" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    records = {record["id"]: record for record in map(json.loads, lines)}
    assert set(records) == {entry["file"] for entry in manifest}
    assert records["empty.html"]["error"]["reason"] == "page_empty"
    assert records["brochure.pdf"]["error"]["reason"] == "unsupported_content_type"
    for record in records.values():
        if record["status"] == "done":
            name = record["schema"].partition("@")[0]
            assert schemas.Validator(schemas.library.get(name)).errors(record["record"]) == []
        else:
            # A small model may run out of its budget; anything else would be a fault.
            expected = ("page_empty", "unsupported_content_type", "record_truncated")
            assert record["error"]["reason"] in expected, record["error"]
    left = [pid for pid in processes() if f"DEMO_RUN={tmp_path}" in environment_of(pid)]
    assert not left, [command_line(pid) for pid in left]


def environment_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""
