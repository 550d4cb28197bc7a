"""What a schema says in the prompt: its fields as a list, and where metadata tells of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .links import is_link_field

_INSTRUCTIONS = (
    "Extract a record from the web page. Answer with one JSON object that has these fields. "
    "Copy values as the page writes them. Use null for what the page does not say."
)
_MAX_DEPTH = 6
_MAX_FIELDS = 200
_MAX_DESCRIPTION = 300
_MAX_CHOICES = 16


class FieldSource(NamedTuple):
    """Where in the metadata a field stands, from the schema's `x-pagemill-source`.

    `thing` is a schema.org type, `keys` are those of `MetadataEntry` by preference.
    """

    field: str
    thing: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class SchemaPrompt:
    """The system message of a schema, and which metadata its fields are found in."""

    system: str
    sources: tuple[FieldSource, ...] = ()

    @classmethod
    def of(cls, schema: Mapping[str, Any], *, name: str = "") -> SchemaPrompt:
        """Describe a loaded schema as a list of fields, in the order of decoding."""
        title = str(schema.get("title") or name or "Record")
        description = _one_line(schema.get("description"))
        lines = [_INSTRUCTIONS, "", f"{title}: {description}" if description else title]
        lines.extend(_field_lines(schema))
        return cls("\n".join(lines), tuple(_sources(schema)))


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
        elif name == "string" and is_link_field(field):
            names.append("link, as L12")
        elif name == "string" and field.get("format") in ("date", "date-time", "uri", "email"):
            names.append({"uri": "URL"}.get(field["format"], field["format"]))
        else:
            names.append(_KIND_NAMES.get(str(name), str(name)))
    return " or ".join(names)


def _one_line(text: Any) -> str:
    return " ".join(str(text or "").split())[:_MAX_DESCRIPTION]


def _sources(schema: Mapping[str, Any]) -> Iterator[FieldSource]:
    """The fields that say where in the metadata they stand; inner fields as "outer.inner"."""
    waiting = [(name, field, 0) for name, field in reversed(_properties(schema, schema))]
    while waiting:
        name, field, depth = waiting.pop()
        field = _resolved(field, schema)
        stated = field.get("x-pagemill-source")
        paths = [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else []
        split = [path.split(".") for path in paths if isinstance(path, str) and path[:1].isupper()]
        if split:
            yield FieldSource(name, split[0][0], tuple(_entry_key(parts[1:]) for parts in split))
        if depth < _MAX_DEPTH:
            inner = _properties(_item(field, schema), schema)
            waiting.extend((f"{name}.{part}", sub, depth + 1) for part, sub in reversed(inner))


def _entry_key(parts: list[str]) -> str:
    """The key under which metadata shows a path: a thing's name stands for the thing."""
    if len(parts) > 1 and parts[-1] in ("name", "text"):
        parts = parts[:-1]
    return ".".join(parts)
