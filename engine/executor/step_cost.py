"""What one more token in a step costs, learnt from the steps that were run."""

from __future__ import annotations

from dataclasses import dataclass

_PACE = 0.1  # how fast a mean follows what is measured
_FADES = 0.99  # a mean counts so much less for each later step: machines change their speed
_MOST_TOKENS = 256  # longer steps are prompts, whose attention costs more
_LEAST_SPREAD = 4  # between the shortest and the longest steps of a fit
_BOUNDS = (4.0, 256.0)


@dataclass(slots=True)
class _Mean:
    tokens: float
    seconds: float
    weight: float = 1.0


class StepCost:
    """A line through step times: seconds = fixed + slope * tokens.

    Steps of similar lengths (to a power of two) share a mean; the line fits the means by relative
    error, the latest most. Not thread-safe.
    """

    def __init__(self) -> None:
        self._means: dict[int, _Mean] = {}

    def add(self, tokens: int, seconds: float) -> None:
        """Take note of a step of so many tokens."""
        if not 1 <= tokens <= _MOST_TOKENS or not seconds > 0:
            return
        for mean in self._means.values():
            mean.weight *= _FADES
        own = self._means.setdefault(tokens.bit_length(), _Mean(tokens, seconds))
        own.tokens += _PACE * (tokens - own.tokens)
        own.seconds += _PACE * (seconds - own.seconds)
        own.weight = 1.0

    def fixed_tokens(self, default: float) -> float:
        """What a step costs without any token, in tokens; `default` while too little is known."""
        means = self._means.values()
        lengths = [mean.tokens for mean in means]
        if not lengths or max(lengths) < _LEAST_SPREAD * min(lengths):
            return default
        # Least squares of (fixed + slope * tokens) / seconds = 1.
        ones = [(m.weight, 1 / m.seconds, m.tokens / m.seconds) for m in means]
        uu = sum(w * u * u for w, u, _ in ones)
        uv = sum(w * u * v for w, u, v in ones)
        vv = sum(w * v * v for w, _, v in ones)
        u1 = sum(w * u for w, u, _ in ones)
        v1 = sum(w * v for w, _, v in ones)
        fixed, slope = u1 * vv - v1 * uv, v1 * uu - u1 * uv  # both times the determinant
        if slope <= 0:
            return _BOUNDS[1]
        return min(max(fixed / slope, _BOUNDS[0]), _BOUNDS[1])
