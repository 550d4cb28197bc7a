"""An engine that follows a script, and a small schema for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from pagemill.engine.protocol import EngineStats, FinishReason, Output, Request, Usage, Welcome
from pagemill.engine.tokenizer import Tokenizer

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "price": {"type": ["number", "null"]},
        "note": {"type": ["string", "null"], "maxLength": 40},
    },
    "required": ["name", "price", "note"],
    "additionalProperties": False,
}


class ScriptedEngine:
    """Answers each request, in reverse order and in chunks, by what its page holds."""

    def __init__(self, tokenizer: Tokenizer, answers: Mapping[str, str | Output]) -> None:
        self._tokenizer = tokenizer
        self._answers = answers
        self.requests: list[Request] = []
        self.finish: FinishReason = "stop"

    @property
    def info(self) -> Welcome:
        size = self._tokenizer.vocab_size
        return Welcome(
            model="scripted",
            tokenizer_hash=self._tokenizer.hash,
            max_model_len=8192,
            vocab_size=size,
            max_num_seqs=4,
        )

    def generate(
        self, requests: Sequence[Request], *, tokenizer_hash: str, grammars: Mapping[str, bytes]
    ) -> Iterator[Output]:
        assert tokenizer_hash == self._tokenizer.hash
        assert all(grammars[request.grammar or ""] for request in requests)
        self.requests.extend(requests)
        for request in reversed(requests):
            prompt = self._tokenizer.decode(np.frombuffer(request.token_ids, "<i4").tolist())
            [answer] = [answer for sign, answer in self._answers.items() if sign in prompt]
            if isinstance(answer, Output):
                yield Output(
                    request.request_id,
                    finish=answer.finish,
                    reason=answer.reason,
                    message=answer.message,
                )
                continue
            tokens = [int(token) for token in self._tokenizer.encode(answer)]
            half = len(tokens) // 2
            yield Output(request.request_id, tuple(tokens[:half]))
            yield Output("of another burst", (1, 2, 3))
            usage = Usage(prompt_tokens=7, cached_tokens=5, completion_tokens=len(tokens))
            last = (*tokens[half:], self._tokenizer.eos_ids[0])
            yield Output(request.request_id, last, finish=self.finish, usage=usage, finished_s=0.5)

    def cancel(self, request_ids: Sequence[str]) -> None:
        raise AssertionError("nothing is cancelled here")

    def stats(self, timeout_s: float = 5.0) -> EngineStats:
        raise AssertionError("nobody asks")

    def close(self) -> None:
        pass
