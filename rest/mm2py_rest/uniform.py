"""Rewrites requests to one form: no slash at the end of the path, and GET without a body in place of HEAD.

Kafka Connect (Jersey) does the same. All later code, the gate included, sees one path and no HEAD.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


def uniform(scope: Scope, send: Send) -> tuple[Scope, Send]:
    """Return the rewritten request, and the function that sends its answer.

    A redirect would lose the body, or the credentials. Only a literal slash is removed, not ``%2F`` within a name,
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
            await send({"type": "http.response.body", "body": b""})  # ends the answer, also of a stream of events

    return {**scope, "method": "GET"}, send_head
