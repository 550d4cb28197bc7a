"""Writes pages as the text builder gets them: serialize_pages.py FOLDER PAGE..."""

from __future__ import annotations

import sys
from pathlib import Path

from pagemill.extraction.page import PageLimits
from pagemill.extraction.page.decode import decode
from pagemill.extraction.page.parse import parse

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(sys.argv[2:]):
        tree = parse(decode(Path(name).read_bytes()).text, PageLimits()).tree
        if (root := tree.body or tree.root) is not None:
            (folder / f"{number}.html").write_text(root.html or "", encoding="utf-8")
