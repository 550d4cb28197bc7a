"""The prompt for one page: what to extract, then the page.

The system message depends on the schema alone, and comes first: all pages of a schema share its
tokens, and so its K/V blocks. The page follows as the user message. Contents are encoded as
plain text, so that no page can write a control token, and the page's own delimiters are broken
where page text imitates them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .page import Page
from .page.metadata import grouped_lines, is_publisher
from .reason import Reason, Refused
from .schema_prompt import FieldSource, SchemaPrompt

# Raised when the wording changes, here or in schema_prompt: it is part of a page's identity.
PROMPT_VERSION = 2

_OPEN, _CLOSE = "<page>", "</page>"
_DELIMITER = re.compile(r"<(/?)(?=page>)", re.IGNORECASE)
# Of the page's share at most this part goes to metadata when the text needs the rest.
_METADATA_SHARE = 0.5
_MIN_PAGE_TOKENS = 32
_MAX_TAG_CHARS = 240
_LONG_URLS = frozenset({"image", "url", "locale"})
# A main heading that comes later than this doesn't stand over the page's content.
_MENU_SHARE = 0.7


class ChatTokenizer(Protocol):
    """What a prompt needs of `pagemill.engine.tokenizer.Tokenizer`."""

    def encode(self, text: str) -> NDArray[np.int32]: ...

    def chat(self, messages: list[dict[str, str]]) -> list[NDArray[np.int32]]: ...


@dataclass(frozen=True, eq=False)
class Prompt:
    """Token ids int32[n]; tokens from `salt_from` on belong to the page and its owner.

    `page_text` is the page's part as the prompt shows it, `verbatim` what stands there of the
    page's text, as the page has it.
    """

    token_ids: NDArray[np.int32]
    salt_from: int
    page_cut: bool
    page_text: str = ""
    verbatim: str = ""


def build(
    tokenizer: ChatTokenizer,
    schema: SchemaPrompt,
    page: Page,
    *,
    budget: int,
    max_page_tokens: int,
    metadata: bool = True,
    known: Collection[str] = (),
) -> Prompt:
    """Return the prompt of a page, of at most `budget` tokens.

    Metadata of the fields `known` ("outer.inner") is left out: they need no answer. Of text that
    doesn't fit, what stands before the main heading is left out, then the last lines (`page_cut`).
    Raises Refused (prompt_too_long) when the schema leaves no room for a page.
    """
    system = {"role": "system", "content": schema.system}
    frame = tokenizer.chat([system, {"role": "user", "content": f"{_OPEN}\n\n{_CLOSE}"}])
    room = min(max_page_tokens, budget - sum(len(ids) for ids in frame))
    if room < _MIN_PAGE_TOKENS:
        raise Refused(
            Reason.PROMPT_TOO_LONG,
            "the schema's description leaves no room for the page",
            advice="shorten descriptions, lower max_tokens, or use a model with a longer context",
        )
    facts = _metadata_lines(page, schema.sources, known) if metadata else [f"title: {page.title}"]
    content, cut, text = _page_part(tokenizer, page, room, facts)
    messages = [system, {"role": "user", "content": f"{_OPEN}\n{content}\n{_CLOSE}"}]
    pieces = tokenizer.chat(messages)
    verbatim = text if text in page.text else _undisturbed(text, page.text)
    return Prompt(np.concatenate(pieces), len(pieces[0]), cut, content, verbatim)


def _page_part(
    tokenizer: ChatTokenizer, page: Page, room: int, facts: list[str]
) -> tuple[str, bool, str]:
    text = _harmless(page.text)
    text_tokens = len(tokenizer.encode(text))
    head_room = max(int(room * _METADATA_SHARE), room - text_tokens - 2)
    head, head_tokens, cut = _fitting_lines(tokenizer, facts, head_room)
    text_room = room - head_tokens - 2
    if text_tokens > text_room:
        text = _from_main_heading(text)
        text = _cut_lines(tokenizer, text, text_room)
        cut = True
    # What the page says of itself stands last, next to the answer: small models look there.
    return f"{text}\n\n{head}" if head else text, cut, text


def _fitting_lines(tokenizer: ChatTokenizer, lines: list[str], room: int) -> tuple[str, int, bool]:
    """Return those of `lines` that fit, later ones first, their tokens, and if any is missing."""
    kept: list[str] = []
    tokens = 0
    for line in reversed(lines):
        line = _harmless(line)
        size = len(tokenizer.encode(line)) + 1
        if tokens + size <= room:
            kept.append(line)
            tokens += size
    return "\n".join(reversed(kept)), tokens, len(kept) < len(lines)


def _from_main_heading(text: str) -> str:
    """Leave out what stands before the page's first main heading: menus, mostly."""
    at = 0 if text.startswith("# ") else text.find("\n# ") + 1
    return text[at:] if at <= _MENU_SHARE * len(text) else text


def _metadata_lines(
    page: Page, sources: tuple[FieldSource, ...], known: Collection[str]
) -> list[str]:
    """The metadata block, the most telling lines last.

    What the schema's fields are found in stands under the fields' names; meta tags as they are,
    shortened. A schema that names no sources gets all there is.
    """
    address = [f"url: {page.url}"] if page.url else []
    entries = page.metadata.entries
    if not sources:
        return address + page.metadata.lines()
    told: list[tuple[str, str]] = []
    for field, thing, keys in sources:
        for key in keys if field not in known else ():
            found = [
                entry.value
                for entry in entries
                if entry.key == key and (entry.thing == thing or not is_publisher(entry.thing))
                if entry.thing
            ]
            if found:
                told.extend((field, value) for value in found)
                break
    fields = {field for field, _ in told}.union(known)
    tags = grouped_lines(
        (entry.key, entry.value)
        for entry in entries
        if not entry.thing and entry.key not in fields and entry.key not in _LONG_URLS
    )
    return address + [line[:_MAX_TAG_CHARS] for line in tags] + grouped_lines(told)


def _cut_lines(tokenizer: ChatTokenizer, text: str, room: int) -> str:
    """Return the leading lines of `text` that fit into `room` tokens."""
    while text and (tokens := len(tokenizer.encode(text))) > room:
        # Tokens per character vary little within a page; a few rounds suffice.
        target = max(0, int(len(text) * room / tokens * 0.98) - 1)
        border = text.rfind("\n", 0, target + 1)
        # A single line longer than the room is cut between words.
        at = border if border > target // 2 else text.rfind(" ", 0, target + 1)
        text = text[: at if at > target // 2 else target]
    return text


def _undisturbed(shown: str, text: str) -> str:
    """The lines that the page has as they are shown; the others made unfit for spans."""
    lines = set(text.split("\n"))
    return "\n".join(line if line in lines else "\0" for line in shown.split("\n"))


def _harmless(text: str) -> str:
    return _DELIMITER.sub(r"< \1", text)
