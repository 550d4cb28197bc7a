"""kombu's Redis transport, for a worker that outlives what lies in its list and a full Redis.

With the transport as it is, three things end a Celery worker: an item in the queue's list that is
no message, a message that can't be noted as delivered because Redis is at its maxmemory, and, then
too, the search for messages to deliver again. Here an item that is none goes to a list of its own;
and messages, which are doorbells, pass through a full Redis, since only work makes room.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import structlog
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from kombu.utils.json import dumps
from redis.exceptions import OutOfMemoryError, RedisError

_log = structlog.get_logger(__name__)

MAX_BURIED = 1000
_REMOTE_CONTROL = ".pidbox"
_MAX_BURIED_BYTES = 65_536
_BROKERS_FAULTS = (
    RedisError,
    OSError,
    *virtual.Transport.connection_errors,
    *virtual.Transport.channel_errors,
)

# DEL goes through when Redis is full, and lets the rest of its script through. The key isn't there.
_PUSH = """
redis.call('DEL', KEYS[1] .. ':no-such-key')
return redis.call('LPUSH', KEYS[1], ARGV[1])
"""


# What Celery looks at when a task is in its pool already, where a surprise costs the slot.
_HEADERS: dict[str, type] = {
    "timelimit": list,
    "retries": int,
    "eta": str,
    "root_id": str,
    "parent_id": str,
    "group": str,
    "stamped_headers": list,
    "stamps": dict,
    "compression": str,
}


def buried_key(queue: str) -> str:
    """The list of items that were found in a queue and are no messages, the last one first."""
    return f"{queue}:foreign"


def fault_of(message: Any) -> str:
    """What keeps a decoded item from being a task message; "" for one that Celery can take."""
    if not isinstance(message, Mapping):
        return "no JSON object"
    properties = message.get("properties")
    if not isinstance(properties, Mapping):
        return "no properties"
    if not isinstance(properties.get("delivery_tag"), str):
        return "no delivery_tag"
    delivery = properties.get("delivery_info")
    if not isinstance(delivery, Mapping) or not {"exchange", "routing_key"} <= set(delivery):
        return "no delivery_info"
    headers = message.get("headers")
    if not isinstance(headers, Mapping):
        return "no headers"
    body = message.get("body")
    if not isinstance(body, str):
        return "no body"
    if properties.get("body_encoding") == "base64":
        try:
            body = base64.b64decode(body, validate=True).decode()
        except (binascii.Error, ValueError):
            return "a body that isn't base64"
    # In Celery's first protocol the body says what the headers say in the second.
    if "task" not in headers:
        try:
            headers = json.loads(body)
        except (ValueError, RecursionError):
            return "no task"
        if not isinstance(headers, Mapping):
            return "no task"
    if not all(isinstance(headers.get(name), str) for name in ("task", "id")):
        return "no task and id"
    return _fault_of_headers(headers)


def _fault_of_headers(headers: Mapping[str, Any]) -> str:
    for name, kind in _HEADERS.items():
        if headers.get(name) is not None and not isinstance(headers[name], kind):
            return f"header {name}"
    limits = headers.get("timelimit") or [None, None]
    if len(limits) != 2 or not all(
        limit is None or (isinstance(limit, int | float) and limit >= 0) for limit in limits
    ):
        return "header timelimit"
    return ""


class QoS(kombu_redis.QoS):
    """Notes what was delivered, unless Redis is full.

    A full Redis (not Valkey) refuses any command within MULTI, even those that make room. So there
    are no transactions here: what is noted by half costs a doorbell at most.
    """

    @contextlib.contextmanager
    def pipe_or_acquire(self, pipe: Any = None, client: Any = None) -> Iterator[Any]:
        if pipe:
            yield pipe
        else:
            with self.channel.conn_or_acquire(client) as connection:
                yield connection.pipeline(transaction=False)

    def append(self, message: Any, delivery_tag: str) -> None:
        try:
            super().append(message, delivery_tag)
        except OutOfMemoryError:
            # It won't come again if this worker dies; the reconciler rings then.
            _log.warning("delivered_without_note", reason="ledger_full")
            virtual.QoS.append(self, message, delivery_tag)

    def restore_visible(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().restore_visible(*args, **kwargs)
        except OutOfMemoryError:
            _log.warning("nothing_delivered_again", reason="ledger_full")


class Channel(kombu_redis.Channel):
    """Reads a list in which anything may lie."""

    QoS = QoS

    def _brpop_read(self, **options: Any) -> Any:
        self.connection.is_decoded = False
        try:
            return super()._brpop_read(**options)
        except json.JSONDecodeError as error:
            if self.connection.is_decoded:
                raise
            self.bury(error.doc.encode("utf-8", "replace"), "no JSON")
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            # kombu's JSON makes objects of some values; what can't be made is gone with the item.
            if self.connection.is_decoded:
                raise
            _log.error("foreign_item_lost", error=type(error).__name__)
        return True

    def _size(self, queue: str) -> int:
        with self.conn_or_acquire() as client:
            pipeline = client.pipeline(transaction=False)
            for priority in self.priority_steps:
                pipeline.llen(self._q_for_pri(queue, priority))
            return sum(size for size in pipeline.execute() if isinstance(size, int))

    def _put(self, queue: str, message: Mapping[str, Any], **kwargs: Any) -> None:
        try:
            super()._put(queue, message, **kwargs)
        except OutOfMemoryError:
            key = self._q_for_pri(queue, self._get_message_priority(message, reverse=False))
            with self.conn_or_acquire() as client:
                client.eval(_PUSH, 1, key, dumps(message))

    def _queue_bind(self, *args: Any) -> None:
        # Written at each declaration; an empty Redis isn't full, so that it was written before.
        with contextlib.suppress(OutOfMemoryError):
            super()._queue_bind(*args)

    def _refresh_bindings(self, queues: Any) -> None:
        with contextlib.suppress(OutOfMemoryError):
            super()._refresh_bindings(queues)

    def bury(self, item: bytes, fault: str) -> None:
        """Put an item out of the way, and say so without its content."""
        queue = self._queue_cycle.consume(1)
        key = buried_key(queue[0] if queue else "celery")
        _log.error("foreign_item", fault=fault, bytes=len(item), kept_in=key)
        try:
            with self.conn_or_acquire() as client:
                pipeline = client.pipeline(transaction=False)
                pipeline.lpush(key, item[:_MAX_BURIED_BYTES])
                pipeline.ltrim(key, 0, MAX_BURIED - 1)
                pipeline.execute()
        except RedisError as error:
            _log.error("foreign_item_lost", error=type(error).__name__)


class Transport(kombu_redis.Transport):
    """`broker_transport` of the workers' application."""

    Channel = Channel
    is_decoded = False  # whether the item that was read last has been decoded

    def _deliver(self, message: Any, queue: str) -> None:
        self.is_decoded = True
        if queue.endswith(_REMOTE_CONTROL):
            # `celery inspect`, Flower: these are no tasks.
            super()._deliver(message, queue)
            return
        fault = fault_of(message)
        if not fault:
            try:
                super()._deliver(message, queue)
                return
            except _BROKERS_FAULTS:
                raise
            except Exception as error:
                # Celery can't make a task of it, and would stumble over it again each time that it
                # is delivered.
                fault = f"refused by Celery ({type(error).__name__})"
                self._forget(message["properties"]["delivery_tag"])
        for channel in self.channels:
            channel.bury(dumps(message).encode(), fault)
            break

    def _forget(self, delivery_tag: str) -> None:
        for channel in self.channels:
            if delivery_tag in channel.qos._delivered:
                channel.basic_reject(delivery_tag, requeue=False)
