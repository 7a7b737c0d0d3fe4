"""Where the ranks of a job met."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def meeting_place(store: Any) -> str | None:
    """Where the ranks of a job met: what tells it from others, whose groups have the same names."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    # A program can have a store of its own kind.
    host, port, path = (getattr(store, name, None) for name in ("host", "port", "path"))
    if port is None:
        return None if path is None else str(path)
    # Every machine has such an address.
    return f"{os.uname().nodename if host in LOOPBACK else host}:{port}"


def job_of(c10d: Any, group: Any) -> str | None:
    """Where the ranks of a group met."""
    _, store = c10d._world.pg_map.get(group, ("", None))
    return meeting_place(store)
