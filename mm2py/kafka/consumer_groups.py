"""Consumer groups of a cluster: lists them, reads their commits, commits for them, and deletes them.

Groups of the classic and of the consumer protocol are treated alike. Share groups are listed as well; they have no
commits, and accept none (docs/broker-facts.md#m12).

Rights: DESCRIBE on a group to list it and to read what it has committed; READ on a group, and on the topics, to commit
for it. DESCRIBE on the cluster is enough to list groups, but not to read their commits. Brokers leave out what mm2py
may not describe, without an error: groups from a list, and topics from a group's commits. ``refused_groups`` checks
the right to commit, and commits nothing. DELETE on a group to delete it.

Counterpart: what MirrorCheckpointConnector and MirrorCheckpointTask of MirrorMaker 2 ask through Kafka's Admin
(listGroups, listConsumerGroupOffsets, alterConsumerGroupOffsets).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from mm2py.errors import for_each
from mm2py.kafka import admin, messages
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_MEMBER_ID,
)
from mm2py.kafka.errors import BrokerRefused, CorruptReply, Reaction, ReplyTooLarge, reaction_to
from mm2py.kafka.list_offsets import chunks
from mm2py.kafka.port import BrokerId, Brokers, TopicPartition, ask

GROUPS_A_REQUEST: Final = 200
COMMITS_A_REQUEST: Final = 200
"""A coordinator stores the commits of one request as one batch, and answers UNKNOWN_SERVER_ERROR if it is too large.
With metadata of 4,096 bytes each, the most that brokers allow by default, this many still fit (1 MiB by default)."""
BROKERS_AT_ONCE: Final = 32
_READ: Final = 1 << 3
"""The bit of READ in the operations that a broker allows."""
_NOT_TOLD: Final = -(1 << 31)
"""In place of these operations: the broker does not tell them."""
_NO_EPOCH: Final = -1
_NO_GENERATION: Final = -1
"""The generation of a client that is not a member."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One group as its coordinator lists it.

    ``protocol_type`` is ``consumer`` for groups of consumers, ``share`` for share groups, and empty for a group that
    has never had a member.
    ``state`` is Kafka's word, such as ``Stable`` or ``Empty``.
    """

    group: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Where a group continues in one partition. ``offset`` is the next one to read, in records, >= 0."""

    offset: int
    metadata: str = ""


Commits = Mapping[TopicPartition, Commit]


async def list_groups(brokers: Brokers, *, channel: str = "control") -> dict[str, ListedGroup]:
    """Ask every broker for the groups that it coordinates; return all of them by name.

    A group that is missing in one list may still exist: while its part of ``__consumer_offsets`` has no leader, or
    moves from a broker that was not asked yet to one that was, no broker names it and none reports an error.

    Raises:
        CorruptReply: the broker that was asked for the brokers has just started, and knows none.
        BrokerRefused: a broker does not list its groups now. Without them the list would lack groups that exist.
        KafkaError: as ``Brokers.send``, of any broker.
    Cancelling costs nothing.
    """
    metadata = await fetch_metadata(brokers, (), channel=channel)
    if not metadata.brokers:
        raise CorruptReply("The cluster", "metadata without brokers")
    found: dict[str, ListedGroup] = {}

    async def list_those_of(broker: BrokerId) -> None:
        reply = await ask(brokers, broker, messages.ListGroupsRequest(), messages.ListGroupsResponse, channel=channel)
        if reply.error_code:
            raise BrokerRefused(f"Listing the groups of broker {broker}", int(reply.error_code))
        for group in reply.groups:
            name = str(group.group_id)
            found[name] = ListedGroup(name, group.protocol_type, group.group_state)

    await for_each(metadata.brokers, list_those_of, at_once=BROKERS_AT_ONCE, name="listing groups")
    return found


async def find_coordinators(
    brokers: Brokers, groups: Collection[str], *, channel: str = "control"
) -> dict[str, BrokerId | BrokerRefused]:
    """Return for each group its coordinator, or why there is none; the reason is retriable if there may soon be one.

    Raises:
        KafkaError: as ``Brokers.send``.
    """
    found = await admin.find_coordinators(brokers, groups, transactions=False, channel=channel)
    return {
        group: _refused(f"Finding the coordinator of group {group}", group, answer.code, right="DESCRIBE")
        if isinstance(answer, BrokerRefused)
        else answer
        for group, answer in found.items()
    }


async def committed_offsets(
    brokers: Brokers, groups: Collection[str], *, channel: str = "control"
) -> dict[str, Commits | BrokerRefused]:
    """Return the commits of each group, or why its coordinator does not tell them.

    A reason is retriable if the coordinator is loading, or is another broker by now. A group that does not exist has no
    commits, like one that has not committed. Commits in open transactions do not count yet.

    Raises:
        KafkaError: as ``Brokers.send``, of any coordinator; nothing is returned of any group then.
    Cancelling costs nothing.
    """
    found: dict[str, Commits | BrokerRefused] = {}
    by_coordinator: dict[BrokerId, list[str]] = {}
    for group, coordinator in (await find_coordinators(brokers, groups, channel=channel)).items():
        if isinstance(coordinator, BrokerRefused):
            found[group] = coordinator
        else:
            by_coordinator.setdefault(coordinator, []).append(group)

    async def ask_about(some: Sequence[str], coordinator: BrokerId) -> None:
        request = messages.OffsetFetchRequest(
            groups=tuple(messages.OffsetFetchRequestGroup(group_id=GroupId(group), topics=None) for group in some),
            require_stable=False,
        )
        try:
            reply = await ask(brokers, coordinator, request, messages.OffsetFetchResponse, channel=channel)
        except ReplyTooLarge:
            if len(some) == 1:
                raise
            for half in chunks(some, -(-len(some) // 2)):
                await ask_about(half, coordinator)
            return
        answers = {str(answer.group_id): _commits(answer) for answer in reply.groups}
        if answers.keys() != set(some):
            raise CorruptReply(f"Broker {coordinator}", f"{len(answers)} answers about {len(some)} groups")
        found.update(answers)

    async def ask_about_those_of(coordinator: BrokerId) -> None:
        for some in chunks(by_coordinator[coordinator], GROUPS_A_REQUEST):
            await ask_about(some, coordinator)

    await for_each(by_coordinator, ask_about_those_of, at_once=BROKERS_AT_ONCE, name="reading commits")
    return found


async def refused_groups(brokers: Brokers, groups: Collection[str]) -> dict[str, BrokerRefused]:
    """Return the groups that mm2py could not commit for now, and why: a right is missing, or no coordinator answers.

    A group need not exist. Whether a group has members, and the rights on topics, are not checked.

    Raises:
        KafkaError: as ``Brokers.send``, of any coordinator.
    Cancelling costs nothing.
    """
    found: dict[str, BrokerRefused] = {}
    by_coordinator: dict[BrokerId, list[str]] = {}
    for group, coordinator in (await admin.find_coordinators(brokers, groups, transactions=False)).items():
        if isinstance(coordinator, BrokerRefused):
            found[group] = _refused(f"Committing for group {group}", group, coordinator.code, right="READ")
        else:
            by_coordinator.setdefault(coordinator, []).append(group)

    async def ask_about_those_of(coordinator: BrokerId) -> None:
        for some in chunks(by_coordinator[coordinator], GROUPS_A_REQUEST):
            request = messages.DescribeGroupsRequest(
                groups=tuple(map(GroupId, some)), include_authorized_operations=True
            )
            reply = await ask(brokers, coordinator, request, messages.DescribeGroupsResponse)
            for one in reply.groups:
                code, allowed = int(one.error_code), int(one.authorized_operations)
                if not code and allowed != _NOT_TOLD and not allowed & _READ:
                    code = GROUP_AUTHORIZATION_FAILED
                if code:
                    group = str(one.group_id)
                    found[group] = _refused(f"Committing for group {group}", group, code, right="READ")

    await for_each(by_coordinator, ask_about_those_of, at_once=BROKERS_AT_ONCE, name="reading rights on groups")
    return found


async def commit_offsets(
    brokers: Brokers, group: str, commits: Commits, *, at_once: int = COMMITS_A_REQUEST, channel: str = "control"
) -> dict[TopicPartition, BrokerRefused | None]:
    """Commit for a group that has no members; return for each partition what was wrong, or None.

    A group that does not exist is created. A group with members is refused with ``UNKNOWN_MEMBER_ID``: only they may
    commit.

    No leader epoch is committed. The source's epochs mean nothing on the target. If one were higher than the target's
    own, consumers would consider all metadata of the target outdated, and fetch it again without end.

    Args:
        at_once: how many partitions go into one request.
    Raises:
        KafkaError: as ``Brokers.send``; some partitions may have been committed.
    After cancelling, any of the partitions may have been committed; the same commits may be sent again.
    """
    coordinator = (await find_coordinators(brokers, [group], channel=channel))[group]
    if isinstance(coordinator, BrokerRefused):
        return dict.fromkeys(commits, coordinator)
    found: dict[TopicPartition, BrokerRefused | None] = {}
    for some in chunks(list(commits), at_once):
        request = _commit_request(group, {key: commits[key] for key in some})
        reply = await ask(brokers, coordinator, request, messages.OffsetCommitResponse, channel=channel)
        answers = {
            (str(topic.name), int(part.partition_index)): _commit_refusal(group, str(topic.name), int(part.error_code))
            for topic in reply.topics
            for part in topic.partitions
        }
        if answers.keys() != set(some):
            raise CorruptReply(f"Broker {coordinator}", f"{len(answers)} answers about {len(some)} commits")
        found |= answers
    return found


async def delete_groups(
    brokers: Brokers, groups: Collection[str], *, channel: str = "control"
) -> dict[str, BrokerRefused | None]:
    """Delete groups without members, with all that they have committed; return for each what was wrong, or None.

    A group that does not exist counts as deleted.

    Raises:
        KafkaError: as ``Brokers.send``; some groups may have been deleted. The same may be deleted again.
    """
    found: dict[str, BrokerRefused | None] = {}
    by_coordinator: dict[BrokerId, list[str]] = {}
    for group, coordinator in (await find_coordinators(brokers, groups, channel=channel)).items():
        if isinstance(coordinator, BrokerRefused):
            found[group] = coordinator
        else:
            by_coordinator.setdefault(coordinator, []).append(group)

    async def delete_those_of(coordinator: BrokerId) -> None:
        for some in chunks(by_coordinator[coordinator], GROUPS_A_REQUEST):
            request = messages.DeleteGroupsRequest(groups_names=tuple(map(GroupId, some)))
            reply = await ask(brokers, coordinator, request, messages.DeleteGroupsResponse, channel=channel)
            for one in reply.results:
                group, code = str(one.group_id), int(one.error_code)
                is_gone = code in {0, GROUP_ID_NOT_FOUND}
                found[group] = None if is_gone else _refused(f"Deleting group {group}", group, code, right="DELETE")

    await for_each(by_coordinator, delete_those_of, at_once=BROKERS_AT_ONCE, name="deleting groups")
    return found


def _commit_request(group: str, commits: Commits) -> messages.OffsetCommitRequest:
    by_topic: dict[str, list[messages.OffsetCommitRequestPartition]] = {}
    for (topic, partition), commit in commits.items():
        wanted = messages.OffsetCommitRequestPartition(
            partition_index=i32(partition),
            committed_offset=i64(commit.offset),
            committed_leader_epoch=i32(_NO_EPOCH),
            committed_metadata=commit.metadata,
        )
        by_topic.setdefault(topic, []).append(wanted)
    return messages.OffsetCommitRequest(
        group_id=GroupId(group),
        generation_id_or_member_epoch=i32(_NO_GENERATION),
        member_id="",
        group_instance_id=None,
        topics=tuple(
            messages.OffsetCommitRequestTopic(name=TopicName(topic), partitions=tuple(wanted))
            for topic, wanted in by_topic.items()
        ),
    )


def _commits(answer: messages.OffsetFetchResponseGroup) -> Commits | BrokerRefused:
    """Return a group's commits. One partition's error counts for the whole group: the partition must not look
    uncommitted."""
    parts = [(str(topic.name), part) for topic in answer.topics for part in topic.partitions]
    for code in (answer.error_code, *(part.error_code for _, part in parts)):
        if code:
            group = str(answer.group_id)
            return _refused(f"Reading the commits of group {group}", group, int(code), right="DESCRIBE")
    return {
        (topic, int(part.partition_index)): Commit(int(part.committed_offset), part.metadata or "")
        for topic, part in parts
        if part.committed_offset >= 0
    }


def _commit_refusal(group: str, topic: str, code: int) -> BrokerRefused | None:
    if not code:
        return None
    what = f"Committing for group {group} in {topic}"
    if code == TOPIC_AUTHORIZATION_FAILED:
        return BrokerRefused(what, code, remedy=f"Grant mm2py READ on topic {topic}.")
    return _refused(what, group, code, right="READ")


def _refused(what: str, group: str, code: int, *, right: str) -> BrokerRefused:
    remedy = ""
    if code == UNKNOWN_MEMBER_ID:
        remedy = "Stop the members of the group, or leave it to them to commit."
    elif reaction_to(code) is Reaction.DENIED:
        remedy = f"Grant mm2py {right} on group {group}."
    return BrokerRefused(what, code, remedy=remedy)
