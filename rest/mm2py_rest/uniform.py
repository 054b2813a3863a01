"""Rewrites requests to one form: no slash at the end of the path, and GET without a body in place of HEAD.

Kafka Connect (Jersey) does the same. All later code, the gate included, sees one path and no HEAD. A browser that asks
for ``/`` gets the page, and everyone else what Connect answers there.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

PAGE_PATH: Final = "/page"


def uniform(scope: Scope, send: Send) -> tuple[Scope, Send]:
    """Return the rewritten request, and the function that sends its answer.

    A redirect would lose the body, or the credentials. Only a literal slash is removed, not ``%2F`` within a name,
    and only one: Connect refuses an empty part of a path as well.
    """
    path, raw = scope["path"], scope.get("raw_path") or scope["path"].encode()
    if len(path) > 1 and raw.endswith(b"/") and not raw.endswith(b"//"):
        scope = {**scope, "path": path[:-1], "raw_path": raw[:-1]}
    if path == "/" and scope["method"] in ("GET", "HEAD") and wants_page(scope["headers"]):
        scope = {**scope, "path": PAGE_PATH, "raw_path": PAGE_PATH.encode()}
    if scope["method"] != "HEAD":
        return scope, send

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})  # ends the answer, also of a stream of events

    return {**scope, "method": "GET"}, send_head


def wants_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a browser asks for a page: ``Accept`` names HTML and XHTML, or ``Sec-Fetch-Dest`` a document.

    The story: Java's ``HttpURLConnection`` sends ``text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2`` unless it is
    told otherwise. A client of Connect that uses it wants ``ServerInfo``.
    """
    named = list(headers)
    accepted = b",".join(value for name, value in named if name == b"accept").decode("latin-1").lower()
    kinds = set()
    for part in accepted.split(","):
        kind, *parameters = (one.strip() for one in part.split(";"))
        if not any(re.fullmatch(r"q\s*=\s*0(\.0*)?", one) for one in parameters):
            kinds.add(kind)
    return "text/html" in kinds and ("application/xhtml+xml" in kinds or (b"sec-fetch-dest", b"document") in named)
