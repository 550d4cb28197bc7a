"""The part of OpenAI's requests that is served: chat completions and completions.

Fields that clients send by habit are known and must have the value that changes nothing; anything
else is refused, never ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .models import Strict
from .openai_formats import Shaped, Tool, ToolChoices, only

MAX_PROMPTS = 64
MAX_CHOICES = 128  # of all prompts of a call together

_Stop = Annotated[str, Field(min_length=1, max_length=256)]
_TokenId = Annotated[int, Field(ge=0, lt=2**31)]
_TokenIds = Annotated[list[_TokenId], Field(min_length=1)]
_NoPenalty = Annotated[float | None, only(0, advice="leave it out, or 0")]
_NotServed = Annotated[Any, only(advice="leave it out")]
_NotTrue = Annotated[bool | None, only(False, advice="leave it out, or false")]
_NotFalse = Annotated[bool | None, only(True, advice="leave it out, or true")]


class TextPart(Strict):
    type: Literal["text"]
    text: str


class ToolCallFunction(Strict):
    name: str
    arguments: str
    parsed_arguments: Any = None


class ToolCall(Strict):
    id: str
    type: Literal["function"] = "function"
    function: ToolCallFunction
    index: int | None = None


class Message(BaseModel):
    """One message; what clients echo of an answer (refusal, parsed, ...) says nothing new."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    parsed: Any = None
    annotations: Annotated[list[Any] | None, only([], advice="leave it out")] = None
    audio: _NotServed = None
    function_call: _NotServed = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.content is None and not self.tool_calls:
            raise ValueError("a message needs content")
        return self

    def plain(self) -> dict[str, str]:
        """The message as the chat template takes it; templates know few roles."""
        role = {"developer": "system", "tool": "user"}.get(self.role, self.role)
        return {"role": role, "content": self._text() or self._called()}

    def _text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""

    def _called(self) -> str:
        return "\n".join(call.function.arguments for call in self.tool_calls or [])


class StreamOptions(Strict):
    include_usage: bool = False
    include_obfuscation: bool | None = None
    continuous_usage_stats: _NotTrue = None


class Sampled(Shaped):
    """What chat completions and completions have in common."""

    model: str
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    n: int | None = Field(default=None, ge=1, le=16)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: _Stop | Annotated[list[_Stop], Field(max_length=4)] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    # Beam search as vLLM's users ask for it: `n` texts of a search with `best_of` (or `n`) beams.
    use_beam_search: bool = False
    best_of: int | None = Field(default=None, ge=1, le=16)
    length_penalty: float = Field(default=1.0, ge=-10, le=10)
    # Known, and of no effect on the answer.
    user: str | None = None
    metadata: dict[str, str] | None = None
    service_tier: Literal["auto", "default"] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    # Known, and served only with the value that asks for nothing.
    frequency_penalty: _NoPenalty = None
    presence_penalty: _NoPenalty = None
    repetition_penalty: Annotated[float | None, only(1, advice="leave it out, or 1")] = None
    logit_bias: Annotated[
        dict[str, float] | None,
        only({}, advice="leave it out; a schema or guided_choice says which answers can be"),
    ] = None
    top_k: Annotated[int | None, only(0, -1, advice="leave it out, or -1; top_p is served")] = None
    min_p: Annotated[float | None, only(0, advice="leave it out, or 0; top_p is served")] = None
    min_tokens: Annotated[int | None, only(0, advice="leave it out, or 0")] = None
    ignore_eos: _NotTrue = None
    stop_token_ids: Annotated[list[int] | None, only([], advice="use stop")] = None
    include_stop_str_in_output: _NotTrue = None
    skip_special_tokens: _NotFalse = None
    spaces_between_special_tokens: _NotFalse = None
    add_special_tokens: bool | None = None

    @model_validator(mode="after")
    def _beams_fit(self) -> Self:
        if not self.use_beam_search:
            if self.best_of not in (None, self.n or 1) or self.length_penalty != 1.0:
                raise ValueError("best_of and length_penalty need use_beam_search: true")
        elif self.temperature or self.top_logprobs_wanted is not None:
            raise ValueError("use_beam_search is served without temperature and logprobs")
        elif self.beam_width < (self.n or 1):
            raise ValueError("best_of must be at least n")
        return self

    @property
    def top_logprobs_wanted(self) -> int | None:
        """How many of the best tokens are to be told besides; None without log probabilities."""
        raise NotImplementedError

    @property
    def budget(self) -> int | None:
        """Most tokens of an answer."""
        raise NotImplementedError

    @property
    def beam_width(self) -> int:
        """Beams of the search that is asked for, else 0."""
        return (self.best_of or self.n or 1) if self.use_beam_search else 0

    @property
    def stops(self) -> list[str]:
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop


class ChatRequest(Sampled):
    """A conversation to go on with. `tools` are served where `tool_choice` says which is called."""

    messages: list[Message] = Field(min_length=1, max_length=256)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    tools: Annotated[list[Tool], Field(max_length=64)] | None = None
    tool_choice: ToolChoices | None = None
    # pagemill's own: choices say where in the last user message their values stand.
    evidence: bool = False
    # Known, and of no effect on the answer.
    parallel_tool_calls: bool | None = None
    # Known, and served only with the value that asks for nothing.
    store: _NotTrue = None
    functions: Annotated[Any, only([], advice="use tools")] = None
    function_call: Annotated[Any, only("none", advice="use tool_choice")] = None
    modalities: Annotated[list[str] | None, only(["text"], advice='leave it out, or ["text"]')] = (
        None
    )
    audio: _NotServed = None
    prediction: _NotServed = None
    web_search_options: _NotServed = None
    reasoning_effort: Annotated[str | None, only("none", advice="leave it out")] = None
    add_generation_prompt: _NotFalse = None
    continue_final_message: _NotTrue = None
    echo: _NotTrue = None

    @model_validator(mode="after")
    def _logprobs_fit(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        return self

    @model_validator(mode="after")
    def _evidence_fits(self) -> Self:
        bound = self.response_format or self.guided_json or self.structured_outputs or self.tools
        if self.evidence and (self.stream or not bound):
            raise ValueError("evidence needs a schema (response_format), and no stream")
        return self

    @property
    def page(self) -> str:
        """The last user message: where a conversation with a schema has its page."""
        users = [message for message in self.messages if message.role == "user"]
        return users[-1].plain()["content"] if users else ""

    @property
    def top_logprobs_wanted(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def budget(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class CompletionRequest(Sampled):
    """Texts to go on with, or their token ids. Choices of the second prompt follow the first's."""

    prompt: (
        str
        | _TokenIds
        | Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS)]
        | Annotated[list[_TokenIds], Field(min_length=1, max_length=MAX_PROMPTS)]
    )
    max_tokens: int | None = Field(default=16, ge=1)
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: bool | None = Field(default=None, description="Put the prompt before each text")
    suffix: Annotated[str | None, only("", advice="texts are only gone on with at their end")] = (
        None
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.echo and self.logprobs is not None:
            raise ValueError("echo is served without logprobs: prompts aren't scored")
        if len(self.prompts) * (self.n or 1) > MAX_CHOICES:
            raise ValueError(f"prompts times n: at most {MAX_CHOICES}")
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts one by one."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return cast("list[str | list[int]]", self.prompt)

    @property
    def top_logprobs_wanted(self) -> int | None:
        return self.logprobs

    @property
    def budget(self) -> int | None:
        return self.max_tokens
