"""Which group may run a flow, and store its settings: one group runs one flow into one target cluster.

Counterpart: Connect's group protocol, by which all workers of MirrorMaker 2 into one cluster are one group. Two groups
of mm2py have two control logs and two leaders; each would store its own settings, and fence the producers of the
other. So the owner is stored beside the flow's settings (``records/owner_record.py``), and a second group is refused
with the owner's name. The second group takes the flow over when no live member of the owner runs it. Any worker may
claim the flow for its group: the settings are stored in the same way, and no worker has to wait for an election
(``docs/decisions/0021-one-group-runs-a-flow.md``).
"""

from __future__ import annotations

import asyncio
import io
import random
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error, for_each
from mm2py.flow import Flow
from mm2py.group.group_look import GroupLook, GroupLooks
from mm2py.group.leader_loop import EvictedWriters
from mm2py.kafka.cluster import WAITING_REPORT_S, fetch_metadata, until_answered
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer import transactions
from mm2py.kafka.producer.fencing import parse
from mm2py.logs import make_logger
from mm2py.moments import time_text
from mm2py.records.control_record import Writer
from mm2py.records.owner_record import Owner
from mm2py.shared_settings.config_log import ConfigLog, ConfigTable
from mm2py.topics.names import control_log, ledger_topic

LOOKS_AT_ONCE: Final = 16
WITHDRAW_S: Final = 15.0
"""How long members that joined the previous owner meanwhile may take to see that it is not the owner any more."""
WITHDRAW_LOOK_S: Final = 0.5


class FlowOfAnotherGroup(Mm2Error):
    """Another group runs this flow, or may run it. REST answers 409."""


class RunByGroup(FlowOfAnotherGroup):
    """Another group has the flow, and has live workers."""

    def __init__(self, flow: Flow, mine: str, look: GroupLook, owner: Owner | None) -> None:
        count = len(look.running)
        who = "1 live worker" if count == 1 else f"{count} live workers"
        if owner is not None and owner.group == look.group:
            who += f", claimed {time_text(owner.at_ms)} by {owner.worker}"
        else:
            who += f": {', '.join(look.running[:3])}"
        super().__init__(
            f"Flow {flow} is refused: group {look.group} runs it ({who}).",
            remedy=f"Set mm2py.group = {look.group} in this file to join it. Or stop its workers, and start again:"
            f" group {mine} then takes the flow over.",
        )
        self.group = look.group


class OwnerUnknown(FlowOfAnotherGroup):
    """It is not known whether another group runs the flow."""

    def __init__(self, flow: Flow, look: GroupLook) -> None:
        super().__init__(
            f"Flow {flow} is refused: group {look.group} may run it, and its control log cannot be read. {look.unread}",
            remedy=f"{look.remedy} If no worker of group {look.group} runs any more, delete topic"
            f" {control_log(look.group, producer_expiry_ms=0).name} and start again.".lstrip(),
        )
        self.group = look.group


class OwnerLost(Mm2Error):
    """Another group has claimed the flow while it ran here: it is drained here, and its owner is checked again."""

    def __init__(self, flow: Flow, owner: Owner) -> None:
        super().__init__(
            f"Group {owner.group} has claimed flow {flow} ({time_text(owner.at_ms)}, by {owner.worker}).",
            remedy=f"Set mm2py.group = {owner.group} in this file to join it.",
        )


class OwnerNotFenced(FlowOfAnotherGroup):
    """``exactly.once.source.support=enabled``, and a producer of the previous owner cannot be fenced."""

    def __init__(self, flow: Flow, group: str, why: str) -> None:
        super().__init__(
            f"Flow {flow} is refused: exactly.once.source.support=enabled cannot be kept. A producer of group {group},"
            f" which ran the flow, may still write: {why}",
            remedy="",  # ``why`` ends with it
        )


@dataclass(frozen=True, slots=True)
class Free:
    """No live member of another group runs the flow."""

    previous: GroupLook | None = None
    """The owner until now, if the flow had one."""


def verdict(flow: Flow, mine: str, owner: Owner | None, looks: Collection[GroupLook]) -> Free:
    """Return ``Free`` if a group that does not own a flow may have it.

    Args:
        looks: at the owner's control log; without an owner, at those of all other groups.
    Raises:
        FlowOfAnotherGroup: it may not have it. The error names a group that runs the flow rather than an unread one.
    """
    for look in sorted(looks, key=lambda look: (not look.running, look.group)):
        if look.running:
            raise RunByGroup(flow, mine, look, owner)
        if look.unread:
            raise OwnerUnknown(flow, look)
    return Free(next((look for look in looks if owner is not None and look.group == owner.group), None))


def other_groups(topics: Collection[str], mine: str) -> list[str]:
    """Return the groups whose control logs are among the topics of a cluster."""
    pattern = re.escape(str(control_log("?", producer_expiry_ms=0).name)).replace(re.escape("?"), "(.+)")
    found = (re.fullmatch(pattern, topic) for topic in topics)
    return sorted({one[1] for one in found if one is not None} - {mine})


async def _producers_of(flow: Flow, groups: Collection[str], brokers: Brokers) -> Mapping[str, Sequence[Writer]]:
    """Return the producers of a flow that the transaction coordinators know, by group. Raises: KafkaError."""
    found: dict[str, list[Writer]] = {group: [] for group in groups}
    for broker in (await fetch_metadata(brokers, [])).brokers:
        for one in await transactions.list_transactions(brokers, broker):
            for group in groups:
                name = parse(one.transactional_id, group)
                if name is not None and name.flow == str(flow):
                    found[group].append(Writer(flow, one.transactional_id, one.producer_id, -1))
    return found


class OtherGroups:
    """Checks whether another group runs one flow. The target is only read."""

    def __init__(
        self, settings: FlowSettings, brokers: Brokers, *, clock: Clock, rng: random.Random, log: FilteringBoundLogger
    ) -> None:
        self.flow = settings.flow
        self.mine = settings.group
        self._brokers = brokers
        self._clock = clock
        self._rng = rng
        self._log = log
        self._looks: dict[tuple[str, bool], GroupLooks] = {}

    async def refuse(self, owner: Owner | None) -> Free:
        """Return ``Free`` if the flow is this group's, or free. If its owner was killed, that takes a few seconds.

        Waits as long as the target does not answer. Cancelling loses nothing.

        Raises: as ``verdict``.
        """
        if owner is not None and owner.group == self.mine:
            return Free()
        if owner is None and (await self._looks_at(self.mine, is_owner=False).look()).running:
            return Free()  # members of an older version run it: this group continues, whatever other groups' logs say
        groups = [owner.group] if owner is not None else await self._groups()
        found: list[GroupLook] = []

        async def look(group: str) -> None:
            found.append(await self._looks_at(group, is_owner=owner is not None).look())

        await for_each(groups, look, at_once=LOOKS_AT_ONCE, name=f"{self.flow}: who runs it")
        if owner is None and any(look.unread for look in found):
            found = await self._without_strangers(found)
        return verdict(self.flow, self.mine, owner, found)

    async def _without_strangers(self, looks: Sequence[GroupLook]) -> list[GroupLook]:
        """Leave out groups whose control logs cannot be read, if nothing connects them with a flow without an owner.

        The story: a team has broken its control log, or lets no other team read it. A flow that was never its own must
        not stop because of that. A group that runs a flow has a transactional id with the flow's name, and the
        transaction coordinators know that id.
        """
        unread = [look.group for look in looks if look.unread]
        known = await until_answered(lambda: _producers_of(self.flow, unread, self._brokers), rng=self._rng)
        kept = [look for look in looks if not look.unread or known[look.group]]
        for look in looks:
            if look not in kept:
                self._log.warning(
                    "owner.log_unread",
                    group=look.group,
                    why=look.unread,
                    effect="it is passed over: the target knows no producer of that group for this flow",
                )
        return kept

    async def refuse_group(self, group: str) -> GroupLook:
        """Look at a group that has owned the flow; no live member of it may run the flow. Raises: as ``verdict``."""
        look = await self._looks_at(group, is_owner=True).look()
        verdict(self.flow, self.mine, None, [look])
        return look

    async def _groups(self) -> Sequence[str]:
        metadata = await until_answered(lambda: fetch_metadata(self._brokers, None), rng=self._rng)
        return other_groups(metadata.topics, self.mine)

    def _looks_at(self, group: str, *, is_owner: bool) -> GroupLooks:
        key = group, is_owner
        if key not in self._looks:
            self._looks[key] = GroupLooks(
                group,
                self.flow,
                self._brokers,
                is_owner=is_owner,
                clock=self._clock,
                rng=self._rng,
                log=self._log.bind(group=group),
            )
        return self._looks[key]


async def refuse_another_group(
    settings: FlowSettings,
    table: ConfigTable,
    brokers: Brokers,
    *,
    clock: Clock,
    rng: random.Random,
    log: FilteringBoundLogger | None = None,
) -> Owner | None:
    """Return the owner, another group without live members, in whose place settings may be stored; None: the flow is
    this group's, or has no owner.

    Args:
        table: was read before.
        log: None for commands, which print the error.
    Raises: as ``OtherGroups.refuse``.
    """
    owner = table.records.owner.current
    quiet = make_logger("error", "text", io.StringIO())
    await OtherGroups(settings, brokers, clock=clock, rng=rng, log=log or quiet).refuse(owner)
    return owner if owner is not None and owner.group != settings.group else None


class OwnerWatch:
    """A worker's part in one flow's owner: claims the flow for the worker's group, and keeps the claim."""

    def __init__(
        self,
        settings: FlowSettings,
        config_log: ConfigLog,
        brokers: Brokers,
        gated: Brokers,
        *,
        source_id: Callable[[], str | None],
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one.

        Args:
            brokers: those of the target, for requests that only read; requests that change something use ``gated``.
            source_id: returns the id of the source cluster, once this worker may store something.
        """
        self._settings = settings
        self._flow = settings.flow
        self._group = settings.group
        self._config_log = config_log
        self._brokers = brokers
        self._source_id = source_id
        self._clock = clock
        self._rng = rng
        self._log = log
        topics = (settings.offsets_topic, str(ledger_topic(settings.flow.source)), settings.status_topic)
        self._writers = EvictedWriters(gated, lambda _: topics, clock=clock, rng=rng, log=log)
        self._fenced: set[int] = set()
        self._known: Owner | None = None

    @property
    def is_of_another_group(self) -> bool:
        """Whether the flow is another group's, by what was read last."""
        owner = self._config_log.records.owner.current
        return owner is not None and owner.group != self._group

    async def refuse_unread(self) -> None:
        """Check all other groups, because stored settings and owner cannot be read. Raises: as ``verdict``."""
        await self._others().refuse(None)

    def _others(self) -> OtherGroups:
        return OtherGroups(self._settings, self._brokers, clock=self._clock, rng=self._rng, log=self._log)

    async def take(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Return when the flow is this group's. The stored settings must have been read before.

        Args:
            ready: returns when this worker may store something.
        Raises:
            FlowOfAnotherGroup: another group runs it.
            Others as ``ready``, ``ConfigLog.claim``. If the topic cannot be created, no group can own the flow.
        Cancelling loses nothing.
        """
        if self._config_log.is_missing:
            await ready()
            await self._config_log.make_topic()
        others = self._others()
        while True:
            owner = self._config_log.records.owner.current
            if owner is None or owner.group != self._group:
                await self._claim(others, owner, ready)
            elif owner.takes_over:
                await self._complete(others, owner)
            else:
                self._known = owner
                return

    async def _claim(self, others: OtherGroups, owner: Owner | None, ready: Callable[[], Awaitable[None]]) -> None:
        """Claim the flow, unless another group may keep it. Another worker may be quicker: check the owner then."""
        free = await self._look(others, owner)
        await ready()
        takes_over = "" if owner is None else owner.group
        if free.previous is not None:
            await self._fence(free.previous)
        source_cluster = self._source_id() or ""
        claimed = await self._config_log.claim(
            self._group, instead_of=owner, takes_over=takes_over, source_cluster=source_cluster
        )
        if claimed is not None and claimed.group == self._group:
            self._log.info("flow.claimed", group=self._group, instead_of=takes_over or None)

    async def _look(self, others: OtherGroups, owner: Owner | None) -> Free:
        """Check other groups, and log if that takes long: for a killed owner it takes its session time-out."""
        looking = asyncio.create_task(others.refuse(owner), name=f"{self._flow}: who runs it")
        try:
            while not (await asyncio.wait([looking], timeout=WAITING_REPORT_S))[0]:
                doing = f"looking whether {'another group' if owner is None else f'group {owner.group}'} runs the flow"
                why = "its workers send no heartbeats; waiting until their session time-out is over"
                self._log.warning("flow.waiting", doing=doing, why=why)
            return await looking
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _fence(self, previous: GroupLook) -> None:
        """Fence the producers of the previous owner's dead members in the flow's internal topics, as their own leader
        would. In each remote partition the producers that the positions name are fenced before it is copied."""
        found = previous.writers
        if previous.is_missing:
            group = previous.group
            known = await until_answered(lambda: _producers_of(self._flow, [group], self._brokers), rng=self._rng)
            found = tuple(known[group])
        writers = [writer for writer in found if writer.producer_id not in self._fenced]
        if not writers:
            return
        self._log.warning(
            "flow.fencing_owner",
            owner=previous.group,
            producers=len(writers),
            effect="its workers were killed, or do not reach the target; if one of them wakes, it is refused",
        )
        outcome = await self._writers.fence(writers, previous.fence_epochs)
        if outcome.unfenced and self._settings.exactly_once == "enabled":
            raise OwnerNotFenced(self._flow, previous.group, next(iter(outcome.unfenced.values())))
        self._fenced.update(outcome.epochs, outcome.unfenced)

    async def _complete(self, others: OtherGroups, owner: Owner) -> None:
        """After a claim, check whether a member of the previous owner has joined meanwhile: it may have read the claim
        before. Each worker of the new owner does that before it starts, until one of them has written that it is done.

        The story: group g is dead, and h is about to claim its flow. A worker of g starts, joins, reads that g is the
        owner, and copies. It joined before it read. So either it reads h's claim, or h finds it in g's control log now.
        The worker sees the claim within a second, and withdraws. A worker of an older version does not: then g gets the
        flow back.

        Raises: RunByGroup, if the member does not withdraw.
        """
        until_s = self._clock.monotonic() + WITHDRAW_S
        while True:
            try:
                previous = await others.refuse_group(owner.takes_over)
            except RunByGroup:
                if self._clock.monotonic() >= until_s:
                    await self._config_log.claim(owner.takes_over, instead_of=owner)
                    raise
                await asyncio.sleep(WITHDRAW_LOOK_S)
            else:
                await self._fence(previous)
                await self._config_log.complete_claim(owner)
                return

    async def keep(self) -> None:
        """Check the owner that was read. Write this group's claim again if it is gone, or does not name the source
        cluster, like a claim of an earlier version.

        Raises:
            OwnerLost: another group has claimed the flow.
            Others as ``ConfigLog.restore_owner``.
        """
        records = self._config_log.records.owner
        if records.current is not None and records.current.group != self._group:
            raise OwnerLost(self._flow, records.current)
        if self._known is not None and (records.current is None or records.is_covered):
            self._log.warning("flow.owner_restored", group=self._group)
            await self._config_log.restore_owner(self._known)
        source_id, current = self._source_id(), self._config_log.records.owner.current
        if source_id and current is not None and current.group == self._group and current.source_cluster != source_id:
            await self._config_log.name_source(current, source_id)
