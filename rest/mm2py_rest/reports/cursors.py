"""Pages of long lists: a limit, and a cursor after which the next page begins. Pure.

A cursor contains the sort key of the last item, so a page is right even if items came or went since the page before.
"""

from __future__ import annotations

import base64
import bisect
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from mm2py.status.bodies import JsonBody
from mm2py_rest.errors import RestError

LIMIT: Final = 100
LIMIT_MOST: Final = 1000
CURSOR_MOST: Final = 2000

T = TypeVar("T")
SortKey = tuple[str | int | bool, ...]


class WrongCursor(RestError):
    """The text is no cursor, or a cursor of another list."""

    def __init__(self) -> None:
        super().__init__(400, "after is no cursor of this list: pass what next said.")


class Page(JsonBody, Generic[T]):
    """A part of a list."""

    items: tuple[T, ...]
    """In an order that stays the same."""
    next: str | None
    """Pass it as ``after`` for the next page; null: this is the last one."""
    total: int
    """How many items the whole list has now."""
    unread: tuple[str, ...] = ()
    """What could not be read, so that items may be missing; empty: the list is whole."""


class PagePart(NamedTuple):
    """Which part of a list is wanted."""

    limit: int = LIMIT
    after: str | None = None


def cut(items: Sequence[T], key: Callable[[T], SortKey], part: PagePart) -> tuple[Sequence[T], str | None]:
    """Return the items of a page, and the cursor of the next one.

    Args:
        items: ascending by ``key``, which differs for all items.
    Raises:
        WrongCursor: ``part.after`` is no cursor of this list.
    """
    first = 0
    if part.after is not None:
        try:
            first = bisect.bisect_right(items, _read(part.after), key=key)
        except TypeError as error:
            raise WrongCursor from error
    found = items[first : first + part.limit]
    has_more = first + len(found) < len(items)
    return found, _written(key(found[-1])) if has_more and found else None


def page_of(items: Sequence[T], key: Callable[[T], SortKey], part: PagePart, *, unread: Iterable[str] = ()) -> Page[T]:
    """Return a page. ``unread``: why items may be missing. Other arguments and errors: see ``cut``."""
    found, after = cut(items, key, part)
    told = tuple(dict.fromkeys(filter(None, unread)))
    return Page[Any](items=tuple(found), next=after, total=len(items), unread=told)


def _written(key: SortKey) -> str:
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def _read(cursor: str) -> SortKey:
    try:
        found = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars="-_", validate=True))
    except (ValueError, RecursionError) as error:
        raise WrongCursor from error
    if not isinstance(found, list):
        raise WrongCursor
    return tuple(found)
