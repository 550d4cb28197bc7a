"""Sources of the command line: what is a page, under which id, and what costs only itself."""

from __future__ import annotations

import base64
import io
import json
import os
import threading
import time
from pathlib import Path

import pytest
from pagemill.extraction import inputs
from pagemill.extraction.inputs import BadInput, ReadPage, line_limit, parse_line, read_pages
from pagemill.extraction.reason import Reason, Refused

LIMIT = 1000


def pages(*sources: str, stdin: bytes = b"") -> list[ReadPage | BadInput]:
    return list(read_pages(sources, stdin=io.BytesIO(stdin), max_page_bytes=LIMIT))


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "z.html").write_bytes(b"<p>z")
    (tmp_path / "b" / "a.html").write_bytes(b"<p>a")
    (tmp_path / ".git" / "config").write_bytes(b"no page")
    (tmp_path / "b" / ".hidden").write_bytes(b"no page")
    return tmp_path


def test_a_folder_is_read_recursively_by_name(crawl: Path) -> None:
    found = pages(str(crawl))
    assert [(page.id, page.page.body) for page in found if isinstance(page, ReadPage)] == [
        (str(crawl / "z.html"), b"<p>z"),
        (str(crawl / "b" / "a.html"), b"<p>a"),
    ]


def test_globs_and_files_keep_the_order_of_the_command_line(crawl: Path) -> None:
    found = pages(str(crawl / "b" / "a.html"), str(crawl / "*.html"))
    assert [Path(page.id).name for page in found] == ["a.html", "z.html"]
    found = pages(str(crawl / "**" / "*.html"))
    assert sorted(Path(page.id).name for page in found) == ["a.html", "z.html"]


@pytest.mark.parametrize("source", ["missing.html", "*.nothing"])
def test_a_source_without_a_page_is_refused_at_once(tmp_path: Path, source: str) -> None:
    with pytest.raises(Refused, match="no ") as caught:
        read_pages([str(tmp_path / source)], stdin=io.BytesIO(), max_page_bytes=LIMIT)
    assert caught.value.reason == Reason.INPUT_INVALID


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no file"):
        pages(str(tmp_path))


def test_ndjson_gives_ids_back() -> None:
    body = "<p>é".encode("latin-1")
    stdin = b"\n".join(
        [
            line(id="one", url="https://a.example/", html="<p>é"),
            line(id=2, body=base64.b64encode(body).decode(), body_encoding="base64"),
            b"",
            line(html="<p>third"),
        ]
    )
    first, second, third = pages("-", stdin=stdin)
    assert isinstance(first, ReadPage)
    assert (first.id, first.page.url) == ("one", "https://a.example/")
    assert (first.page.body, first.page.encoding) == ("<p>é".encode(), "utf-8")
    assert isinstance(second, ReadPage)
    assert (second.id, second.page.body, second.page.encoding) == ("2", body, None)
    assert third.id == "-:4"


def test_standard_input_may_be_one_page() -> None:
    (page,) = pages("-", stdin=b"\n<!doctype html>\n<p>one\n<p>two")
    assert isinstance(page, ReadPage)
    assert page.id == "-"
    assert page.page.body == b"\n<!doctype html>\n<p>one\n<p>two"


def test_an_ndjson_file_is_told_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    path.write_bytes(line(html="a") + b"\n" + line(html="b") + b"\n")
    assert [page.id for page in pages(str(path))] == [f"{path}:1", f"{path}:2"]


@pytest.mark.parametrize(
    ("content", "reason", "words"),
    [
        (b"{not json", Reason.INPUT_INVALID, "malformed"),
        (b"[1]", Reason.INPUT_INVALID, "object"),
        (line(id="x"), Reason.INPUT_INVALID, "html or body"),
        (line(id="x", html="a", body="b"), Reason.INPUT_INVALID, "html or body"),
        (line(id="x", body="YQ=="), Reason.INPUT_INVALID, "body_encoding"),
        (line(id="x", html="a", body_encoding="base64"), Reason.INPUT_INVALID, "body_encoding"),
        (line(id="x", body="***", body_encoding="base64"), Reason.BODY_ENCODING_INVALID, "base64"),
        (line(id="x", body="é", body_encoding="base64"), Reason.BODY_ENCODING_INVALID, "base64"),
        (b'{"id":' + b"[" * 30_000, Reason.INPUT_INVALID, "str"),
        (b'{"url":' + b"[" * 30_000, Reason.INPUT_INVALID, "str"),
        (b'{"schema":' + b"[" * 30_000 + b"]" * 30_000 + b"}", Reason.INPUT_INVALID, "str"),
        (line(id="x", body="a", body_encoding="rot13"), Reason.INPUT_INVALID, "rot13"),
        (line(id="x", hmtl="a"), Reason.INPUT_INVALID, "did you mean html"),
        (line(id="x", html=7), Reason.INPUT_INVALID, "html"),
        (line(id="x", html="a", url="u" * 8193), Reason.INPUT_INVALID, "8192 characters"),
        (line(id="x", html="a", content_type="u" * 8193), Reason.INPUT_INVALID, "8192"),
        (line(id="", html="a"), Reason.INPUT_INVALID, "id"),
        (line(id="x", html="a" * (LIMIT + 1)), Reason.PAGE_TOO_LARGE, "1001"),
    ],
)
def test_a_bad_line_costs_only_itself(content: bytes, reason: Reason, words: str) -> None:
    stdin = b"\n".join([line(html="<p>good"), content, line(html="<p>good")])
    first, bad, last = pages("-", stdin=stdin)
    assert isinstance(first, ReadPage)
    assert isinstance(last, ReadPage)
    assert isinstance(bad, BadInput)
    assert bad.reason == reason
    assert words in bad.message
    if b'"id": "x"' in content:
        assert bad.id == "x"


def test_a_byte_order_mark_is_no_part_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(b"\xef\xbb\xbf" + line(id="x", html="a"))
    for source, stdin in (("-", b"\xef\xbb\xbf" + line(id="x", html="a")), (str(tmp_path), b"")):
        (page,) = pages(source, stdin=stdin)
        assert isinstance(page, ReadPage)
        assert (page.id, page.page.body) == ("x", b"a")


def test_a_pipe_in_a_folder_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(b"<p>a")
    os.mkfifo(tmp_path / "b.html")
    assert [page.id for page in pages(str(tmp_path))] == [str(tmp_path / "a.html")]


def test_a_pipe_to_which_nobody_writes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_WRITER_WAIT_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    [bad] = pages(str(tmp_path / "pipe"))
    assert isinstance(bad, BadInput)
    assert (bad.reason, bad.message) == (Reason.INPUT_INVALID, "a pipe to which nobody writes")
    [device] = pages("/dev/zero")
    assert isinstance(device, BadInput)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    """As a shell gives it for `<(zcat pages.gz)`."""
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        with (tmp_path / "pipe").open("wb") as pipe:
            for text in (b"<p>one", b"<p>two"):
                pipe.write(text)
                pipe.flush()
                time.sleep(0.05)

    writer = threading.Thread(target=write)
    writer.start()
    [page] = pages(str(tmp_path / "pipe"))
    writer.join()
    assert isinstance(page, ReadPage)
    assert page.page.body == b"<p>one<p>two"


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(Refused, match="too long") as refused:
        pages("x" * 5000)
    assert refused.value.reason == Reason.INPUT_INVALID


def test_an_endless_line_is_skipped_without_being_held() -> None:
    long = b'{"html": "' + b"x" * (3 * line_limit(LIMIT)) + b'"}'
    first, bad, last = pages("-", stdin=line(html="a") + b"\n" + long + b"\n" + line(html="b"))
    assert isinstance(first, ReadPage)
    assert isinstance(bad, BadInput)
    assert bad.reason == Reason.PAGE_TOO_LARGE
    assert isinstance(last, ReadPage)
    assert last.id == "-:3"


def test_a_large_file_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    with path.open("wb") as stream:
        stream.truncate(1 << 34)
    (bad,) = pages(str(path))
    assert isinstance(bad, BadInput)
    assert (bad.id, bad.reason) == (str(path), Reason.PAGE_TOO_LARGE)


def test_pages_are_read_one_at_a_time(crawl: Path) -> None:
    found = read_pages([str(crawl)], stdin=io.BytesIO(), max_page_bytes=LIMIT)
    next(found)
    (crawl / "b" / "a.html").write_bytes(b"<p>later")
    page = next(found)
    assert isinstance(page, ReadPage)
    assert page.page.body == b"<p>later"


def test_half_a_surrogate_pair_costs_only_its_line() -> None:
    page = parse_line(b'{"html": "a\\ud800b"}', default_id="x", max_page_bytes=LIMIT)
    assert isinstance(page, BadInput)
    assert page.reason == Reason.INPUT_INVALID


def test_a_line_may_name_its_schema() -> None:
    page = parse_line(line(html="a", schema="article@2"), default_id="x", max_page_bytes=LIMIT)
    assert isinstance(page, ReadPage)
    assert page.schema == "article@2"
