"""What goes back to clients: collected while messages are handled and steps run, then taken."""

from __future__ import annotations

from collections.abc import Callable

from .errors import EngineError
from .metrics import EngineCounters
from .protocol import CoreMessage, Output, Outputs
from .request_book import Progress, Verdict


class Answers:
    """Messages by client; the outputs of a client become one message."""

    def __init__(self, counters: EngineCounters, clock: Callable[[], float]) -> None:
        self._counters = counters
        self._clock = clock
        self._messages: list[tuple[bytes, CoreMessage]] = []
        self._outputs: dict[bytes, list[Output]] = {}

    def send(self, client: bytes, message: CoreMessage) -> None:
        self._messages.append((client, message))

    def reach(self, client: bytes) -> None:
        """Send outputs even if there are none: whether that works tells if the client is there."""
        self._outputs.setdefault(client, [])

    def take(self) -> list[tuple[bytes, CoreMessage]]:
        """Return and forget what is to be sent."""
        messages, self._messages = self._messages, []
        outputs, self._outputs = self._outputs, {}
        messages.extend((client, Outputs(share)) for client, share in outputs.items())
        return messages

    def progress(self, item: Progress) -> None:
        """New tokens of a request that goes on."""
        self._count(item)
        entry = item.entry
        self._put(
            entry.client,
            Output(
                entry.request.request_id,
                tuple(item.token_ids),
                first_token_s=entry.first_token_s,
                sample=entry.sample,
                logprobs=item.logprobs,
            ),
        )

    def end(self, item: Progress, verdict: Verdict, open_samples: int) -> None:
        """The last tokens of a request, and how it ended."""
        self._count(item)
        entry, tokens, logprobs = item.entry, tuple(item.token_ids), item.logprobs
        self._counters.finished[verdict.finish] += 1
        self._counters.records_closed_early += entry.closed_early
        self._counters.loops_closed += entry.loops_closed
        if verdict.finish == "stop" and tokens and tokens[-1] in entry.stop_ids:
            # The stop token itself is counted, not handed out.
            tokens, logprobs = tokens[:-1], logprobs[: len(tokens) - 1]
        self._put(
            entry.client,
            entry.last_output(verdict, tokens, self._clock(), open_samples, logprobs),
        )

    def refuse(self, client: bytes, request_id: str, error: EngineError) -> None:
        self._counters.refused[error.reason] += 1
        output = Output(request_id, finish="error", reason=error.reason, message=str(error))
        self._put(client, output)

    def _count(self, item: Progress) -> None:
        if not item.token_ids:
            return
        entry = item.entry
        self._counters.generation_tokens += len(item.token_ids)
        if not entry.first_token_s:
            entry.first_token_s = self._clock() - entry.arrival
            self._counters.prompt_tokens += len(entry.prompt)

    def _put(self, client: bytes, output: Output) -> None:
        self._outputs.setdefault(client, []).append(output)
