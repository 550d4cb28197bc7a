"""The prompt for one page: what to extract, then the page.

The system message depends on the schema alone, and comes first: all pages of a schema share its
tokens, and so its K/V blocks. The page follows as the user message. Contents are encoded as
plain text, so that no page can write a control token, and the page's own delimiters are broken
where page text imitates them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .links import PageLinks
from .metadata_block import metadata_lines
from .page import Page
from .reason import Reason, Refused
from .schema_prompt import SchemaPrompt
from .text_tokens import Encoder, TextTokens
from .windows import Window, split

# Raised when the wording changes, here or in schema_prompt, or the choice of what is shown of a
# long page: it is part of a page's identity.
PROMPT_VERSION = 6

_OPEN, _CLOSE = "<page>", "</page>"
_DELIMITER = re.compile(r"<(/?)(?=page>)", re.IGNORECASE)
# Of the page's share at most this part goes to metadata when the text needs the rest.
_METADATA_SHARE = 0.5
_MIN_PAGE_TOKENS = 32
# A main heading that comes later than this doesn't stand over the page's content.
_MENU_SHARE = 0.7
_MAX_MENU_LINE = 60


class ChatTokenizer(Encoder, Protocol):
    """What a prompt needs of `pagemill.engine.tokenizer.Tokenizer`."""

    def chat(
        self, messages: Sequence[Mapping[str, str | NDArray[np.int32]]]
    ) -> list[NDArray[np.int32]]: ...


@dataclass(frozen=True, eq=False)
class Prompt:
    """Token ids int32[n]; tokens from `salt_from` on belong to the page and its owner.

    `page_text` is the page's part as the prompt shows it, `verbatim` what stands there of the
    page's text, as the page has it; `window` the part of the visible text.
    """

    token_ids: NDArray[np.int32]
    salt_from: int
    page_cut: bool
    page_text: str
    verbatim: str
    window: Window


def build(
    tokenizer: ChatTokenizer,
    schema: SchemaPrompt,
    page: Page,
    *,
    budget: int,
    max_page_tokens: int,
    metadata: bool = True,
    known: Collection[str] = (),
    max_windows: int = 1,
    text: str | None = None,
    links: PageLinks | None = None,
) -> list[Prompt]:
    """Return the prompts of a page, each of at most `budget` tokens: several if it is long.

    Metadata of the fields `known` ("outer.inner") is left out: they need no answer. Of text that
    doesn't fit, what stands before the main heading is left out; the rest is seen in up to
    `max_windows` windows; of what is longer still, the end is missing (`page_cut`).
    `text` are those lines of the visible text that are shown, where it isn't all of them, marked
    with the ids of `links` where these are given.
    Raises Refused (prompt_too_long) when the schema leaves no room for a page.
    """
    system = _encoded(tokenizer, schema.system)
    frame = _chat(tokenizer, system, _encoded(tokenizer, f"{_OPEN}\n\n{_CLOSE}"))
    room = min(max_page_tokens, budget - sum(len(ids) for ids in frame))
    if room < _MIN_PAGE_TOKENS:
        raise Refused(
            Reason.PROMPT_TOO_LONG,
            "the schema's description leaves no room for the page",
            advice="shorten descriptions, lower max_tokens, or use a model with a longer context",
        )
    facts = metadata_lines(page, schema, known) if metadata else [f"title: {page.title}"]
    facts = links.named(facts) if links else facts
    tokens = TextTokens(tokenizer, _harmless(page.text if text is None else text))
    head, windows, cut = _page_part(tokenizer, tokens, room, facts, max_windows)
    # What the page says of itself stands last, next to the answer: small models look there.
    after = f"\n\n{head}" if head else ""
    prompts = []
    for window in windows:
        content = tokens.ids(window.start, window.end, f"{_OPEN}\n", f"{after}\n{_CLOSE}")
        pieces = _chat(tokenizer, system, content)
        shown = links.unmarked(window.text) if links else window.text
        verbatim = shown if shown in page.text else _undisturbed(shown, page.text)
        ids = np.concatenate(pieces)
        prompts.append(Prompt(ids, len(pieces[0]), cut, window.text + after, verbatim, window))
    return prompts


def framed(page_text: str) -> str:
    """Return the user message of a `Prompt.page_text`."""
    return f"{_OPEN}\n{page_text}\n{_CLOSE}"


@lru_cache(maxsize=64)
def _encoded(tokenizer: Encoder, text: str) -> NDArray[np.int32]:
    return tokenizer.encode(text)


def _chat(
    tokenizer: ChatTokenizer, system: NDArray[np.int32], user: NDArray[np.int32]
) -> list[NDArray[np.int32]]:
    return tokenizer.chat(
        [{"role": "system", "content": system}, {"role": "user", "content": user}]
    )


def _page_part(
    tokenizer: Encoder, tokens: TextTokens, room: int, facts: list[str], max_windows: int
) -> tuple[str, list[Window], bool]:
    """The metadata block, the windows of the text, and whether anything was left out."""
    text_tokens = tokens.count_up_to(room)
    head_room = max(int(room * _METADATA_SHARE), room - text_tokens - 2)
    head, head_tokens, cut = _fitting_lines(tokenizer, facts, head_room)
    text_room = room - head_tokens - 2
    if text_tokens <= text_room:
        return head, [Window(tokens.text)], cut
    first = _main_heading(tokens.text)
    windows, left_over = split(tokens, text_room, max_windows, first=first)
    return head, windows, cut or left_over or _holds_text(tokens.text[:first])


def _fitting_lines(tokenizer: Encoder, lines: list[str], room: int) -> tuple[str, int, bool]:
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


def _main_heading(text: str) -> int:
    """Where the page's first main heading stands: what comes before it are menus, mostly."""
    at = 0 if text.startswith("# ") else text.find("\n# ") + 1
    return at if at <= _MENU_SHARE * len(text) else 0


def _holds_text(text: str) -> bool:
    """Whether a part before the main heading is more than menus."""
    return any(len(line) > _MAX_MENU_LINE for line in text.split("\n"))


def _undisturbed(shown: str, text: str) -> str:
    """The lines that the page has as they are shown; the others made unfit for spans."""
    lines = set(text.split("\n"))
    return "\n".join(line if line in lines else "\0" for line in shown.split("\n"))


def _harmless(text: str) -> str:
    return _DELIMITER.sub(r"< \1", text)
