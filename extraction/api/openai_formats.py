"""What an answer is asked to look like: by `response_format`, by vLLM's fields, or by a tool.

All of them come down to one `Constraint`, or to none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn

import orjson
from pydantic import AfterValidator, Field

from ..reason import Reason
from .models import Strict
from .problems import refuse

MAX_CHOICES = 1000
_SCHEMA_ADVICE = 'use {"type": "json_schema", "json_schema": {"schema": {...}}}'
_PATTERN_ADVICE = 'use a JSON Schema with "pattern": its string comes in quotes'


def only(*neutral: Any, advice: str) -> AfterValidator:
    """A field that clients know and that is served with the values that ask for nothing."""

    def check(value: Any) -> Any:
        if value is not None and value not in neutral:
            raise ValueError(f"it isn't served: {advice}")
        return value

    return AfterValidator(check)


class JsonSchemaFormat(Strict):
    name: str = ""
    description: str | None = None
    strict: bool | None = None
    schema_: dict[str, Any] = Field(alias="schema")


class ResponseFormat(Strict):
    """`json_object` is any object within bounds: nested five deep, arrays of up to 64 items."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(Strict):
    """As vLLM has them; one of `json`, `choice` and `json_object`."""

    json_: dict[str, Any] | str | None = Field(default=None, alias="json")
    choice: list[str] | None = None
    json_object: bool | None = None
    regex: str | None = None
    grammar: str | None = None
    structural_tag: str | None = None
    # How it is decoded, which is ours to choose.
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    disable_fallback: bool | None = None
    whitespace_pattern: Annotated[str | None, only(advice="records are compact JSON")] = None


class Function(Strict):
    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Strict):
    type: Literal["function"]
    function: Function


class ChosenFunction(Strict):
    name: str


class ToolChoice(Strict):
    type: Literal["function"]
    function: ChosenFunction


ToolChoices = Literal["none", "auto", "required"] | ToolChoice


class Shaped(Strict):
    """The fields by which vLLM's users say what an answer looks like."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_choice: list[str] | None = None
    guided_regex: str | None = None
    guided_grammar: str | None = None
    guided_decoding_backend: str | None = None
    guided_whitespace_pattern: Annotated[str | None, only(advice="records are compact JSON")] = None


@dataclass(frozen=True)
class Constraint:
    """A schema (None: any object), or texts of which the answer is one; `at` is who asked.

    With `tool` the answer is the arguments of that function.
    """

    at: str
    schema: Mapping[str, Any] | None = None
    choices: tuple[str, ...] = ()
    tool: str = ""


def constraint_of(
    asked: Shaped, tools: list[Tool] | None = None, tool_choice: ToolChoices | None = None
) -> Constraint | None:
    """Return what the answer is bound to. HttpRefused for what isn't served, or two of them."""
    found = [*_by_format(asked), *_by_structured_outputs(asked), *_by_guided(asked)]
    found += _by_tool(tools or [], tool_choice)
    if len(found) > 1:
        _invalid(f"{found[0].at} and {found[1].at} both bind the answer", found[1].at, "give one")
    return found[0] if found else None


def _by_format(asked: Shaped) -> list[Constraint]:
    wanted, at = asked.response_format, "/response_format"
    if wanted is None or wanted.type == "text":
        return []
    if wanted.type == "json_object":
        return [Constraint(at)]
    if wanted.json_schema is None:
        _invalid("json_schema without a schema", at, _SCHEMA_ADVICE)
    return [Constraint(at, wanted.json_schema.schema_)]


def _by_structured_outputs(asked: Shaped) -> list[Constraint]:
    wanted, at = asked.structured_outputs, "/structured_outputs"
    if wanted is None:
        return []
    for name in ("regex", "grammar", "structural_tag"):
        if getattr(wanted, name) is not None:
            _invalid(f"{name} isn't served", f"{at}/{name}", _PATTERN_ADVICE)
    found = _either(wanted.json_, f"{at}/json", wanted.choice, f"{at}/choice")
    return [*found, Constraint(f"{at}/json_object")] if wanted.json_object else found


def _by_guided(asked: Shaped) -> list[Constraint]:
    for name in ("guided_regex", "guided_grammar"):
        if getattr(asked, name) is not None:
            _invalid(f"{name} isn't served", f"/{name}", _PATTERN_ADVICE)
    return _either(asked.guided_json, "/guided_json", asked.guided_choice, "/guided_choice")


def _either(
    schema: dict[str, Any] | str | None, at: str, choice: list[str] | None, at_choice: str
) -> list[Constraint]:
    found = []
    if schema is not None:
        found.append(Constraint(at, _read_schema(schema, at)))
    if choice is not None:
        if not 1 <= len(choice) <= MAX_CHOICES:
            _invalid(f"{len(choice)} choices", at_choice, f"give from 1 to {MAX_CHOICES}")
        found.append(Constraint(at_choice, choices=tuple(choice)))
    return found


def _read_schema(schema: dict[str, Any] | str, at: str) -> dict[str, Any]:
    if isinstance(schema, str):
        try:
            schema = orjson.loads(schema)
        except orjson.JSONDecodeError as error:
            _invalid(f"the schema isn't JSON: {error}", at)
    if not isinstance(schema, dict):
        _invalid("the schema isn't an object", at)
    return schema


def _by_tool(tools: list[Tool], choice: ToolChoices | None) -> list[Constraint]:
    named = choice.function.name if isinstance(choice, ToolChoice) else ""
    if not tools:
        if named or choice == "required":
            _invalid("a tool is to be called, and none is given", "/tool_choice", "give tools")
        return []
    if choice == "none":
        return []
    names = [tool.function.name for tool in tools]
    if named and named not in names:
        _invalid(f"no tool {named[:100]!r}", "/tool_choice", f"known are {', '.join(names)[:200]}")
    if not named and (choice != "required" or len(tools) > 1):
        _invalid(
            "the model doesn't choose among tools, or whether to call one",
            "/tool_choice",
            'name the function: {"type": "function", "function": {"name": ...}}, or "none"',
        )
    function = tools[names.index(named) if named else 0].function
    at = f"/tools/{names.index(function.name)}/function/parameters"
    # A function without parameters is called with {}.
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    return [Constraint(at, function.parameters or nothing, tool=function.name)]


def _invalid(message: str, at: str, advice: str = "") -> NoReturn:
    refuse(Reason.REQUEST_INVALID, message, at=at, advice=advice)
