"""Audit of requests for changes: the change, the user and the outcome, as a line in the log and a record on the target.

The record is written after the answer, so that the answer does not wait for it. The line is logged first, and in any
case.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.records.audit_record import AuditRecord
from mm2py.secret import HIDDEN, is_hidden, may_be_address, printable, shown_key
from mm2py_rest.access.callers import Caller

WAITING_MOST: Final = 500
BODY_MAX_CHARS: Final = 2000
VALUE_MAX_CHARS: Final = 200
STORE_MOST_S: Final = 20.0

Store = Callable[[AuditRecord], Awaitable[None]]
"""Keeps a record on the target. Raises: Mm2Error."""


class Audit:
    """Logs and stores changes. ``run`` it."""

    def __init__(self, store: Store | None, log: FilteringBoundLogger, clock: Clock, *, worker: str) -> None:
        """``store`` is None where no topic keeps records. ``worker`` names the worker that received the request."""
        self._store = store
        self._log = log
        self._clock = clock
        self._worker = worker
        self._waiting: asyncio.Queue[AuditRecord] = asyncio.Queue(WAITING_MOST)

    def tell(self, caller: Caller, method: str, path: str, *, flow: str, status: int, version: str, body: str) -> None:
        """Log a change, and queue its record to be stored by ``run``."""
        record = AuditRecord(
            at_ms=self._clock.wall_ms(),
            user=caller.user.name,
            proof=caller.proof,
            address=caller.address,
            method=method,
            path=path,
            flow=flow,
            status=status,
            version=version,
            body=body,
            worker=self._worker,
        )
        told = {name: value for name, value in asdict(record).items() if name not in ("at_ms", "worker")}
        self._log.info("rest.audit", **told)
        if self._store is None:
            return
        try:
            self._waiting.put_nowait(record)
        except asyncio.QueueFull:
            self._not_stored(record, f"{WAITING_MOST} records wait")

    async def run(self) -> None:
        """Store records until cancelled."""
        while True:
            await self._keep(await self._waiting.get())

    async def close(self, most_s: float) -> None:
        """Store the waiting records, for at most ``most_s`` seconds. ``run`` must have ended."""
        try:
            async with asyncio.timeout(most_s):
                while not self._waiting.empty():
                    await self._keep(self._waiting.get_nowait())
        except TimeoutError:
            self._log.warning("rest.audit_not_stored", why="this process ends", count=self._waiting.qsize() + 1)

    async def _keep(self, record: AuditRecord) -> None:
        assert self._store is not None  # noqa: S101  (else nothing waits)
        try:
            async with asyncio.timeout(STORE_MOST_S):
                await self._store(record)
        except (Mm2Error, OSError) as error:  # TimeoutError is an OSError
            self._not_stored(record, str(error) or "the target does not answer")

    def _not_stored(self, record: AuditRecord, why: str) -> None:
        self._log.warning(
            "rest.audit_not_stored", why=why, effect="only this log has it", user=record.user, path=record.path
        )


def shown_body(body: Any, *, with_values: bool) -> str:
    """Return a body in a form that may be stored: credentials hidden, and the length limited.

    Args:
        with_values: False: names only. A refused body may contain a secret under any name.
    """
    return json.dumps(_shown(body, with_values, 0), ensure_ascii=True)[:BODY_MAX_CHARS] if body is not None else ""


def _shown(value: Any, with_values: bool, level: int) -> Any:
    if level > 4:
        return "..."
    match value:
        case dict():
            return {
                shown_key(str(name)): HIDDEN
                if not isinstance(inner, dict | list)
                and (is_hidden(str(name), str(inner)) or may_be_address(str(name)))
                else _shown(inner, with_values, level + 1)
                for name, inner in value.items()
            }
        case list():
            return [_shown(inner, with_values, level + 1) for inner in value[:50]]
        case str():
            return printable(value[:VALUE_MAX_CHARS]) if with_values else "..."
        case _:
            return value if with_values else "..."
