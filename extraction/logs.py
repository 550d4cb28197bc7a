"""Structured logs: one event a line, JSON or for a terminal. No page text, no URL's query."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


def configure(
    level: Literal["debug", "info", "warning", "error"] = "info",
    form: Literal["json", "console"] = "json",
) -> None:
    """Send events of `level` and above to stderr."""
    renderer: structlog.typing.Processor
    if form == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
