"""What a schema's new version means for those who read its records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from .walk import escape, resolve

Effect = Literal["wording", "additive", "narrowing", "breaking"]
Verdict = Literal["identical", "wording", "additive", "narrowing", "breaking"]

_RANK: dict[str, int] = {"wording": 1, "additive": 2, "narrowing": 3, "breaking": 4}
_MAX_DEPTH = 32

_MAXIMA = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_MINIMA = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_WORDS = ("title", "description", "examples", "default", "$comment", "$id", "$schema", "deprecated")
_BRANCHES = ("anyOf", "oneOf", "allOf", "prefixItems")
# Handled by themselves, or found through references.
_APART = frozenset(
    {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "$ref"}
    | {"$defs", "definitions", *_MAXIMA, *_MINIMA, *_WORDS, *_BRANCHES}
)


class Change(msgspec.Struct, frozen=True):
    """One difference: its effect, the JSON pointer of its place in the new schema, a sentence."""

    effect: Effect
    pointer: str
    message: str


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Return the differences between two schemas that `load` accepts, in document order.

    `breaking`: some record of the new schema is invalid under the old one, or may be (what can't be
    judged counts as breaking). `additive`: a field is new; without it, new records are valid under
    the old schema. `narrowing`: new records are valid under the old schema, which allowed more.
    `wording`: what the model is told, or the order of fields; the same records are valid.
    """
    return list(_Comparison(old, new).schemas(old, new, "", 0))


def verdict(changes: list[Change]) -> Verdict:
    """The strongest effect of all changes: breaking, narrowing, additive, wording, identical."""
    effects: list[Effect] = [change.effect for change in changes]
    return max(effects, key=_RANK.__getitem__) if effects else "identical"


class _Comparison:
    def __init__(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        self._old, self._new = old, new

    def schemas(self, old: Any, new: Any, at: str, depth: int) -> Iterator[Change]:
        old, new = _target(self._old, old), _target(self._new, new)
        if isinstance(old, bool) or isinstance(new, bool):
            if old != new:
                effect: Effect = "narrowing" if old is True or new is False else "breaking"
                yield Change(effect, at, "allows less" if effect == "narrowing" else "allows more")
            return
        if depth > _MAX_DEPTH:
            if _text(old) != _text(new):
                yield Change("breaking", at, "differs too deep to be judged")
            return
        yield from _types(old, new, at)
        yield from _choices(old, new, at)
        for keyword in _MAXIMA:
            yield from _bound(old, new, at, keyword, 1)
        for keyword in _MINIMA:
            yield from _bound(old, new, at, keyword, -1)
        yield from self._object(old, new, at, depth)
        if "items" in old or "items" in new:
            before, after = old.get("items", True), new.get("items", True)
            yield from self.schemas(before, after, f"{at}/items", depth + 1)
        for keyword in _BRANCHES:
            yield from self._branches(old, new, at, keyword, depth)
        for keyword in [*old, *(name for name in new if name not in old)]:
            if keyword.startswith("x-") or keyword in _WORDS:
                if old.get(keyword) != new.get(keyword):
                    yield Change("wording", at, f"another {keyword}")
            elif keyword not in _APART:
                yield from _other(old, new, at, keyword)

    def _object(
        self, old: Mapping[str, Any], new: Mapping[str, Any], at: str, depth: int
    ) -> Iterator[Change]:
        before, after = old.get("properties", {}), new.get("properties", {})
        must, must_now = old.get("required", ()), new.get("required", ())
        for name, schema in after.items():
            here = f"{at}/properties/{escape(name)}"
            if name in before:
                yield from self.schemas(before[name], schema, here, depth + 1)
            else:
                yield Change("additive", here, "a new field")
        for name in before:
            here = f"{at}/properties/{escape(name)}"
            if name not in after:
                gone: Effect = "breaking" if name in must else "narrowing"
                yield Change(gone, here, "the field is gone")
            elif name in must and name not in must_now:
                yield Change("breaking", here, "may be left out now")
            elif name in must_now and name not in must:
                yield Change("narrowing", here, "is always there now")
        common = [name for name in before if name in after]
        if common != [name for name in after if name in before]:
            yield Change("wording", f"{at}/properties", "another order of fields")
        open_before = old.get("additionalProperties", True)
        open_now = new.get("additionalProperties", True)
        if "additionalProperties" in old or "additionalProperties" in new:
            yield from self.schemas(open_before, open_now, f"{at}/additionalProperties", depth + 1)

    def _branches(
        self, old: Mapping[str, Any], new: Mapping[str, Any], at: str, keyword: str, depth: int
    ) -> Iterator[Change]:
        before, after = old.get(keyword), new.get(keyword)
        if before is None and after is None:
            return
        if before is None:
            yield Change("narrowing", at, f"{keyword} is new")
        elif after is None or len(before) != len(after):
            yield Change("breaking", at, f"another {keyword}")
        else:
            for i, (one, other) in enumerate(zip(before, after, strict=True)):
                found = list(self.schemas(one, other, f"{at}/{keyword}/{i}", depth + 1))
                if keyword == "oneOf":
                    # A narrower branch may leave to another what both refused before.
                    found = [
                        msgspec.structs.replace(change, effect="breaking")
                        if change.effect == "narrowing"
                        else change
                        for change in found
                    ]
                yield from found


def _target(root: Mapping[str, Any], schema: Any) -> Any:
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, Mapping) or set(schema) - set(_WORDS) != {"$ref"}:
            break
        schema = resolve(root, schema["$ref"])
    return schema


def _type_set(schema: Mapping[str, Any]) -> set[str] | None:
    types = schema.get("type")
    if types is None:
        return None
    return {types} if isinstance(types, str) else set(types)


def _types(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[Change]:
    before, after = _type_set(old), _type_set(new)
    if before == after:
        return
    shown = " or ".join(sorted(after)) if after is not None else "anything"
    covered = before is None or (
        after is not None
        and all(kind in before or (kind == "integer" and "number" in before) for kind in after)
    )
    yield Change("narrowing" if covered else "breaking", at, f"is {shown} now")


def _choices(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[Change]:
    before, after = _values(old), _values(new)
    if before == after:
        return
    if after is None:
        yield Change("breaking", at, "any value, no longer one of a list")
    elif before is None:
        yield Change("narrowing", at, "one of a list now")
    else:
        if added := [value for value in after if value not in before]:
            yield Change("breaking", at, f"may be {', '.join(added)[:200]} now")
        if gone := [value for value in before if value not in after]:
            yield Change("narrowing", at, f"is never {', '.join(gone)[:200]} now")


def _values(schema: Mapping[str, Any]) -> set[str] | None:
    if "const" in schema:
        return {_text(schema["const"])}
    return {_text(value) for value in schema["enum"]} if "enum" in schema else None


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _bound(
    old: Mapping[str, Any], new: Mapping[str, Any], at: str, keyword: str, sign: int
) -> Iterator[Change]:
    before, after = old.get(keyword), new.get(keyword)
    if before == after:
        return
    narrower = before is None or (after is not None and sign * after < sign * before)
    yield Change("narrowing" if narrower else "breaking", at, f"{keyword}: {before} -> {after}")


def _other(
    old: Mapping[str, Any], new: Mapping[str, Any], at: str, keyword: str
) -> Iterator[Change]:
    before, after = old.get(keyword), new.get(keyword)
    if before == after:
        return
    added = before is None or before is False
    yield Change(
        "narrowing" if added else "breaking",
        at,
        f"{keyword} is new" if added else f"another {keyword}",
    )
