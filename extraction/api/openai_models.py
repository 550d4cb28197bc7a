"""The part of OpenAI's chat completion requests that is served.

Fields that clients send by habit are known and must have the value that changes nothing; anything
else is refused, never ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

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
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    # Beam search as vLLM's users ask for it: `n` texts of a search with `best_of` (or `n`) beams.
    use_beam_search: bool = False
    best_of: int | None = Field(default=None, ge=1, le=16)
    length_penalty: float = Field(default=1.0, ge=-10, le=10)
    # pagemill's own: choices say where in the last user message their values stand.
    evidence: bool = False
    # Known, and of no effect on the answer.
    user: str | None = None
    metadata: dict[str, str] | None = None
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None
    parallel_tool_calls: bool | None = None
    # Known, and served only with the value that asks for nothing.
    frequency_penalty: float | None = Field(default=None, ge=0, le=0)
    presence_penalty: float | None = Field(default=None, ge=0, le=0)
    tool_choice: Literal["none", "auto"] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        if self.evidence and (self.stream or not self.response_format):
            raise ValueError("evidence needs a response_format, and no stream")
        if not self.use_beam_search:
            if self.best_of not in (None, self.n or 1) or self.length_penalty != 1.0:
                raise ValueError("best_of and length_penalty need use_beam_search: true")
        elif self.temperature or self.logprobs:
            raise ValueError("use_beam_search is served without temperature and logprobs")
        elif self.beam_width < (self.n or 1):
            raise ValueError("best_of must be at least n")
        return self

    @property
    def beam_width(self) -> int:
        """Beams of the search that is asked for, else 0."""
        return (self.best_of or self.n or 1) if self.use_beam_search else 0

    @property
    def stops(self) -> list[str]:
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop

    @property
    def budget(self) -> int | None:
        """Most tokens of the answer, by either name."""
        return self.max_completion_tokens or self.max_tokens
