"""The last check of a record: a JSON Schema validator with formats, independent of decoding.

Decoding already keeps a record inside its schema's language; this check is made by other code
(the jsonschema package), so that a mistake in the lowering can't hand out a wrong record.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal, localcontext
from typing import Any
from urllib.parse import quote

from jsonschema import FormatChecker, validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator as JsonSchemaValidator
from referencing import Registry

from .errors import SchemaReason, SchemaRefused
from .load import dialect, load
from .pattern import Pattern
from .walk import escape, subschemas

MAX_ERRORS = 20
_MAX_TRIMMED = 100

# What jsonschema calls for a keyword: (validator, the keyword's value, instance, schema).
Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]


class Validator:
    """Checks values against one schema. Made once per schema; safe to share between threads.

    References are resolved inside the schema only: nothing is ever fetched. Expressions
    run in linear time (see `pattern.py`).
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises SchemaRefused if `schema` is not one that `load` accepts."""
        checked = load(schema)
        draft = dialect(checked)
        extend: Callable[..., type[JsonSchemaValidator]] = validators.extend
        self._validator = extend(draft, _linear(checked))(
            checked, registry=Registry(), format_checker=_format_checker(draft.FORMAT_CHECKER)
        )

    def errors(self, value: Any) -> list[str]:
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

    def trimmed(self, value: Any) -> Any:
        """Return `value` with its arrays as short, and as free of repeats, as the schema wants.

        Last items go, and repeats of earlier ones. What else is wrong stays wrong.
        """
        value = copy.deepcopy(value)
        for _ in range(_MAX_TRIMMED):
            error = next(filter(_is_excess, _with_causes(self._validator.iter_errors(value))), None)
            if error is None:
                break
            array = value
            for step in error.absolute_path:
                array = array[step]
            if error.validator == "maxItems":
                del array[error.validator_value :]
            else:
                array[:] = {json.dumps(item, sort_keys=True): item for item in array}.values()
        return value


def _is_excess(error: ValidationError) -> bool:
    return error.validator in ("maxItems", "uniqueItems")


def _with_causes(errors: Iterable[ValidationError]) -> Iterator[ValidationError]:
    for error in errors:
        yield error
        yield from _with_causes(error.context or ())


def _format_checker(of_draft: FormatChecker) -> FormatChecker:
    """The draft's formats, and IRIs by the URIs that they map to (RFC 3987, section 3.1).

    The package that jsonschema takes for IRIs needs seconds to import.
    """
    checker = FormatChecker(formats=())
    checker.checkers = dict(of_draft.checkers)
    for name, ascii_name in (("iri", "uri"), ("iri-reference", "uri-reference")):

        def is_iri(value: object, ascii_name: str = ascii_name) -> bool:
            if not isinstance(value, str):
                return True
            mapped = "".join(
                char if char.isascii() else quote(char, errors="replace") for char in value
            )
            return of_draft.conforms(mapped, ascii_name)

        checker.checks(name)(is_iri)
    return checker


def _linear(schema: Mapping[str, Any]) -> dict[str, Keyword]:
    """The keywords that match expressions, by `Pattern` instead of Python's `re`."""
    expressions: set[str] = set()
    for at, subschema in subschemas(schema):
        expressions.update([subschema["pattern"]] if "pattern" in subschema else [])
        expressions.update(subschema.get("patternProperties", ()))
        if "unevaluatedProperties" in subschema and "patternProperties" in subschema:
            raise SchemaRefused(
                SchemaReason.KEYWORD_UNSUPPORTED,
                "unevaluatedProperties beside patternProperties",
                at=f"{at}/unevaluatedProperties",
                advice="use additionalProperties",
            )
    patterns = {expression: Pattern(expression) for expression in expressions}

    def pattern(_: Any, expression: str, value: Any, __: Any) -> Iterator[ValidationError]:
        if isinstance(value, str) and not patterns[expression].search(value):
            yield ValidationError(f"{value!r} does not match {expression!r}")

    def pattern_properties(
        validator: Any, by_expression: Mapping[str, Any], value: Any, _: Any
    ) -> Iterator[ValidationError]:
        if isinstance(value, dict):
            for expression, subschema in by_expression.items():
                for name, item in value.items():
                    if patterns[expression].search(name):
                        yield from validator.descend(item, subschema, name, expression)

    def additional_properties(
        validator: Any, rest: Any, value: Any, schema: Mapping[str, Any]
    ) -> Iterator[ValidationError]:
        if not isinstance(value, dict):
            return
        matching = [patterns[expression] for expression in schema.get("patternProperties", ())]
        extra = [
            name
            for name in value
            if name not in schema.get("properties", ())
            and not any(pattern.search(name) for pattern in matching)
        ]
        if isinstance(rest, dict):
            for name in extra:
                yield from validator.descend(value[name], rest, name)
        elif rest is False and extra:
            yield ValidationError(", ".join(map(_short, extra[:5])))

    def multiple_of(_: Any, factor: Any, value: Any, __: Any) -> Iterator[ValidationError]:
        # In decimals, as the numbers are written: 19.99 is a multiple of 0.01.
        if isinstance(value, int | float) and not isinstance(value, bool):
            exact, unit = Decimal(repr(value)), Decimal(repr(factor))
            with localcontext(prec=800):
                fits = exact.is_finite() and exact % unit == 0
            if not fits:
                yield ValidationError(f"{value!r} is no multiple of {factor!r}")

    return {
        "multipleOf": multiple_of,
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
    }


def _message(error: ValidationError) -> str:
    """One sentence that begins with the value's JSON pointer ("(root)" for the whole)."""
    at = "".join(f"/{escape(str(token))}" for token in error.absolute_path) or "(root)"
    expected: Any = error.validator_value
    instance: Any = error.instance
    shown = _short(instance)
    match error.validator:
        case "type":
            names = [expected] if isinstance(expected, str) else list(expected)
            return f"{at}: {shown} is not {' or '.join(names)}"
        case "required":
            missing = [name for name in expected if name not in instance]
            return f"{at}: {', '.join(map(repr, missing))} missing"
        case "additionalProperties" if expected is False:
            return f"{at}: {error.message} not in the schema"
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
