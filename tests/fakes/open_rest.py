"""Parts of REST for tests: all callers are admitted, as at a loopback listener without users, and no thread is used."""

from __future__ import annotations

from typing import Any

from mm2py.status.facts import Facts
from mm2py.status.report import Report, report_of
from mm2py_rest.access.callers import EVERYONE, Caller
from mm2py_rest.access.roles import CALLER_KEY


def open_to_all(app: Any) -> Any:
    """Return the application behind a gate that admits all callers."""

    async def admitted(scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("state", {})[CALLER_KEY] = Caller(EVERYONE, "127.0.0.1", "none")
        await app(scope, receive, send)

    return admitted


async def report_at_once(facts: Facts) -> Report:
    """Make a report without a thread, for tests with a virtual clock."""
    return report_of(facts)
