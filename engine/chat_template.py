"""Chat templates, rendered so that what a user wrote stays apart from what the template wrote.

The template sees a marker in place of each message's content. The rendered text, cut at the
markers, gives the template's own pieces, which may hold control tokens, and the places of the
contents, which never may. No torch.
"""

from __future__ import annotations

import datetime
import json
import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NoReturn

import jinja2
import jinja2.sandbox
import numpy as np

from .errors import EngineError, EngineReason

MAX_TEMPLATE_CHARS: Final = 256 * 1024
MAX_MESSAGES: Final = 1024
# Conversations of up to so many messages are remembered, so many of them.
_FEW, _REMEMBERED = 4, 64


# Of one message: the template's own texts, and the numbers of messages whose contents stand there.
Share = list[str | int]


class ChatTemplate:
    """A model's chat template (Jinja, sandboxed)."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise _invalid(f"the chat template is longer than {MAX_TEMPLATE_CHARS} characters")
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _now
        environment.filters["tojson"] = _to_json
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise _invalid(f"the chat template can't be read: {error}") from None
        self._special_tokens = dict(special_tokens)
        # The template sees no contents, so what it makes of the same roles is the same; but for
        # the time of day.
        remember = _REMEMBERED if "strftime_now" not in source else 0
        self._of_roles = lru_cache(maxsize=remember)(self._shares_of_roles)

    def shares(self, messages: Sequence[Mapping[str, Any]]) -> list[Share]:
        """Return each message's share of the conversation, and last that of the generation prompt.

        EngineError(MESSAGE_INVALID) for messages without role and content, or that the template
        refuses; EngineError(MODEL_INVALID) where the template repeats or drops a content.
        """
        if not 0 < len(messages) <= MAX_MESSAGES:
            raise _wrong(f"{len(messages)} messages; 1 to {MAX_MESSAGES} are taken")
        for index, message in enumerate(messages):
            if not isinstance(message.get("role"), str) or not isinstance(
                message.get("content"), str | np.ndarray
            ):
                raise _wrong(f"message {index} needs a role and a content, both text")
        if len(messages) <= _FEW and all(len(message) == 2 for message in messages):
            return self._of_roles(tuple(message["role"] for message in messages))
        return self._shares(messages)

    def _shares_of_roles(self, roles: tuple[str, ...]) -> list[Share]:
        return self._shares([{"role": role} for role in roles])

    def _shares(self, messages: Sequence[Mapping[str, Any]]) -> list[Share]:
        nonce = secrets.token_hex(8)
        # Letters and digits alone, so that a template's trimming leaves the marker whole.
        markers = [f"content{nonce}x{index}x" for index in range(len(messages))]
        marked = [
            {**message, "content": marker}
            for message, marker in zip(messages, markers, strict=True)
        ]
        text = self._render(marked, generation_prompt=True)
        bounds = self._bounds(text, marked)
        return [
            _cut(text[start:end], markers)
            for start, end in zip([0, *bounds], [*bounds, len(text)], strict=True)
        ]

    def _bounds(self, text: str, marked: list[dict[str, Any]]) -> list[int]:
        """Where each message's share of the text ends."""
        bounds: list[int] = []
        for count, message in enumerate(marked, start=1):
            marker = message["content"]
            if text.count(marker) != 1:
                raise _invalid("the chat template doesn't render each content exactly once")
            after = text.index(marker) + len(marker)
            try:
                prefix = self._render(marked[:count], generation_prompt=False)
            except EngineError:  # a template may insist on a last message by the user
                prefix = ""
            # Where the prefix renders otherwise than within the whole, the share ends with the
            # content; the markers behind it then count for the next message.
            bounds.append(
                len(prefix) if len(prefix) >= after and text.startswith(prefix) else after
            )
        return bounds

    def _render(self, messages: list[dict[str, Any]], *, generation_prompt: bool) -> str:
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=generation_prompt,
                **self._special_tokens,
            )
        except (jinja2.TemplateError, TypeError, ValueError, KeyError) as error:
            raise _wrong(f"the chat template refuses the messages: {error}") from None


def _cut(text: str, markers: list[str]) -> Share:
    share: Share = []
    for index, marker in enumerate(markers):
        before, found, rest = text.partition(marker)
        if found:
            share += [before, index]
            text = rest
    share.append(text)
    return [part for part in share if part != ""]


def _invalid(message: str) -> EngineError:
    return EngineError(EngineReason.MODEL_INVALID, message)


def _wrong(message: str) -> EngineError:
    return EngineError(EngineReason.MESSAGE_INVALID, message)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(layout: str) -> str:
    return datetime.datetime.now().strftime(layout)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
