"""Requests that mean the same as another one: a path with a slash at its end, and HEAD, which is GET without a body.

So it is with Kafka Connect (Jersey). All that stands behind this, the gate included, knows one path and no HEAD.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


def uniform(scope: Scope, send: Send) -> tuple[Scope, Send]:
    """Return the request that a request means, and where its answer goes.

    A redirect would lose the body, or the credentials. Only the slash of the address counts, not ``%2F`` within a name,
    and only one: Connect refuses an empty part of a path as well.
    """
    path, raw = scope["path"], scope.get("raw_path") or scope["path"].encode()
    if len(path) > 1 and raw.endswith(b"/") and not raw.endswith(b"//"):
        scope = {**scope, "path": path[:-1], "raw_path": raw[:-1]}
    if scope["method"] != "HEAD":
        return scope, send

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})  # it is whole: a stream of events ends at this

    return {**scope, "method": "GET"}, send_head
