"""The groups of a lost source: what the target alone knows of them, and their commits there.

Counterpart: RemoteClusterUtils of MirrorMaker 2, which asks the target alone, too.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.dr.cutover.pair import CutoverRefused
from mm2py.dr.failover.placing import FailoverPoint, KnownCommit, LostGroup, PlacedGroup, chosen, placed
from mm2py.dr.groups.group_commits import commit_all
from mm2py.dr.groups.judgement import SHARE, MoveState
from mm2py.errors import for_each
from mm2py.kafka.cluster import fetch_metadata, until_answered
from mm2py.kafka.consumer_groups import list_groups, refused_groups
from mm2py.kafka.group_members import members_of
from mm2py.kafka.list_offsets import EARLIEST, LATEST, Leaders, find_offsets, list_offsets
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.kafka.write_gate import gated_alone
from mm2py.logs import make_logger
from mm2py.offsets.group_sync import IDLE
from mm2py.status.consumer_group_inquiry import ConsumerGroupInquiry
from mm2py.status.consumer_groups import ConsumerGroupFacts, ConsumerGroupsFacts

GROUPS_AT_ONCE: Final = 16


class LostGroups:
    """The groups of one failover. Each look reads only what is new in topics."""

    def __init__(
        self, settings: FlowSettings, source: Brokers, target: Brokers, *, clock: Clock, rng: random.Random
    ) -> None:
        """``source`` is asked nothing."""
        self._settings = settings
        self._target = target
        self._clock = clock
        self._rng = rng
        self._inquiry = (
            None
            if settings.checkpoints is None
            else ConsumerGroupInquiry(settings, source, target, make_logger("error", "text"))
        )

    @property
    def are_known(self) -> bool:
        """Whether the flow emits checkpoints: without them the target knows no group."""
        return self._inquiry is not None

    async def judged(
        self,
        point: FailoverPoint,
        *,
        left_topics: Collection[str],
        wanted: Sequence[str],
        left: Collection[str],
    ) -> list[PlacedGroup]:
        """Return all groups that take part, sorted by name.

        Args:
            left_topics: topics of the source in which groups stay.
            wanted: only these groups; none: all.
            left: groups that an operator leaves out.
        Raises:
            CutoverRefused: the target knows no group of such a name.
            Mm2Error: as ``ConsumerGroupInquiry.look_at_target``.
        """
        found = await until_answered(lambda: self._look(point, left_topics), rng=self._rng)
        unknown = [name for name in (*wanted, *left) if name not in {one.group for one in found}]
        if unknown:
            raise CutoverRefused(
                f"{self._settings.flow.target} has no checkpoint of a group {unknown[0]} in what"
                f" {self._settings.flow} copies.",
                remedy=f"See mm2py groups FILE '{self._settings.flow}'.",
            )
        return chosen((placed(one, point, is_left=one.group in left) for one in found), wanted)

    async def share_groups(self) -> list[str]:
        """Return the share groups of the target: those of the source are not known there, and none is moved."""
        listed = await until_answered(lambda: list_groups(self._target), rng=self._rng)
        return sorted(name for name, one in listed.items() if one.protocol_type == SHARE)

    async def commit(self, groups: Iterable[PlacedGroup]) -> None:
        """Commit on the target all groups that can be placed, each whole or not at all.

        Raises: as ``commit_all``, for the first that fails. Others may have been placed: the same can be done again.
        """
        brokers, alias = gated_alone(self._target, self._clock), self._settings.flow.target

        async def place(one: PlacedGroup) -> None:
            await commit_all(brokers, alias, one.group, one.commits)

        ready = [one for one in groups if one.state is MoveState.READY and not one.is_there]
        await for_each(ready, place, at_once=GROUPS_AT_ONCE, name="placing groups")

    async def _look(self, point: FailoverPoint, left_topics: Collection[str]) -> list[LostGroup]:
        if self._inquiry is None:
            return []
        facts = await self._inquiry.look_at_target()
        keys = {key for group in facts.groups for key in group.committed if key[0] not in left_topics}
        leaders = await _leaders(self._target, {facts.remote[key] for key in keys})
        starts = await find_offsets(self._target, leaders, EARLIEST)
        ends = await find_offsets(self._target, leaders, LATEST)
        instants: dict[TopicPartition, int] = {}
        if point.at_ms is not None:
            answers = await list_offsets(self._target, leaders, point.at_ms)
            instants = {key: one.offset for key, one in answers.items() if not one.error_code and one.offset >= 0}
        names = [group.group for group in facts.groups if group.target is not None and group.target.state != IDLE]
        members = await members_of(self._target, names)
        idle = [group.group for group in facts.groups if group.group not in names]
        refused = await refused_groups(self._target, idle)
        found: list[LostGroup] = []
        for group in facts.groups:
            commits = tuple(
                _commit(group, key, facts, starts, ends, instants) for key in sorted(group.committed) if key in keys
            )
            if commits:
                there = group.target
                found.append(
                    LostGroup(
                        group.group,
                        "" if there is None else there.state,
                        "" if there is None else there.protocol_type,
                        tuple(map(str, members.get(group.group, ()))),
                        commits,
                        group.refused or str(refused.get(group.group, "")),
                    )
                )
        return found


def _commit(
    group: ConsumerGroupFacts,
    key: TopicPartition,
    facts: ConsumerGroupsFacts,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    instants: Mapping[TopicPartition, int],
) -> KnownCommit:
    """Return what the target knows of a group in one partition. Pure."""
    remote = facts.remote[key]
    checkpoint = facts.checkpoints[group.group, remote]
    there = group.committed_on_target.get(remote)
    unknown = facts.stale.get(key, "")
    if not unknown and (remote not in starts or remote not in ends):
        unknown = f"{remote[0]}-{remote[1]} has no leader on the target that answers"
    ledger = facts.ledgers.get(key)
    return KnownCommit(
        *key,
        remote[0],
        checkpoint.upstream_offset,
        checkpoint.downstream_offset,
        checkpoint.metadata,
        None if ledger is None or not ledger.ledgers else ledger.forward(checkpoint.upstream_offset),
        starts.get(remote, 0),
        ends.get(remote, 0),
        None if there is None else there.offset,
        instants.get(remote),
        unknown,
    )


async def _leaders(brokers: Brokers, keys: Collection[TopicPartition]) -> Leaders:
    if not keys:
        return {}
    metadata = await fetch_metadata(brokers, sorted({topic for topic, _ in keys}))
    return {key: metadata.leader_of(*key) for key in keys}
