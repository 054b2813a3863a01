"""When a connector may run in this process: the questions of the herder, and the answers for one that always may.

``connector_schedule.py`` has the answers for connectors whose tasks a group assigns.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from mm2py.records.operator_request import Target


class ConnectorSchedule(Protocol):
    """When a connector may run in this process."""

    @property
    def held(self) -> Target | None:
        """The request by which operators pause or stop the connector; None if they let it run."""
        ...

    @property
    def is_off(self) -> bool:
        """Whether the stored settings switch the flow off."""
        ...

    @property
    def waits_for(self) -> str:
        """What ``granted`` waits for that an operator should know; empty otherwise."""
        ...

    async def until_asked(self) -> None:
        """Wait until operators ask something else of the connector. This ends the pause after a failure."""
        ...

    async def granted(self) -> None:
        """Wait until the connector may run. Raises: Mm2Error if it must not."""
        ...

    async def revoked(self) -> bool:
        """Wait until the connector may not run any more; returns whether there is time to drain it first."""
        ...

    async def stopped(self, *, outcome_unknown: bool) -> None:
        """The connector has stopped after ``revoked``: another worker may run it.

        Args:
            outcome_unknown: something that was sent to its target may be stored later.
        """
        ...

    def failed(self, why: str) -> None:
        """An attempt has failed, and another one follows: let the group know if attempts keep failing."""
        ...

    def refuse(self, why: str) -> None:
        """The connector must not run here: tell the group why, and let other workers have what it releases."""
        ...

    def allow(self) -> None:
        """The connector was refused, and is tried again."""
        ...

    def withdraw(self) -> None:
        """This worker will not run the connector again: let other workers have what it releases."""
        ...

    async def release_refused(self, *, outcome_unknown: bool) -> None:
        """The connector must not run in this process: release what it has, as long as this is not cancelled.

        Args:
            outcome_unknown: something that it sent may be stored later.
        """
        ...


class Always:
    """The schedule of a connector that runs on every worker."""

    held: Target | None = None
    is_off = False
    waits_for = ""

    async def until_asked(self) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    async def granted(self) -> None:
        """Return at once."""

    async def revoked(self) -> bool:
        """Wait for ever."""
        await asyncio.Event().wait()
        return False

    async def stopped(self, *, outcome_unknown: bool) -> None:
        """No worker waits for it."""

    def failed(self, why: str) -> None:
        """Only the log says so."""

    def refuse(self, why: str) -> None:
        """The connectors of other workers run in any case."""

    def allow(self) -> None:
        """No other worker has taken it over."""

    def withdraw(self) -> None:
        """The connectors of other workers run in any case."""

    async def release_refused(self, *, outcome_unknown: bool) -> None:
        """The connectors of other workers run in any case."""
