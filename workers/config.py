"""Celery as this project runs it: every setting that decides whether messages survive."""

from __future__ import annotations

from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from pagemill.extraction.config import Settings

TRANSPORT = "pagemill"
TRANSPORT_ALIASES[TRANSPORT] = "pagemill.workers.transport:Transport"

SOFT_TIME_LIMIT_S = 300
TIME_LIMIT_S = 360
# Above the hard limit, so that no message is delivered again while its task still runs.
VISIBILITY_TIMEOUT_S = 900


def celery_settings(settings: Settings) -> dict[str, Any]:
    """Return the application's settings.

    Messages are doorbells: the ledger owns the pages, so a message that is lost or comes twice
    costs time, never a page. JSON only, both ways.
    """
    transport = {
        "visibility_timeout": VISIBILITY_TIMEOUT_S,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_timeout": 30,
        "socket_connect_timeout": 5,
        "socket_keepalive": settings.broker_url.startswith("redis"),
        "health_check_interval": 10,
    }
    if settings.broker_url.startswith("redis+socket"):
        # A unix socket has neither keepalive nor a time to connect.
        del transport["socket_keepalive"], transport["socket_connect_timeout"]
    return {
        # What stands before the + of a URL goes before `broker_transport`.
        "broker_url": settings.broker_url.replace("redis+socket:", f"{TRANSPORT}+socket:"),
        "broker_transport": TRANSPORT,
        "result_backend": settings.broker_url,
        "task_serializer": "json",
        "result_serializer": "json",
        "accept_content": ["json"],
        "result_accept_content": ["json"],
        "task_default_queue": settings.queue,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_acks_on_failure_or_timeout": True,
        "task_ignore_result": True,
        "task_soft_time_limit": SOFT_TIME_LIMIT_S,
        "task_time_limit": TIME_LIMIT_S,
        "task_publish_retry_policy": {
            "max_retries": 2,
            "interval_start": 0.1,
            "interval_step": 0.2,
            "interval_max": 0.5,
        },
        "result_expires": 3600,
        "visibility_timeout": VISIBILITY_TIMEOUT_S,
        "broker_transport_options": transport,
        "result_backend_transport_options": {"visibility_timeout": VISIBILITY_TIMEOUT_S},
        "redis_socket_timeout": 30.0,
        "redis_retry_on_timeout": False,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": True,
        "worker_soft_shutdown_timeout": 20,
        "worker_enable_soft_shutdown_on_idle": True,
        "worker_send_task_events": False,
        "worker_hijack_root_logger": True,
    }
