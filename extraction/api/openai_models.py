"""The part of OpenAI's chat completion requests that is served.

Fields that clients send by habit are known and must have the value that changes nothing; anything
else is refused, never ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from .models import Strict


class TextPart(Strict):
    type: Literal["text"]
    text: str


class Message(Strict):
    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    def plain(self) -> dict[str, str]:
        """The message as the chat template takes it."""
        if isinstance(self.content, str):
            return {"role": self.role, "content": self.content}
        return {"role": self.role, "content": "".join(part.text for part in self.content)}


class JsonSchemaFormat(Strict):
    name: str = ""
    description: str | None = None
    strict: bool | None = None
    schema_: dict[str, Any] = Field(alias="schema")


class ResponseFormat(Strict):
    """`json_object` is refused: an automaton needs to know which object."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StreamOptions(Strict):
    include_usage: bool = False
    include_obfuscation: bool | None = None


_Stop = Annotated[str, Field(min_length=1, max_length=256)]


class ChatRequest(Strict):
    model: str
    messages: list[Message] = Field(min_length=1, max_length=256)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    n: int | None = Field(default=None, ge=1, le=16)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: _Stop | Annotated[list[_Stop], Field(max_length=4)] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    # Known, and of no effect on the answer.
    user: str | None = None
    metadata: dict[str, str] | None = None
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None
    parallel_tool_calls: bool | None = None
    # Known, and served only with the value that asks for nothing.
    logprobs: Literal[False] | None = None
    frequency_penalty: float | None = Field(default=None, ge=0, le=0)
    presence_penalty: float | None = Field(default=None, ge=0, le=0)
    tool_choice: Literal["none", "auto"] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None

    @property
    def stops(self) -> list[str]:
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop

    @property
    def budget(self) -> int | None:
        """Most tokens of the answer, by either name."""
        return self.max_completion_tokens or self.max_tokens
