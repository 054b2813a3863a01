"""Switches a flow off for all its workers, where ``--apply`` is given and the file switches it off.

Answers to nothing in MirrorMaker 2, where each process goes by its own file. A worker does not run a flow that its file
switches off, so none of its connectors would store that; this stores it once when the worker starts, and ends.
"""

from __future__ import annotations

from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.flow_properties import FlowProperties, is_enabled
from mm2py.errors import Mm2Error
from mm2py.records.connector_config import Writer
from mm2py.settings.config_log import ConfigLog, Lost
from mm2py.settings.flow_config import Replace, decide
from mm2py.settings.follow import PREVIOUS_REMEDY, shown

TRIES_MOST: Final = 10


class ChangedWithoutEnd(Mm2Error):
    """Others change the stored settings whenever they are to be."""


class SwitchingOff:
    """A ``Connector`` that ends by itself."""

    leaves_doubt = False

    def __init__(self, config_log: ConfigLog, file: FlowProperties, log: FilteringBoundLogger) -> None:
        """``file`` is what the file says of the flow: among others that it is switched off."""
        self._table = config_log
        self._file = file
        self._log = log

    async def run(self) -> None:
        """Store that the flow is switched off, if workers of mm2py may run it. Waits as long as the target does not
        answer; cancelling may leave it stored or not.

        Raises: as ``ConfigLog.write``; ChangedWithoutEnd.
        """
        assert not is_enabled(self._file)  # noqa: S101
        await self._table.read_patiently(self._table.rng)
        for _ in range(TRIES_MOST):
            stored = self._table.config
            if stored is None or stored.by is Writer.MM2:
                return  # no worker of ours runs it, and what MirrorMaker 2 keeps there is its own
            decision = decide(stored, self._file, runners=(), apply=True)
            if not isinstance(decision, Replace):
                return
            outcome = await self._table.write(decision.config, instead_of=stored)
            if not isinstance(outcome, Lost):
                self._log.warning(
                    "config.replaced",
                    version=outcome.config.version,
                    why=decision.why,
                    difference=shown(decision.difference),
                    remedy=PREVIOUS_REMEDY,
                )
                return
        raise ChangedWithoutEnd(
            f"{self._table.topic} was changed by others {TRIES_MOST} times while it was to be.",
            remedy="It is tried again. Look at who applies files: each start with --apply does.",
        )

    async def drain(self) -> None:
        """Nothing is under way that would be repeated."""

    def status(self) -> None:
        """It is no part of a flow that runs here."""
