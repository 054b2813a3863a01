"""Answers of the worker that are changed on their way to the browser."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from tests.cluster.browser.scene import Scene
from tests.cluster.browser.tabs import Tab


def page_of(
    *items: dict[str, Any], total: int | None = None, after: str | None = None, unread: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return a page of a list, as ``/v1`` has them."""
    return {"items": items, "next": after, "total": len(items) if total is None else total, "unread": unread}


def answer(tab: Tab, path: str, body: Any, status: int = 200) -> None:
    """Let the worker answer this from now on, whatever the query is."""
    tab.page.route(lambda url: urlsplit(url).path == path, lambda route: route.fulfill(status=status, json=body))


def flow_path(scene: Scene) -> str:
    return f"/v1/flows/{quote(scene.flow, safe='')}"


def flow_as(scene: Scene, **changed: Any) -> dict[str, Any]:
    return page_of({**scene.flow_told(), **changed})
