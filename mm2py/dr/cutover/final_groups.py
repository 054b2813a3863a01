"""The consumer groups of a run: judged at the ends where producers are fenced, committed on the other cluster.

``mm2py/dr/groups`` judges one group. Here is what a run adds: which groups and topics take part, and that a group which
reads on the other cluster already stays where it is there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from mm2py.dr.cutover.drained import topic_of
from mm2py.dr.cutover.pair import CutoverOptions, CutoverRefused, RecoveryPair
from mm2py.dr.groups.group_inquiry import GroupMoveInquiry
from mm2py.dr.groups.judgement import MoveState
from mm2py.dr.groups.moving import JudgedGroup, commit_flow, judge_flow
from mm2py.dr.states import PartitionOffsets, RecoveryFacts
from mm2py.flow import Flow, TopicName
from mm2py.kafka.write_gate import gated_alone
from mm2py.logs import make_logger
from mm2py.offsets.group_sync import IDLE
from mm2py.topics.names import ReplicationPolicy


class FinalGroups:
    """The groups of one run. Each look reads only what is new in the ledgers."""

    def __init__(self, pair: RecoveryPair, flow: Flow, options: CutoverOptions) -> None:
        self._pair = pair
        self._flow = flow
        self._options = options
        self._inquiry = GroupMoveInquiry(
            pair.settings[flow],
            pair.brokers[flow.source],
            pair.brokers[flow.target],
            make_logger("warning", "text"),
            is_back=False,
        )

    async def judged(self, ends: PartitionOffsets, *, left_topics: Collection[str]) -> list[JudgedGroup]:
        """Return all groups that take part, sorted by name. Raises: as ``GroupMoveInquiry.look``."""
        at = {topic_of(partition): end for partition, end in ends.items()}
        wanted, left = self._options.groups, self._options.left_groups
        found = await judge_flow(self._inquiry, at, left_groups=left, left_topics=left_topics)
        unknown = [name for name in (*wanted, *left) if name not in {one.move.group for one in found}]
        if unknown:
            raise CutoverRefused(
                f"{self._flow.source} has no group {unknown[0]} that has committed anything in what {self._flow}"
                " copies.",
                remedy=f"See mm2py groups FILE '{self._flow}'.",
            )
        chosen = [one for one in found if not wanted or one.move.group in wanted]
        return [as_there(one) for one in chosen]

    async def committed(self, found: Sequence[JudgedGroup]) -> RecoveryFacts:
        """Commit on the other cluster where each group goes on. Raises: as ``commit_flow``."""
        brokers = gated_alone(self._pair.brokers[self._flow.target], self._pair.clock)
        await commit_flow(self._inquiry, found, brokers)
        return facts_of(found)


def as_there(one: JudgedGroup) -> JudgedGroup:
    """Return a group that reads on the other cluster already as left. Pure.

    The story: a switch hook sends a group back and forth, or does only a part. The group has members there and none
    here, and it has committed there at least what it would be given: nothing is read again, and nothing is skipped.
    """
    facts, move = one.facts, one.move
    has_left = facts.is_idle and facts.state_there not in {"", IDLE}
    is_behind = any(
        part.committed_there is None or place.goes_on_at is None or part.committed_there < place.goes_on_at
        for part, place in zip(facts.partitions, move.partitions, strict=True)
    )
    if move.state is not MoveState.REFUSED or not has_left or is_behind:
        return one
    return one._replace(move=replace(move, state=MoveState.LEFT, why=f"it reads on {move.there} already", remedy=""))


def waiting(found: Iterable[JudgedGroup]) -> list[str]:
    """Return which groups are not final yet, and why, in words."""
    return [f"group {one.move.group}: {one.move.why}" for one in found if one.move.state is MoveState.WAITS]


def refuse_groups(found: Iterable[JudgedGroup]) -> None:
    """Raises: CutoverRefused, if a group can never move as it is."""
    for one in found:
        if one.move.state is MoveState.REFUSED:
            raise CutoverRefused(
                f"Group {one.move.group} cannot move to {one.move.there}: {one.move.why}.",
                remedy=f"{one.move.remedy} Or leave it: --leave-group {one.move.group}.".strip(),
            )


def facts_of(found: Iterable[JudgedGroup]) -> RecoveryFacts:
    """Return where the groups go on, and where the copies end. Partitions have their names on the source."""
    groups: dict[str, PartitionOffsets] = {}
    ends: dict[str, int] = {}
    for facts, move in found:
        if move.state is not MoveState.READY:
            continue
        groups[move.group] = {
            f"{place.topic}-{place.partition}": place.goes_on_at
            for place in move.partitions
            if place.goes_on_at is not None
        }
        ends |= {part.name: part.end_there for part in facts.partitions}
    return RecoveryFacts(target_ends=ends, groups=groups)


def left_topics(
    there: Collection[str],
    *,
    moved: Collection[str],
    copied: Collection[str],
    policy: ReplicationPolicy,
    flow: Flow,
) -> frozenset[str]:
    """Return the topics of the source in which groups stay where they are, because only some topics move. Pure.

    Args:
        there: all topics of the run's source.
        moved: those that move, by their names where producers write.
        copied: all that the flow copies from producers.
    """
    own = frozenset(copied) - frozenset(moved)
    copies = {
        topic
        for topic in there
        if not policy.keeps_names
        and policy.topic_source(TopicName(topic)) == flow.target
        and policy.original_topic(TopicName(topic)) not in moved
    }
    return own | copies


def moved_text(facts: Mapping[str, PartitionOffsets]) -> str:
    """Return how many groups and offsets were committed, in words."""
    return f"{len(facts)} group(s), {sum(map(len, facts.values()))} offset(s)"
