"""Pages from files, folders, globs, standard input and NDJSON, read one at a time.

A page that can't be read is a `BadInput` with its reason; it costs only itself. Only a source
that doesn't exist is raised, before anything is read.
"""

from __future__ import annotations

import base64
import codecs
import errno
import glob
import os
import re
import select
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from .config import nearest
from .reason import Reason, Refused
from .record import PageInput

BodyEncoding = Literal["base64", "utf-8"]
NDJSON_SUFFIXES = (".ndjson", ".jsonl")
MAX_ID_CHARS = 512
MAX_FIELD_CHARS = 8192
_WRITER_WAIT_S = 5.0
# What msgspec raises for bytes from outside: the second when they nest too deeply.
UNDECODABLE = (msgspec.MsgspecError, RecursionError)


class PageLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of NDJSON: a page with `html` (text as decoded by the crawler), or with `body`.

    `body` is the crawler's bytes in base64 (`body_encoding` "base64"), or text ("utf-8"). `schema`
    names the page's schema where it isn't the one of the whole.
    """

    id: str | int | None = None
    url: str | None = None
    html: str | None = None
    body: str | None = None
    body_encoding: BodyEncoding | None = None
    content_type: str | None = None
    encoding: str | None = None
    schema: str | None = None


@dataclass(frozen=True)
class ReadPage:
    """A page as read, and the schema that its line names, if any."""

    page: PageInput
    schema: str | None = None

    @property
    def id(self) -> str:
        return self.page.id


@dataclass(frozen=True)
class BadInput:
    """A page that could not be read: where it stands, and why."""

    id: str
    url: str | None
    reason: Reason
    message: str


_decoder = msgspec.json.Decoder(PageLine)
_loose_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parse_line(line: bytes, *, default_id: str, max_page_bytes: int) -> ReadPage | BadInput:
    """Read one NDJSON line; `default_id` serves a line without an id."""
    line = line.removeprefix(codecs.BOM_UTF8)  # Where a file begins, or files were joined.
    try:
        page = _decoder.decode(line)
    except UNDECODABLE as error:
        return BadInput(_line_id(line, default_id), None, Reason.INPUT_INVALID, _explain(error))
    return page_of_line(page, default_id=default_id, max_page_bytes=max_page_bytes)


def page_of_line(page: PageLine, *, default_id: str, max_page_bytes: int) -> ReadPage | BadInput:
    """Return the page of a decoded line, its body in bytes."""
    name = default_id if page.id is None else str(page.id)

    def bad(reason: Reason, message: str) -> BadInput:
        return BadInput(name[:MAX_ID_CHARS], page.url, reason, message)

    if not 0 < len(name) <= MAX_ID_CHARS:
        return bad(Reason.INPUT_INVALID, f"id: from 1 to {MAX_ID_CHARS} characters")
    if _half_a_pair(name, page.url, page.content_type, page.encoding, page.schema):
        return BadInput(
            default_id, None, Reason.INPUT_INVALID, "a field holds half of a surrogate pair"
        )
    texts = (page.url, page.content_type, page.encoding, page.schema)
    if max(len(text or "") for text in texts) > MAX_FIELD_CHARS:
        # The ledger would refuse the whole group for it.
        return BadInput(
            name, None, Reason.INPUT_INVALID, f"a field has over {MAX_FIELD_CHARS} characters"
        )
    if (page.html is None) == (page.body is None):
        return bad(Reason.INPUT_INVALID, "give either html or body")
    encoding = page.encoding
    if page.html is not None:
        if page.body_encoding is not None:
            return bad(Reason.INPUT_INVALID, "body_encoding belongs to body, html is text")
        # Lone surrogates may stand in JSON text; they are no characters, so nothing is lost.
        body, encoding = page.html.encode("utf-8", "replace"), "utf-8"
    elif page.body_encoding == "base64":
        try:
            body = base64.b64decode(page.body or "", validate=True)
        except ValueError as error:  # Also for letters outside of ASCII.
            return bad(Reason.BODY_ENCODING_INVALID, f"body isn't base64: {error}")
    elif page.body_encoding == "utf-8":
        body, encoding = (page.body or "").encode("utf-8", "replace"), "utf-8"
    else:
        return bad(Reason.INPUT_INVALID, 'body needs body_encoding: "base64" or "utf-8"')
    if len(body) > max_page_bytes:
        return bad(Reason.PAGE_TOO_LARGE, f"{len(body)} bytes, at most {max_page_bytes}")
    read = PageInput(
        id=name, url=page.url, body=body, content_type=page.content_type, encoding=encoding
    )
    return ReadPage(read, page.schema)


def _half_a_pair(*texts: str | None) -> bool:
    """Whether a text can't be written as UTF-8; JSON parsers other than ours let such through."""
    try:
        "".join(text for text in texts if text is not None).encode()
    except UnicodeEncodeError:
        return True
    return False


def _line_id(line: bytes, default: str) -> str:
    """The id of a line whose other fields are wrong, as far as it can be found."""
    try:
        found = msgspec.json.decode(_loose_decoder.decode(line)["id"])
    except (*UNDECODABLE, KeyError):
        return default
    return str(found)[:MAX_ID_CHARS] if isinstance(found, str | int) else default


def _explain(error: Exception) -> str:
    message = str(error)
    unknown = re.search(r"unknown field `([^`]*)`", message)
    if unknown:
        known = list(PageLine.__struct_fields__)
        hint = nearest(unknown[1], known) or f"known: {', '.join(known)}"
        return f"unknown field {unknown[1]!r}: {hint}"
    return message


def line_limit(max_page_bytes: int) -> int:
    """Bytes of the longest line that can hold a page: base64 takes 4/3, JSON escapes up to 2."""
    return 2 * max_page_bytes + 65536


def read_ndjson(
    stream: BinaryIO, *, source: str, max_page_bytes: int, first: bytes = b""
) -> Iterator[ReadPage | BadInput]:
    """Yield the page of each line; `first` is what was read from the stream before."""
    limit = line_limit(max_page_bytes)
    number = 0
    while True:
        line = stream.readline(limit) if not first else _finish_line(first, stream, limit)
        first = b""
        if not line:
            return
        number += 1
        name = f"{source}:{number}"
        if len(line) >= limit and not line.endswith(b"\n"):
            while (rest := stream.readline(65536)) and not rest.endswith(b"\n"):
                pass
            yield BadInput(name, None, Reason.PAGE_TOO_LARGE, f"a line of over {limit} bytes")
        elif line.strip():
            yield parse_line(line, default_id=name, max_page_bytes=max_page_bytes)


def _finish_line(start: bytes, stream: BinaryIO, limit: int) -> bytes:
    return start if start.endswith(b"\n") else start + stream.readline(max(1, limit - len(start)))


def read_pages(
    sources: Sequence[str], *, stdin: BinaryIO, max_page_bytes: int
) -> Iterator[ReadPage | BadInput]:
    """Yield the pages of `sources` in order.

    A source is a file, a folder (all its files, recursively, by name), a glob, or `-`. Files
    named *.ndjson or *.jsonl hold one page a line, others are one page each, with their path as
    id. Standard input is NDJSON when its first line is a JSON object, else one page.
    Raises Refused when a source doesn't exist or holds no page.
    """
    files = [path for source in sources for path in _expand(source)]
    return _read_all(files, stdin, max_page_bytes)


def _expand(source: str) -> list[str]:
    if source == "-":
        return ["-"]
    path = Path(source)
    try:
        exists, folder = path.exists(), path.is_dir()
    except OSError as error:  # A name that is too long, a folder that may not be entered.
        raise Refused(Reason.INPUT_INVALID, f"{source[:200]}: {error.strerror}") from None
    if folder:
        found = [str(file) for file in _walk(path)]
        if not found:
            raise Refused(Reason.INPUT_INVALID, f"{source}: the folder holds no file")
        return found
    if exists:
        return [source]
    matches = sorted(glob.glob(source, recursive=True)) if glob.has_magic(source) else []
    files = [file for match in matches for file in (_expand(match) if match != "-" else [])]
    if not files:
        what = "matches no file" if glob.has_magic(source) else "no such file or folder"
        raise Refused(Reason.INPUT_INVALID, f"{source}: {what}")
    return files


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(parent) / name
            # Pipes, sockets and devices are left out: opening one may wait for ever.
            if not name.startswith(".") and (path.is_file() or not path.exists()):
                yield path


def _read_all(
    files: Iterable[str], stdin: BinaryIO, max_page_bytes: int
) -> Iterator[ReadPage | BadInput]:
    for file in files:
        if file == "-":
            yield from _read_stdin(stdin, max_page_bytes)
            continue
        try:
            with _open(file) as stream:
                if file.endswith(NDJSON_SUFFIXES):
                    yield from read_ndjson(stream, source=file, max_page_bytes=max_page_bytes)
                else:
                    yield _one_page(file, stream.read(max_page_bytes + 1), max_page_bytes)
        except OSError as error:
            yield BadInput(file, None, Reason.INPUT_INVALID, error.strerror or str(error))


def _open(file: str) -> BinaryIO:
    """Open a file; OSError for a pipe to which nobody writes, where `open` would wait for ever."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISFIFO(mode) and not select.select([handle], [], [], _WRITER_WAIT_S)[0]:
            raise OSError(errno.EPIPE, "a pipe to which nobody writes")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "neither a file nor a pipe")
        os.set_blocking(handle, True)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _one_page(name: str, body: bytes, max_page_bytes: int) -> ReadPage | BadInput:
    if len(body) > max_page_bytes:
        return BadInput(name, None, Reason.PAGE_TOO_LARGE, f"over {max_page_bytes} bytes")
    return ReadPage(PageInput(id=name, body=body))


def _read_stdin(stdin: BinaryIO, max_page_bytes: int) -> Iterator[ReadPage | BadInput]:
    limit = line_limit(max_page_bytes)
    first = stdin.readline(limit)
    if first.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        yield from read_ndjson(stdin, source="-", max_page_bytes=max_page_bytes, first=first)
        return
    rest = stdin.read(max(0, max_page_bytes + 1 - len(first)))
    yield _one_page("-", first + rest, max_page_bytes)
