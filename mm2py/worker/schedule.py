"""When a connector may run in this process: what the herder asks, and the answer of one that always may.

``connector_schedule.py`` answers for connectors whose tasks a group assigns.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from mm2py.records.operator_request import Target


class ConnectorSchedule(Protocol):
    """When a connector may run in this process."""

    @property
    def held(self) -> Target | None:
        """By what operators hold it, None if they let it run."""
        ...

    @property
    def is_off(self) -> bool:
        """Whether the flow is switched off by what is stored."""
        ...

    @property
    def waits_for(self) -> str:
        """What ``granted`` waits for that an operator should know; empty otherwise."""
        ...

    async def until_asked(self) -> None:
        """Wait until operators ask something else of it. Ends the pause after a failure."""
        ...

    async def granted(self) -> None:
        """Wait until it may. Raises: Mm2Error if it must not."""
        ...

    async def revoked(self) -> bool:
        """Wait until it may not any more; returns whether there is time to drain it first."""
        ...

    async def stopped(self, *, outcome_unknown: bool) -> None:
        """The connector has stopped after ``revoked``: another worker may run it.

        Args:
            outcome_unknown: something that was sent to its target may be stored later.
        """
        ...

    def failed(self, why: str) -> None:
        """An attempt has failed, and another one follows: let the group know if this goes on."""
        ...

    def refuse(self, why: str) -> None:
        """The connector must not run here: tell the group why, and let other workers have what it releases."""
        ...

    def allow(self) -> None:
        """What was refused is tried again."""
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
        """Never."""
        await asyncio.Event().wait()

    async def granted(self) -> None:
        """At once."""

    async def revoked(self) -> bool:
        """Never."""
        await asyncio.Event().wait()
        return False

    async def stopped(self, *, outcome_unknown: bool) -> None:
        """No worker waits for it."""

    def failed(self, why: str) -> None:
        """Only the log tells it."""

    def refuse(self, why: str) -> None:
        """The other workers run theirs all the same."""

    def allow(self) -> None:
        """No other worker has taken it over."""

    def withdraw(self) -> None:
        """The other workers run theirs all the same."""

    async def release_refused(self, *, outcome_unknown: bool) -> None:
        """The other workers run theirs all the same."""
