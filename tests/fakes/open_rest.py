"""Parts of REST for tests: everybody is let in, as at a loopback listener without users, and no thread is used."""

from __future__ import annotations

from typing import Any

from mm2py.status.facts import Facts
from mm2py.status.report import Report, report_of
from mm2py_rest.access.callers import EVERYONE, Caller
from mm2py_rest.access.roles import CALLER_KEY


def open_to_all(app: Any) -> Any:
    """Return the application with everybody let in before it."""

    async def admitted(scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("state", {})[CALLER_KEY] = Caller(EVERYONE, "127.0.0.1", "none")
        await app(scope, receive, send)

    return admitted


async def report_at_once(facts: Facts) -> Report:
    """Make a report under a virtual clock, which knows no threads."""
    return report_of(facts)
