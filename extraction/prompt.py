"""The prompt for one page: what to extract, then the page.

The system message depends on the schema alone, and comes first: all pages of a schema share its
tokens, and so its K/V blocks. The page follows as the user message. Contents are encoded as
plain text, so that no page can write a control token, and the page's own delimiters are broken
where page text imitates them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .page import Page
from .page.metadata import grouped_lines, is_publisher
from .reason import Reason, Refused

PROMPT_VERSION = 1

_INSTRUCTIONS = (
    "Extract a record from the web page. Answer with one JSON object that has these fields. "
    "Copy values as the page writes them. Use null for what the page does not say."
)
_OPEN, _CLOSE = "<page>", "</page>"
_DELIMITER = re.compile(r"<(/?)(?=page>)", re.IGNORECASE)
_MAX_DEPTH = 6
_MAX_FIELDS = 200
_MAX_DESCRIPTION = 300
_MAX_CHOICES = 16
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


@dataclass(frozen=True)
class SchemaPrompt:
    """The system message of a schema, and which metadata its fields are found in.

    `sources` has (field, schema.org type, keys of `MetadataEntry` by preference), from the
    schema's `x-pagemill-source`.
    """

    system: str
    sources: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, schema: Mapping[str, Any], *, name: str = "") -> SchemaPrompt:
        """Describe a loaded schema as a list of fields, in the order of decoding."""
        title = str(schema.get("title") or name or "Record")
        description = _one_line(schema.get("description"))
        lines = [_INSTRUCTIONS, "", f"{title}: {description}" if description else title]
        lines.extend(_field_lines(schema))
        return cls("\n".join(lines), tuple(_sources(schema)))


@dataclass(frozen=True, eq=False)
class Prompt:
    """Token ids int32[n]; tokens from `salt_from` on belong to the page and its owner."""

    token_ids: NDArray[np.int32]
    salt_from: int
    page_cut: bool


def build(
    tokenizer: ChatTokenizer,
    schema: SchemaPrompt,
    page: Page,
    *,
    budget: int,
    max_page_tokens: int,
    metadata: bool = True,
) -> Prompt:
    """Return the prompt of a page, of at most `budget` tokens.

    Text that doesn't fit is cut at the end of a block (`page_cut`). Raises Refused
    (prompt_too_long) when the schema leaves no room for a page.
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
    facts = _metadata_lines(page, schema.sources) if metadata else [f"title: {page.title}"]
    content, cut = _page_part(tokenizer, page, room, facts)
    messages = [system, {"role": "user", "content": f"{_OPEN}\n{content}\n{_CLOSE}"}]
    pieces = tokenizer.chat(messages)
    return Prompt(np.concatenate(pieces), salt_from=len(pieces[0]), page_cut=cut)


def _page_part(
    tokenizer: ChatTokenizer, page: Page, room: int, facts: list[str]
) -> tuple[str, bool]:
    text = _harmless(page.text)
    text_tokens = len(tokenizer.encode(text))
    head_room = max(int(room * _METADATA_SHARE), room - text_tokens - 2)
    head, head_tokens, cut = _fitting_lines(tokenizer, facts, head_room)
    text_room = room - head_tokens - 2
    if text_tokens > text_room:
        text = _from_main_heading(text)
        text, _ = _cut_lines(tokenizer, text, text_room, len(tokenizer.encode(text)))
        cut = True
    # What the page says of itself stands last, next to the answer: small models look there.
    return f"{text}\n\n{head}" if head else text, cut


def _fitting_lines(tokenizer: ChatTokenizer, lines: list[str], room: int) -> tuple[str, int, bool]:
    """Return the last of `lines` that fit, the tokens they take, and whether any is missing."""
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


def _metadata_lines(page: Page, sources: tuple[tuple[str, str, tuple[str, ...]], ...]) -> list[str]:
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
        for key in keys:
            found = [
                entry.value
                for entry in entries
                if entry.key == key and (entry.thing == thing or not is_publisher(entry.thing))
                if entry.thing
            ]
            if found:
                told.extend((field, value) for value in found)
                break
    fields = {field for field, _ in told}
    tags = grouped_lines(
        (entry.key, entry.value)
        for entry in entries
        if not entry.thing and entry.key not in fields and entry.key not in _LONG_URLS
    )
    return address + [line[:_MAX_TAG_CHARS] for line in tags] + grouped_lines(told)


def _sources(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The fields that say where in the metadata they stand; inner fields as "outer.inner"."""
    waiting = [(name, field, 0) for name, field in reversed(_properties(schema, schema))]
    while waiting:
        name, field, depth = waiting.pop()
        field = _resolved(field, schema)
        stated = field.get("x-pagemill-source")
        paths = [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else []
        split = [path.split(".") for path in paths if isinstance(path, str) and "." in path]
        if split:
            yield name, split[0][0], tuple(_entry_key(parts[1:]) for parts in split)
        if depth < _MAX_DEPTH:
            inner = _properties(_item(field, schema), schema)
            waiting.extend((f"{name}.{part}", sub, depth + 1) for part, sub in reversed(inner))


def _entry_key(parts: list[str]) -> str:
    """The key under which metadata shows a path: a thing's name stands for the thing."""
    if len(parts) > 1 and parts[-1] in ("name", "text"):
        parts = parts[:-1]
    return ".".join(parts)


def _cut_lines(tokenizer: ChatTokenizer, text: str, room: int, tokens: int) -> tuple[str, int]:
    """Return the leading lines of `text` that fit into `room` tokens, and how many they take."""
    while tokens > room and text:
        # Tokens per character vary little within a page; a few rounds suffice.
        target = max(0, int(len(text) * room / tokens * 0.98) - 1)
        border = text.rfind("\n", 0, target + 1)
        # A single line longer than the room is cut between words.
        at = border if border > target // 2 else text.rfind(" ", 0, target + 1)
        text = text[: at if at > target // 2 else target]
        tokens = len(tokenizer.encode(text))
    return text, tokens


def _harmless(text: str) -> str:
    return _DELIMITER.sub(r"< \1", text)


def _field_lines(schema: Mapping[str, Any]) -> Iterator[str]:
    """The fields as an indented list: `- name (text or null): description`."""
    count = 0
    waiting: list[tuple[str, Mapping[str, Any], int]] = [
        (name, field, 0) for name, field in reversed(_properties(schema, schema))
    ]
    while waiting and count < _MAX_FIELDS:
        name, field, depth = waiting.pop()
        count += 1
        field = _resolved(field, schema)
        description = _one_line(field.get("description"))
        kind = _kind(field, schema)
        yield f"{'  ' * depth}- {name} ({kind})" + (f": {description}" if description else "")
        if depth < _MAX_DEPTH:
            inner = _properties(_item(field, schema), schema)
            waiting.extend((part, sub, depth + 1) for part, sub in reversed(inner))


def _properties(
    schema: Mapping[str, Any], root: Mapping[str, Any]
) -> list[tuple[str, Mapping[str, Any]]]:
    properties = _resolved(schema, root).get("properties")
    if not isinstance(properties, Mapping):
        return []
    return [(name, sub) for name, sub in properties.items() if isinstance(sub, Mapping)]


def _item(field: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object whose properties a field holds: its own, its items', or a branch's."""
    for _ in range(_MAX_DEPTH):
        field = _resolved(field, root)
        if "properties" in field:
            break
        branches = field.get("anyOf") or field.get("oneOf")
        items = field.get("items")
        if isinstance(items, Mapping):
            field = items
        elif isinstance(branches, list):
            objects = [branch for branch in branches if isinstance(branch, Mapping)]
            wanted = [b for b in objects if "properties" in b or "items" in b or "$ref" in b]
            if not wanted:
                break
            field = wanted[0]
        else:
            break
    return field


def _resolved(field: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow local references; what the field says beside `$ref` comes first."""
    for _ in range(_MAX_DEPTH):
        reference = field.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            break
        target: Any = root
        for part in reference[1:].split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            target = target.get(part) if isinstance(target, Mapping) else None
        if not isinstance(target, Mapping):
            break
        rest = {key: value for key, value in field.items() if key != "$ref"}
        field = {**target, **rest}
    return field


_KIND_NAMES = {
    "string": "text",
    "number": "number",
    "integer": "whole number",
    "boolean": "true or false",
    "object": "object",
    "null": "null",
}


def _kind(field: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """A field's type in a few words."""
    field = _resolved(field, root)
    choices = field.get("enum")
    if isinstance(choices, list):
        shown = ["null" if choice is None else str(choice) for choice in choices[:_MAX_CHOICES]]
        return "one of " + ", ".join(shown)
    if "const" in field:
        return str(field["const"])
    branches = field.get("anyOf") or field.get("oneOf")
    if isinstance(branches, list):
        kinds = [_kind(branch, root) for branch in branches if isinstance(branch, Mapping)]
        return " or ".join(dict.fromkeys(kinds))
    stated = field.get("type", "object" if "properties" in field else "string")
    names = []
    for name in stated if isinstance(stated, list) else [stated]:
        if name == "array":
            items = field.get("items")
            inner = _kind(items, root) if isinstance(items, Mapping) else "values"
            names.append(f"list of {inner}")
        elif name == "string" and field.get("format") in ("date", "date-time", "uri", "email"):
            names.append({"uri": "URL"}.get(field["format"], field["format"]))
        else:
            names.append(_KIND_NAMES.get(str(name), str(name)))
    return " or ".join(names)


def _one_line(text: Any) -> str:
    return " ".join(str(text or "").split())[:_MAX_DESCRIPTION]
