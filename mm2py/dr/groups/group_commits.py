"""Commits the offsets of a group that moves: all partitions or none, read back and compared.

Brokers do not help much. They store the commits of one request as one batch, but only those that they allow: a topic
without the right, or metadata that is too long, is refused while the rest is stored. So rights are looked up before
(``group_inquiry.py``), everything goes in one request, and after a refusal what the group had before is put back.

Counterpart: the commits of MirrorCheckpointTask of MirrorMaker 2, each of which stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias
from mm2py.kafka.consumer_groups import Commit, Commits, commit_offsets, committed_offsets
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers, TopicPartition

BATCH_BYTES_MOST: Final = 1_000_000
"""Of the commits of one request: a broker stores them as one batch, of 1,048,588 bytes at most by default."""
_COMMIT_BYTES: Final = 100
"""What a commit takes besides its names and its metadata, or a little less."""


class CommitsTooLarge(Mm2Error):
    """The commits of a group do not fit into one request, so they could be stored in part."""

    def __init__(self, group: str, partitions: int) -> None:
        super().__init__(
            f"Group {group} was not moved: the commits of its {partitions:,} partitions do not fit into one request.",
            remedy="Move some of its topics first: leave the others out with --leave-topic.",
        )


class CommitsRefused(Mm2Error):
    """The other cluster has not stored what was to be committed."""

    def __init__(self, group: str, alias: ClusterAlias, why: BrokerRefused, left: Mapping[TopicPartition, int]) -> None:
        stayed = ", ".join(f"{topic}-{number} at {offset:,}" for (topic, number), offset in sorted(left.items()))
        more = f" Stored there, because nothing was committed before: {stayed}." if left else ""
        super().__init__(f"Group {group} was not moved to {alias}: {why.what}{more}", remedy=why.remedy)


class CommitsDiffer(Mm2Error):
    """What was read back is not what was committed: another client has committed for the group."""

    def __init__(self, group: str, alias: ClusterAlias, key: TopicPartition, wanted: int, found: Commit | None) -> None:
        there = "nothing" if found is None else f"{found.offset:,}"
        super().__init__(
            f"Group {group} is not where it was moved: {wanted:,} was committed in {key[0]}-{key[1]} on {alias}, and "
            f"{there} is there now.",
            remedy="Look who commits for the group there, stop that, and move it again.",
        )


async def commit_all(brokers: Brokers, alias: ClusterAlias, group: str, commits: Commits) -> None:
    """Commit for a group without members, and return when all of it was read back.

    Raises:
        CommitsTooLarge, CommitsRefused: nothing is committed, or what the error says.
        CommitsDiffer: another client has committed for the group meanwhile.
        KafkaError: as ``Brokers.send``; some partitions may have been committed. The same may be committed again.
    """
    if sum(_size(group, key, commit) for key, commit in commits.items()) > BATCH_BYTES_MOST:
        raise CommitsTooLarge(group, len(commits))
    before = await committed(brokers, group)
    answers = await commit_offsets(brokers, group, commits, at_once=max(1, len(commits)))
    refusal = next((one for one in answers.values() if one is not None), None)
    if refusal is not None:
        if refusal.retriable and None not in answers.values():
            raise refusal
        stored = [key for key, one in answers.items() if one is None]
        put_back = {key: before[key] for key in stored if key in before}
        if put_back:
            await commit_offsets(brokers, group, put_back, at_once=len(put_back))
        left = {key: commits[key].offset for key in stored if key not in before}
        raise CommitsRefused(group, alias, refusal, left)
    found = await committed(brokers, group)
    for key, wanted in commits.items():
        if key not in found or found[key] != wanted:
            raise CommitsDiffer(group, alias, key, wanted.offset, found.get(key))


async def committed(brokers: Brokers, group: str) -> Commits:
    """Return what a group has committed. Raises: BrokerRefused; KafkaError, as ``Brokers.send``."""
    found = (await committed_offsets(brokers, [group]))[group]
    if isinstance(found, BrokerRefused):
        raise found
    return found


def _size(group: str, key: TopicPartition, commit: Commit) -> int:
    return _COMMIT_BYTES + len(group.encode()) + len(key[0].encode()) + len(commit.metadata.encode())
