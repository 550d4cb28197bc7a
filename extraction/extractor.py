"""Pages to records, given an engine: prepare, generate, finish. No ledger, no queue.

A page's failure is a failed `Result` of that page alone. Only what ends a whole burst (the
engine is gone, another tokenizer) is raised, as `EngineError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pagemill.engine.client import Engine
from pagemill.engine.protocol import Output, Request
from pagemill.engine.tokenizer import Tokenizer

from .bound_schema import BoundSchema
from .page import Page, PageLimits
from .record import ExtractOptions, PageInput, Result, Timings


@dataclass(frozen=True, eq=False)
class Prepared:
    """A page whose request is ready for the engine; `request.request_id` finds it again."""

    input: PageInput
    page: Page
    schema: BoundSchema
    options: ExtractOptions
    request: Request
    page_cut: bool
    timings: Timings


class Extractor:
    """Turns pages into requests and outputs into results. Thread-safe; holds no page."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        model: str = "",
        max_model_len: int = 8192,
        limits: PageLimits | None = None,
    ) -> None: ...

    def prepare(
        self, page: PageInput, schema: BoundSchema, options: ExtractOptions | None = None
    ) -> Prepared | Result:
        """Read the page and make its request (CPU only); a Result says why that's impossible."""

    def finish(self, prepared: Prepared, output_ids: Sequence[int], last: Output) -> Result:
        """Make the result: parse, validate, look up the evidence.

        `output_ids` are all tokens of the request, `last` is the Output that carries `finish`.
        """

    def run(
        self,
        engine: Engine,
        pages: Sequence[tuple[PageInput, BoundSchema]],
        options: ExtractOptions | None = None,
    ) -> Iterator[Result]:
        """Yield a result for each page as it is finished, from one call of the engine.

        Refused pages come first. Raises EngineError when the burst as a whole fails; pages
        without a result by then may be tried again.
        """
