"""The settings of one flow in a running worker: settled when it begins, followed while it runs.

Answers to what MM2's herder does when it becomes leader (it writes its own file over what stands there) and to
Connect's listener for changed configurations. Here what is stored counts, a file is how it gets there
(``flow_config.py``), and a changed setting reaches those parts of a flow that it concerns (``reach.py``).

Switches a flow off for all its workers, where ``--apply`` is given and the file switches it off.

Answers to nothing in MirrorMaker 2, where each process goes by its own file. A worker does not run a flow that its file
switches off, so none of its connectors would store that; this stores it once when the worker starts, and ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from mm2py.config.configuration import SettingsFile
from mm2py.config.flow_properties import FlowProperties, StoredConfigUnusable, is_enabled
from mm2py.config.settings import Configuration, FlowSettings, HeartbeatSettings
from mm2py.connector import Flow
from mm2py.errors import ConfigError, Mm2Error
from mm2py.records.connector_config import FlowConfig, Writer
from mm2py.settings.config_log import ConfigLog, Lost
from mm2py.settings.flow_config import (
    Add,
    Decision,
    Difference,
    Drift,
    Follow,
    Keep,
    Replace,
    Restore,
    Use,
    decide,
    depends_on_runners,
    difference,
    follow,
)

Changed = Callable[[Flow, FlowSettings | None, int, frozenset[str]], Awaitable[None]]
"""Is told that a flow has new settings: the flow, its settings (None: it is switched off), the version, and the names
of the settings that mean something else than before. It returns when they are applied; it may also be cancelled, and
the flow begun anew by them."""


class Others(Protocol):
    """Who else runs the flow."""

    async def __call__(self, *, for_sure: bool) -> Collection[str]:
        """Return those that do, or are about to.

        Args:
            for_sure: wait until the dead among them are known, which takes their session time-out where there are any.
        """
        ...


TRIES_MOST: Final = 10
SHOWN_MOST: Final = 20
PREVIOUS_REMEDY: Final = "mm2py apply FILE --previous takes what stood there before back."


def merged(file: SettingsFile, flow: Flow, stored: FlowConfig) -> FlowSettings | None:
    """Return the settings of a flow: addresses and credentials of the file, everything else as it is stored.

    Returns:
        None, if the flow is switched off there.
    Raises:
        StoredConfigUnusable: what is stored cannot be run with this file.
    """
    if not is_enabled(stored.properties):
        return None
    configuration = _configuration(file, flow, stored)
    for settings in configuration.flows:
        if settings.flow == flow:
            return settings
    why = configuration.refused.get(flow)
    raise StoredConfigUnusable(flow, str(why) if why is not None else "the file does not enable it")


def merged_heartbeats(file: SettingsFile, flow: Flow, stored: FlowConfig) -> HeartbeatSettings | None:
    """Return the same of a flow's heartbeats, which are emitted also while it is switched off; None: not by this file.

    Raises: as ``merged``.
    """
    found = _configuration(file, flow, stored).heartbeats
    return next((settings for settings in found if settings.flow == flow), None)


def _configuration(file: SettingsFile, flow: Flow, stored: FlowConfig) -> Configuration:
    try:
        return file.configuration({flow: stored.properties})
    except StoredConfigUnusable:
        raise
    except ConfigError as error:
        raise StoredConfigUnusable(flow, error.what) from error


class ConfigWatch:
    """What a worker runs a flow by. ``settle`` whenever it begins to run it, then ``run``."""

    def __init__(
        self,
        flow: Flow,
        file: SettingsFile,
        config_log: ConfigLog,
        *,
        others: Others,
        apply: bool,
        log: FilteringBoundLogger,
    ) -> None:
        """Make it.

        Args:
            apply: ``--apply``.
        """
        self.drift: Difference = ()
        """How the worker's file differs from what it runs."""
        self._flow = flow
        self._file = file
        self._table = config_log
        self._others = others
        self._apply = apply
        self._log = log
        self._applied: FlowConfig | None = None

    @property
    def version(self) -> int:
        """The version that this worker runs, or is about to; 0 before the first."""
        return 0 if self._applied is None else self._applied.version

    @property
    def is_settled(self) -> bool:
        """Whether it is known what to run; ``settle`` and ``run`` only follow from then on."""
        return self._applied is not None

    @property
    def heartbeats(self) -> HeartbeatSettings | None:
        """How the flow's heartbeats are emitted by that version; None: by this file not at all."""
        assert self._applied is not None, "it was not settled"  # noqa: S101
        return merged_heartbeats(self._file, self._flow, self._applied)

    async def settle(self) -> tuple[FlowSettings | None, int]:
        """Decide what to run, store what has to be, and return the settings (None: switched off) and their version.

        The file has its say once, when the process begins. The story: an operator has changed what is stored, and the
        flow begins anew by that, or after a failure. Were it decided once more, ``--apply`` would undo the change.
        Raises:
            StoredConfigUnusable: what is stored cannot be run with this file.
            Others as ``ConfigLog.write``, ``Others``.
        """
        mine = self._file.shared(self._flow)
        await self._table.read_patiently(self._table.rng)
        if self._applied is not None:
            await self._heed(self._table.config, _nobody)
            return merged(self._file, self._flow, self._applied), self._applied.version
        lost_to: FlowConfig | None = None
        for _ in range(TRIES_MOST):
            runners = await self._runners(mine, lost_to)
            stored = self._table.config
            decision = decide(stored, mine, runners=runners, apply=self._apply, lost_to=lost_to)
            wanted = _to_store(decision)
            if wanted is None:
                return self._begin(decision, decision.config)
            outcome = await self._table.write(wanted, instead_of=stored)
            if not isinstance(outcome, Lost):
                return self._begin(decision, outcome.config)
            lost_to = outcome.config
        raise StoredConfigUnusable(self._flow, f"others change it without end, {TRIES_MOST} times so far")

    async def _runners(self, mine: FlowProperties, lost_to: FlowConfig | None) -> Collection[str]:
        """Return who else runs the flow, and read what is stored anew. The dead are waited for where it matters."""
        for_sure = False
        while True:
            for_sure = for_sure or depends_on_runners(self._table.config, mine, apply=self._apply, lost_to=lost_to)
            runners = await self._others(for_sure=for_sure)
            await self._table.read_patiently(self._table.rng)
            if for_sure or not depends_on_runners(self._table.config, mine, apply=self._apply, lost_to=lost_to):
                return runners

    async def run(self, changed: Changed) -> None:
        """Follow what is stored until cancelled; ``changed`` hears of each change, one after the other.

        What cannot be run is said, and the flow goes on as it is.
        Raises: as ``ConfigLog.versions`` and ``ConfigLog.write``.
        """
        await self._heed(self._table.config, changed)
        async for stored in self._table.versions(lambda why: self._log.debug("config.unread", why=why)):
            await self._heed(stored, changed)

    async def _heed(self, stored: FlowConfig | None, changed: Changed) -> None:
        assert self._applied is not None, "it was not settled"  # noqa: S101
        match follow(self._applied, stored):
            case Keep():
                if stored is not None:
                    self._applied = stored
            case Follow(config, touched):
                await self._follow(config, touched, changed)
            case Restore(config, why):
                self._log.warning("config.restored", why=why, version=config.version)
                outcome = await self._table.write(replace(config), instead_of=stored)
                if not isinstance(outcome, Lost):
                    self._applied = outcome.config

    async def _follow(self, config: FlowConfig, touched: frozenset[str], changed: Changed) -> None:
        try:
            settings = merged(self._file, self._flow, config)
        except StoredConfigUnusable as error:
            self._log.error("config.unusable", version=config.version, why=error.what, remedy=error.remedy)
            return
        self._log.info(
            "config.changed", version=config.version, by=str(config.by), worker=config.worker, touched=sorted(touched)
        )
        self._applied = config
        self.drift = difference(config.properties, self._file.shared(self._flow))
        await changed(self._flow, settings, config.version, touched)

    def _begin(self, decision: Decision, config: FlowConfig) -> tuple[FlowSettings | None, int]:
        settings = merged(self._file, self._flow, config)
        self._say(decision, config)
        self._applied = config
        return settings, config.version

    def _say(self, decision: Decision, config: FlowConfig) -> None:
        log = self._log.bind(version=config.version)
        match decision:
            case Add():
                log.info("config.added")
            case Replace(_, found, why):
                log.warning("config.replaced", why=why, difference=shown(found), remedy=PREVIOUS_REMEDY)
            case Drift(_, found):
                self.drift = found
                log.warning(
                    "config.drift",
                    difference=shown(found),
                    effect="other workers run this flow: it runs as they do, and not by this file",
                    remedy=f"mm2py apply {self._file.path} makes all of them run by it.",
                )
            case Use(_, found) if found:
                self.drift = found
                log.warning(
                    "config.kept",
                    difference=shown(found),
                    effect=f"it was changed by {config.by} last, and this file has not changed since",
                    remedy=f"mm2py apply {self._file.path} makes all workers run by it.",
                )
            case Use():
                log.info("config.used")


async def _nobody(_: Flow, settings: FlowSettings | None, version: int, touched: frozenset[str]) -> None:
    """Nothing runs yet that would have to hear of a change."""


def _to_store(decision: Decision) -> FlowConfig | None:
    match decision:
        case Add(config) | Replace(config):
            return config
        case Drift(_, _, note) | Use(_, _, note):
            return note


def shown(difference: Difference) -> list[str]:
    """Return what differs as a log shows it, the first lines."""
    lines = [str(change) for change in difference[:SHOWN_MOST]]
    return lines if len(difference) <= SHOWN_MOST else [*lines, f"and {len(difference) - SHOWN_MOST} more"]


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
