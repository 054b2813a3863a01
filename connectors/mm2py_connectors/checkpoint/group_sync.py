"""Commits on the target where groups of the source may continue: ``sync.group.offsets.enabled``.

``mm2py/offsets/group_sync.py`` decides.

Counterpart: the part of MirrorCheckpointTask that MM2 calls group offset sync.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import GroupSyncSettings
from mm2py.errors import for_each
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.consumer_groups import Commit, Commits, commit_offsets, committed_offsets, list_groups
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import find_bounds
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.offsets.group_sync import PartitionOnTarget, commits_for, why_not_moved
from mm2py.records.checkpoint import Checkpoint

GROUPS_AT_ONCE: Final = 32
NAMED_MOST: Final = 10

GroupPartition = tuple[str, TopicPartition]


class GroupSync:
    """Moves the groups of one flow on the target, round after round."""

    def __init__(self, settings: GroupSyncSettings, target: Brokers, log: FilteringBoundLogger) -> None:
        """``target`` passes the gate of this worker's group."""
        self._settings = settings
        self._target = target
        self._log = log
        self._ours: dict[GroupPartition, int] = {}
        """The offsets that this worker has committed, or has found committed exactly as the checkpoint says."""
        self._skipped: dict[str, str] = {}
        """Why groups were not moved in the last round."""

    async def sync(self, checkpoints: Iterable[Checkpoint], *, all_groups: bool) -> None:
        """Commit what is new.

        Args:
            checkpoints: the last ones of groups and partitions that exist on the source.
            all_groups: the checkpoints are of all groups. Only then are skipped groups logged, if they have changed.
        Raises:
            KafkaError: the target did not answer; repeat it.
        """
        wanted: dict[str, dict[TopicPartition, Checkpoint]] = {}
        for one in checkpoints:
            wanted.setdefault(one.group, {})[str(one.topic), one.partition] = one
        listed = await list_groups(self._target)
        skipped: dict[str, str] = {}
        for name in wanted:
            group = listed.get(name)
            why = why_not_moved(*(None, "") if group is None else (group.state, group.protocol_type))
            if why is not None:
                skipped[name] = why
        movable = [name for name in wanted if name not in skipped]
        committed = await committed_offsets(self._target, movable)
        bounds = await self._bounds({key for name in movable for key in wanted[name]})
        moved: dict[str, int] = {}

        async def move(name: str) -> None:
            commits = committed[name]
            if isinstance(commits, BrokerRefused):
                skipped[name] = str(commits)
                return
            refusal, moved_partitions = await self._move(name, wanted[name], commits, bounds)
            if moved_partitions:
                moved[name] = moved_partitions
            if refusal is not None:
                skipped[name] = str(refusal)

        await for_each(movable, move, at_once=GROUPS_AT_ONCE, name="moving groups")
        if moved:
            self._log.info("group_offsets.synced", groups=len(moved), partitions=sum(moved.values()))
        if all_groups:
            self._name_skipped(skipped)

    async def _move(
        self,
        name: str,
        checkpoints: Mapping[TopicPartition, Checkpoint],
        commits: Commits,
        bounds: Mapping[TopicPartition, tuple[int, int]],
    ) -> tuple[BrokerRefused | None, int]:
        """Commit for one group. Returns a refusal, if there was one, and how many partitions were moved."""
        partitions: dict[TopicPartition, PartitionOnTarget] = {}
        for key, checkpoint in checkpoints.items():
            if key not in bounds:
                continue  # there is no such partition, or no leader of it now
            at = commits.get(key)
            if at is not None and at.offset == checkpoint.downstream_offset:
                self._ours[name, key] = at.offset
            partitions[key] = PartitionOnTarget(
                checkpoint.downstream_offset,
                *bounds[key],
                committed=None if at is None else at.offset,
                ours=self._ours.get((name, key)),
            )
        new = commits_for(partitions, follows_rewinds=self._settings.follows_rewinds)
        if not new:
            return None, 0
        answers = await commit_offsets(
            self._target, name, {key: Commit(offset, checkpoints[key].metadata) for key, offset in new.items()}
        )
        stored = [key for key, refusal in answers.items() if refusal is None]
        self._ours.update({(name, key): new[key] for key in stored})
        return next((refusal for refusal in answers.values() if refusal is not None), None), len(stored)

    async def _bounds(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        if not keys:
            return {}
        metadata = await fetch_metadata(self._target, sorted({topic for topic, _ in keys}))
        return await find_bounds(self._target, {key: metadata.leader_of(*key) for key in keys})

    def _name_skipped(self, skipped: dict[str, str]) -> None:
        new: dict[str, list[str]] = {}
        for name, why in skipped.items():
            if self._skipped.get(name) != why:
                new.setdefault(why, []).append(name)
        for why, names in new.items():
            self._log.warning("group_offsets.skipped", groups=sorted(names)[:NAMED_MOST], count=len(names), why=why)
        back = sorted(self._skipped.keys() - skipped.keys())
        if back:
            self._log.info("group_offsets.no_longer_skipped", groups=back[:NAMED_MOST], count=len(back))
        self._skipped = skipped
