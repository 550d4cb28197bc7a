"""Users of the Redis server, one for each role, and the files that tell them their passwords.

    python -m pagemill.extraction.redis_roles FOLDER --host redis

writes FOLDER/redis/users.acl for the server (passwords as hashes), FOLDER/api and FOLDER/worker,
each with a pagemill.toml for PAGEMILL_CONFIG, and FOLDER/producer and FOLDER/monitor with a
redis-url. A password that is there already stays.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .config import Settings, load_settings

# Commands as ACL rules of Redis 6.2 and later. What is dangerous reads or changes all of a server:
# KEYS, FLUSHALL, CONFIG, INFO, CLIENT KILL, SHUTDOWN.
_CLIENT = "+@read +@write +@connection +@transaction -@scripting -@dangerous -@admin"
_SCRIPTS = "+time +eval +evalsha +script|load +script|exists"
_NO_LISTING = "-scan -randomkey -dbsize"
# Where crawlers leave pages that are named by key or read by a source.
_CRAWLED = "~crawl:*"

ROLES: Final = ("api", "worker", "producer", "monitor")
_SERVICES: Final = ("api", "worker")


def rules(role: str, namespace: str, queue: str) -> str:
    """Return what a role may do, as ACL rules.

    api: ledger, schemas and messages. worker: that, crawled pages, and Celery's own keys.
    producer: crawled pages, messages, and results of tasks. monitor: figures of the server, and
    the queue's length.
    """
    # The two characters are kombu's separator before a priority.
    messages = f"~{queue} ~{queue}??[0-9] ~_kombu.binding*.{queue}"
    own = f"~{{{namespace}:* ~{namespace}:*"
    results = "~celery-task-meta-* ~celery-taskset-meta-* &celery-task-meta-*"
    match role:
        case "api":
            return f"{_CLIENT} {_SCRIPTS} {_NO_LISTING} {own} {messages}"
        case "worker":
            # A subscription has to name a pattern of the rules as it stands.
            celery = "~_kombu.binding* ~unacked* ~*.pidbox* ~celeryev* &/* &/0.celery.pidbox"
            foreign = f"~{queue}:foreign"
            return (
                f"{_CLIENT} {_SCRIPTS} +@pubsub {own} {messages} {foreign} {results} {celery} "
                f"{_CRAWLED}"
            )
        case "producer":
            return f"{_CLIENT} +@pubsub {_NO_LISTING} {_CRAWLED} {messages} {results}"
        case "monitor":
            return f"+@connection -@dangerous +info +slowlog|get +llen ~{queue}"
    raise ValueError(f"no role {role!r}")


def acl_file(passwords: Mapping[str, str], settings: Settings) -> str:
    """Return an aclfile; who doesn't log in may only ask whether the server is up."""
    lines = ["user default on nopass resetkeys resetchannels -@all +ping"]
    for role in ROLES:
        digest = hashlib.sha256(passwords[role].encode()).hexdigest()
        allowed = rules(role, settings.namespace, settings.queue)
        lines.append(f"user {role} on #{digest} resetkeys resetchannels -@all {allowed}")
    return "\n".join(lines) + "\n"


def write(folder: Path, host: str, settings: Settings) -> None:
    """Write the files of all roles; see the module."""
    passwords: dict[str, str] = {}
    for role in ROLES:
        path = _path(folder, role)
        known = (
            re.search(rf"redis://{role}:([0-9a-f]+)@", path.read_text()) if path.exists() else None
        )
        passwords[role] = known.group(1) if known else secrets.token_hex(24)
        url = f"redis://{role}:{passwords[role]}@{host}:6379/0"
        text = f'redis_url = "{url}"\n' if role in _SERVICES else f"{url}\n"
        _write(path, text, 0o600)
    # Read by the server's user; it holds hashes alone.
    _write(folder / "redis" / "users.acl", acl_file(passwords, settings), 0o644)


def _path(folder: Path, role: str) -> Path:
    return folder / role / ("pagemill.toml" if role in _SERVICES else "redis-url")


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
        os.fchmod(file.fileno(), mode)
    new.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1", help="where the server will listen")
    given = parser.parse_args()
    write(given.folder, given.host, load_settings())
    print(f"users of Redis: {', '.join(ROLES)}", file=sys.stderr)


if __name__ == "__main__":
    main()
