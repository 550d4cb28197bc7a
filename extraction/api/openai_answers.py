"""Pieces of text as OpenAI's answers: whole, or as chunks of a stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson
from pagemill.engine.errors import EngineError
from pagemill.engine.protocol import TokenLogprob, Usage

from .completion import Piece
from .logprobs import Columns, told
from .problems import reason_of


@dataclass
class Whole:
    """All of a choice."""

    text: str = ""
    logprobs: list[TokenLogprob] | None = None
    finish: str | None = None
    usage: Usage | None = None

    def add(self, piece: Piece) -> None:
        self.text += piece.text
        if piece.logprobs is not None:
            self.logprobs = [*(self.logprobs or []), *piece.logprobs]
        self.finish = piece.finish or self.finish
        self.usage = piece.usage or self.usage


class Shape(Protocol):
    """How choices are written. Deltas of one choice come in order; `first` is before any text."""

    head: dict[str, Any]

    def whole(self, index: int, choice: Whole) -> dict[str, Any]: ...

    def chunk_head(self) -> dict[str, Any]: ...

    def first(self, index: int) -> dict[str, Any] | None: ...

    def delta(self, piece: Piece) -> dict[str, Any]: ...

    def last(self, index: int, finish: str) -> dict[str, Any]: ...


@dataclass
class ChatShape:
    """Choices as messages; with `tool` each is a call of that function."""

    model: str
    token_bytes: Sequence[bytes]
    tool: str = ""
    # OpenAI's word where the model had to call some function, not a named one.
    tool_finish: str = "stop"
    head: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.head = _head("chatcmpl", self.model, "chat.completion")

    def whole(self, index: int, choice: Whole) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
        if self.tool:
            message |= {"content": None, "tool_calls": [self._call(choice.text)]}
        return {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(choice.logprobs),
            "finish_reason": self._finish(choice.finish),
        }

    def chunk_head(self) -> dict[str, Any]:
        return {**self.head, "object": "chat.completion.chunk"}

    def first(self, index: int) -> dict[str, Any]:
        if self.tool:
            call = {"index": 0, **self._call("")}
            return self._chunk(index, {"role": "assistant", "content": None, "tool_calls": [call]})
        return self._chunk(index, {"role": "assistant", "content": ""})

    def delta(self, piece: Piece) -> dict[str, Any]:
        delta: dict[str, Any] = {"content": piece.text}
        if self.tool:
            delta = {"tool_calls": [{"index": 0, "function": {"arguments": piece.text}}]}
        return self._chunk(piece.index, delta, logprobs=self._logprobs(piece.logprobs))

    def last(self, index: int, finish: str) -> dict[str, Any]:
        return self._chunk(index, {}, finish=self._finish(finish))

    def _finish(self, finish: str | None) -> str | None:
        return self.tool_finish if self.tool and finish == "stop" else finish

    def _call(self, arguments: str) -> dict[str, Any]:
        function = {"name": self.tool, "arguments": arguments}
        return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        finish: str | None = None,
        logprobs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any] | None:
        if logprobs is None:
            return None
        return {"content": told(logprobs, self.token_bytes), "refusal": None}


@dataclass
class TextShape:
    """Choices as bare texts; `echoes` stand before the choices of each prompt."""

    model: str
    token_bytes: Sequence[bytes]
    echoes: Sequence[str]
    per_prompt: int
    head: dict[str, Any] = field(init=False)
    _columns: dict[int, Columns] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.head = _head("cmpl", self.model, "text_completion")

    def whole(self, index: int, choice: Whole) -> dict[str, Any]:
        text = self._echo(index) + choice.text
        return self._choice(index, text, choice.finish, choice.logprobs)

    def chunk_head(self) -> dict[str, Any]:
        return self.head

    def first(self, index: int) -> dict[str, Any] | None:
        echo = self._echo(index)
        return self._choice(index, echo, None, None) if echo else None

    def delta(self, piece: Piece) -> dict[str, Any]:
        return self._choice(piece.index, piece.text, None, piece.logprobs)

    def last(self, index: int, finish: str) -> dict[str, Any]:
        return self._choice(index, "", finish, None)

    def _echo(self, index: int) -> str:
        return self.echoes[index // self.per_prompt] if self.echoes else ""

    def _choice(
        self,
        index: int,
        text: str,
        finish: str | None,
        logprobs: Sequence[TokenLogprob] | None,
    ) -> dict[str, Any]:
        columns = None
        if logprobs is not None:
            columns = self._columns.setdefault(index, Columns()).told(logprobs, self.token_bytes)
        return {"index": index, "text": text, "logprobs": columns, "finish_reason": finish}


def _head(kind: str, model: str, name: str) -> dict[str, Any]:
    return {
        "id": f"{kind}-{uuid.uuid4().hex}",
        "object": name,
        "created": int(time.time()),
        "model": model,
    }


async def collect(shape: Shape, pieces: AsyncIterator[Piece], per_prompt: int) -> dict[str, Any]:
    """The whole answer."""
    wholes: dict[int, Whole] = {}
    async for piece in pieces:
        wholes.setdefault(piece.index, Whole()).add(piece)
    ordered = sorted(wholes.items())
    usages = {index: whole.usage for index, whole in ordered}
    return {
        **shape.head,
        "choices": [shape.whole(index, whole) for index, whole in ordered],
        "usage": _usage(usages, per_prompt),
    }


async def events(
    shape: Shape,
    first: Piece,
    pieces: AsyncIterator[Piece],
    *,
    choices: int,
    per_prompt: int,
    with_usage: bool,
) -> AsyncIterator[bytes]:
    """Server-sent events: a chunk a piece, the usage if asked for, `[DONE]`."""
    head = shape.chunk_head()
    usages: dict[int, Usage | None] = {}
    try:
        for index in range(choices):
            if (choice := shape.first(index)) is not None:
                yield _event(head, choice)
        piece = first
        while True:
            if piece.text or piece.logprobs:
                yield _event(head, shape.delta(piece))
            if piece.finish is not None:
                yield _event(head, shape.last(piece.index, piece.finish))
                usages[piece.index] = piece.usage
                if len(usages) == choices:
                    break
            try:
                piece = await anext(pieces)
            except StopAsyncIteration:  # A beam search may find fewer texts than were asked for.
                break
        if with_usage:
            usage = {**head, "choices": [], "usage": _usage(usages, per_prompt)}
            yield b"data: " + orjson.dumps(usage) + b"\n\n"
        yield b"data: [DONE]\n\n"
    except EngineError as error:
        reason, message, _, _ = reason_of(error)
        problem = {"message": message, "type": "server_error", "code": reason, "param": None}
        yield b"data: " + orjson.dumps({"error": problem}) + b"\n\n"
    finally:
        await _close(pieces)


async def _close(pieces: AsyncIterator[Piece]) -> None:
    close = getattr(pieces, "aclose", None)
    if close is not None:
        await close()


def _event(head: dict[str, Any], choice: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps({**head, "choices": [choice]}) + b"\n\n"


def _usage(usages: dict[int, Usage | None], per_prompt: int) -> dict[str, Any]:
    """The choices' usage together: a prompt, which its choices share, counts once."""
    counted = {index: usage or Usage() for index, usage in usages.items()}
    prompts: dict[int, Usage] = {}
    for index, usage in sorted(counted.items()):
        prompts.setdefault(index // per_prompt, usage)
    prompt = sum(usage.prompt_tokens for usage in prompts.values())
    completion = sum(usage.completion_tokens for usage in counted.values())
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": sum(usage.cached_tokens for usage in prompts.values())
        },
    }
