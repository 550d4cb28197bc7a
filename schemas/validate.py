"""The last check of a record: a JSON Schema validator with formats, independent of decoding.

Decoding already keeps a record inside its schema's language; this check is made by other code
(the jsonschema package), so that a mistake in the lowering can't hand out a wrong record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator as JsonSchemaValidator
from jsonschema_specifications import REGISTRY as SPECIFICATIONS

from .errors import SchemaReason, SchemaRefused
from .load import dialect, load
from .pattern import Pattern
from .walk import escape, subschemas

MAX_ERRORS = 20


class Validator:
    """Checks values against one schema. Made once per schema; safe to share between threads.

    References are resolved inside the schema only: nothing is ever fetched. `pattern` runs in
    linear time (see `pattern.py`).
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises SchemaRefused if `schema` is not one that `load` accepts."""
        checked = load(schema)
        patterns: dict[str, Pattern] = {}
        for at, subschema in subschemas(checked):
            if "patternProperties" in subschema:
                raise SchemaRefused(
                    SchemaReason.KEYWORD_UNSUPPORTED,
                    "patternProperties",
                    at=f"{at}/patternProperties",
                    advice="name the properties",
                )
            if "pattern" in subschema:
                patterns[subschema["pattern"]] = Pattern(subschema["pattern"])

        def matches(
            _: JsonSchemaValidator, expression: str, value: object, __: Mapping[str, Any]
        ) -> Iterator[ValidationError]:
            if isinstance(value, str) and not patterns[expression].search(value):
                yield ValidationError(f"{value!r} does not match {expression!r}")

        draft = dialect(checked)
        self._validator: JsonSchemaValidator = validators.extend(draft, {"pattern": matches})(
            checked, registry=SPECIFICATIONS, format_checker=draft.FORMAT_CHECKER
        )

    def errors(self, value: object) -> list[str]:
        """What is wrong with `value`, by JSON pointer, at most MAX_ERRORS; [] if it is valid.

        Values themselves are shown cut to a few words: a record may hold a page's text.
        """
        found: list[str] = []
        try:
            for error in self._validator.iter_errors(value):
                found.append(_message(error))
                if len(found) == MAX_ERRORS:
                    break
        except RecursionError:
            return ["the value or the schema nests without end"]
        return found


def _message(error: ValidationError) -> str:
    """One sentence that begins with the value's JSON pointer ("(root)" for the whole)."""
    at = "".join(f"/{escape(str(token))}" for token in error.absolute_path) or "(root)"
    expected = error.validator_value
    shown = _short(error.instance)
    match error.validator:
        case "type":
            names = [expected] if isinstance(expected, str) else list(expected)
            return f"{at}: {shown} is not {' or '.join(names)}"
        case "required":
            missing = [name for name in expected if name not in error.instance]
            return f"{at}: {', '.join(map(repr, missing))} missing"
        case "additionalProperties" if expected is False:
            known = error.schema.get("properties", {})
            extra = [name for name in error.instance if name not in known]
            return f"{at}: {', '.join(map(_short, extra[:5]))} not in the schema"
        case "enum":
            return f"{at}: {shown} is none of {_short(expected, 120)}"
        case "const":
            return f"{at}: {shown} is not {_short(expected)}"
        case "format":
            return f"{at}: {shown} is not a {expected}"
        case "pattern":
            return f"{at}: {shown} does not match {expected}"
        case "minLength" | "maxLength":
            bound = "shorter" if error.validator == "minLength" else "longer"
            return f"{at}: {shown} is {bound} than {expected} characters"
        case "minItems" | "maxItems":
            bound = "fewer" if error.validator == "minItems" else "more"
            return f"{at}: {bound} than {expected} items"
        case "minimum" | "exclusiveMinimum":
            return f"{at}: {shown} is below {error.validator} {expected}"
        case "maximum" | "exclusiveMaximum":
            return f"{at}: {shown} is above {error.validator} {expected}"
        case "anyOf" | "oneOf" | "not":
            return f"{at}: {shown} does not fit {error.validator}"
        case keyword:
            return f"{at}: {shown} breaks {keyword}"


def _short(value: object, limit: int = 40) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
