"""Bounds a request's body while it streams in, after its content encoding is undone.

A compressed body is inflated piece by piece, so that neither the limit nor memory is passed by a
small body that inflates into a large one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Protocol

import zstandard
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..reason import Reason, Refused
from .problems import HttpRefused, problem_of

_PIECE = 64 * 1024
# A zstd block of 4 bytes may inflate to 128 KiB: at most 8 MiB come out of one slice.
_ZSTD_SLICE = 256
_ZSTD_MAX_WINDOW = 8 << 20


class _Inflater(Protocol):
    """Undoes a content encoding; `finished` once the encoded data are complete."""

    @property
    def finished(self) -> bool: ...

    def feed(self, data: bytes) -> Iterator[bytes]: ...


class _Identity:
    finished = True

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data


class _Zlib:
    def __init__(self, wbits: int) -> None:
        self._inflater = zlib.decompressobj(wbits)

    @property
    def finished(self) -> bool:
        return self._inflater.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inflater.eof:
                raise _bad_encoding("data after the end of the compressed body")
            yield self._inflater.decompress(data, _PIECE)
            data = self._inflater.unconsumed_tail or self._inflater.unused_data
        while piece := self._inflater.decompress(b"", _PIECE):
            yield piece


class _Zstd:
    def __init__(self) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
        self._inflater = decompressor.decompressobj()

    @property
    def finished(self) -> bool:
        return self._inflater.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _ZSTD_SLICE):
            if self._inflater.eof:
                raise _bad_encoding("data after the end of the compressed body")
            yield self._inflater.decompress(data[at : at + _ZSTD_SLICE])
            if self._inflater.unused_data:
                raise _bad_encoding("data after the end of the compressed body")


_ENCODINGS: dict[str, Callable[[], _Inflater]] = {
    "": _Identity,
    "identity": _Identity,
    "gzip": lambda: _Zlib(31),
    "x-gzip": lambda: _Zlib(31),
    "deflate": lambda: _Zlib(15),
    "zstd": _Zstd,
}


def _bad_encoding(why: str) -> HttpRefused:
    return HttpRefused(Refused(Reason.BODY_ENCODING_INVALID, why))


def _too_large(limit: int) -> HttpRefused:
    return HttpRefused(Refused(Reason.REQUEST_TOO_LARGE, f"the body is over {limit} bytes"))


class BodyLimits:
    """ASGI middleware; `limit_of(path, content_type)` gives the most bytes of a body."""

    def __init__(self, app: ASGIApp, limit_of: Callable[[str, str], int]) -> None:
        self._app = app
        self._limit_of = limit_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {key.lower(): value for key, value in scope["headers"]}
        encoding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
        kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        limit = self._limit_of(scope["path"], kind)
        length = headers.get(b"content-length", b"")
        refused: HttpRefused | None = None
        if encoding not in _ENCODINGS:
            known = ", ".join(name for name in _ENCODINGS if name)
            refused = HttpRefused(
                Refused(
                    Reason.UNSUPPORTED_CONTENT_TYPE,
                    f"content encoding {encoding[:40]!r}",
                    advice=f"use one of {known}",
                )
            )
        elif length.isdigit() and int(length) > limit:
            refused = _too_large(limit)
        if refused is not None:
            await problem_of(refused)(scope, receive, send)
            return
        if encoding not in ("", "identity"):
            # What the application reads is no longer encoded, nor of that length.
            scope["headers"] = [
                (key, value)
                for key, value in scope["headers"]
                if key.lower() not in (b"content-encoding", b"content-length")
            ]
        body = _BoundedBody(receive, _ENCODINGS[encoding](), limit)
        await self._app(scope, body.receive, send)


class _BoundedBody:
    """The application's `receive`: pieces of the inflated body, up to `limit` bytes."""

    def __init__(self, receive: Receive, inflater: _Inflater, limit: int) -> None:
        self._receive = receive
        self._inflater = inflater
        self._limit = limit
        self._seen = 0
        self._pieces: Iterator[bytes] = iter(())
        self._more = True

    async def receive(self) -> Message:
        while True:
            piece = self._next_piece()
            if piece is not None:
                return {"type": "http.request", "body": piece, "more_body": True}
            if not self._more:
                if not self._inflater.finished:
                    raise _bad_encoding("the compressed body is cut off")
                self._more = True  # Whatever comes next (a disconnect) goes through.
                return {"type": "http.request", "body": b"", "more_body": False}
            message: MutableMapping[str, Any] = await self._receive()
            if message["type"] != "http.request":
                return message
            self._more = bool(message.get("more_body", False))
            self._pieces = self._inflater.feed(message.get("body", b""))

    def _next_piece(self) -> bytes | None:
        try:
            for piece in self._pieces:
                if not piece:
                    continue
                self._seen += len(piece)
                if self._seen > self._limit:
                    raise _too_large(self._limit)
                return piece
        except (zlib.error, zstandard.ZstdError) as error:
            raise _bad_encoding(f"the body isn't what Content-Encoding says: {error}") from None
        return None
