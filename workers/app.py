"""The Celery application: `celery -A pagemill.workers.app:app worker`, or `pagemill worker`."""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery
from celery.signals import (
    after_setup_logger,
    worker_process_init,
    worker_ready,
    worker_shutdown,
)
from celery.worker import state
from pagemill.extraction import logs
from pagemill.extraction.config import load_settings

from . import runtime
from .config import celery_settings
from .reconciler import Reconciler

settings = load_settings()
logs.configure(settings.log_level, settings.log_format)

app = Celery("pagemill", include=["pagemill.workers.tasks"])
app.conf.update(celery_settings(settings))

_reconcilers: list[Reconciler] = []


@after_setup_logger.connect
def keep_records_out_of_the_log(**_: Any) -> None:
    """Celery would log what a task returns, which is what stood on somebody's page."""
    logging.getLogger("celery.app.trace").setLevel(logging.WARNING)


@worker_process_init.connect
def forget_the_parents_connections(**_: Any) -> None:
    """Connections and sockets don't survive a fork: a child makes its own."""
    runtime.reset()


@worker_ready.connect
def start_reconciler(**_: Any) -> None:
    """Beside every worker one thread of its main process looks after what was left lying."""
    reconciler = Reconciler(app, settings, tasks=lambda: len(state.reserved_requests))
    reconciler.start()
    _reconcilers.append(reconciler)


@worker_shutdown.connect
def stop_reconciler(**_: Any) -> None:
    while _reconcilers:
        _reconcilers.pop().stop()
