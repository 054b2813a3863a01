"""What the source connector refuses to copy. Each error names exactly what is refused, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mm2py.command_lines import FILE, OTHER_FILE
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py_connectors.source.going_on import DOCS, behind_what_is_there, file_that_knows, requests


class FlowRefused(Mm2Error):
    """The whole flow must not run in its present state."""


class ExactlyOnceImpossible(FlowRefused):
    """``exactly.once.source.support=enabled``, and a producer cannot be fenced."""

    def __init__(self, flow: Flow, why: str) -> None:
        super().__init__(
            f"Flow {flow} is refused: exactly.once.source.support=enabled cannot be kept. {why}",
            remedy=f"Grant WRITE and DESCRIBE on transactional ids with prefix mm2py- on {flow.target}, let"
            f" __transaction_state be created there, or set {flow.target}.exactly.once.source.support=disabled.",
        )


class CopyUncertain(FlowRefused):
    """``exactly.once.source.support=enabled``, and it cannot be found out what MirrorMaker 2 has copied already."""

    is_mended_over_rest = True

    def __init__(self, flow: Flow, topic: str, partition: int, why: str) -> None:
        super().__init__(
            f"Flow {flow} is refused: exactly.once.source.support=enabled cannot be kept. How far MirrorMaker 2 has"
            f" copied {topic}-{partition} behind its last position cannot be told: {why}.",
            remedy=f"Go on behind what is there: {requests(flow, topic, partition)}. N is the offset of the last record"
            f" on {flow.source} that MirrorMaker 2 has copied: compare the ends of both topics, see {DOCS}. If N is"
            f" not known, set {flow.target}.exactly.once.source.support=disabled for the first start: nothing is left"
            " out then, and some records of that partition may be copied twice.",
        )


class OneCluster(FlowRefused):
    """Two aliases lead to the same cluster: the flow would copy a cluster to itself."""

    def __init__(self, flow: Flow, cluster_id: str) -> None:
        super().__init__(
            f"Flow {flow} is refused: {flow.source} and {flow.target} are the same cluster, {cluster_id}.",
            remedy="Correct one of the two bootstrap.servers.",
        )


class AnotherSource(FlowRefused):
    """The other workers of the group copy the flow from another cluster."""

    def __init__(self, flow: Flow, group: str, *, here: str, there: str) -> None:
        super().__init__(
            f"Flow {flow} is refused: {flow.source} is cluster {here} here, and cluster {there} for the workers of"
            f" group {group} that copy it.",
            remedy=f"Let {flow.source}.bootstrap.servers name the same cluster for all of them. Where that one has been"
            " replaced by another, stop all of them first.",
        )


def refuse_another_source(flow: Flow, group: str, *, here: str | None, there: str | None) -> None:
    """Refuse a source that is not the group's, if both ids are known. Raises: AnotherSource."""
    if here is not None and there is not None and here != there:
        raise AnotherSource(flow, group, here=here, there=there)


def refuse_wrong_source(flow: Flow, group: str, here: str | None, target: str | None, *, there: str | None) -> None:
    """Refuse a source by its cluster id, as far as the ids are known.

    Args:
        here: of the source, as this worker sees it.
        target: of the target.
        there: of the source, as the other workers of the group see it.
    Raises:
        OneCluster, AnotherSource: see there.
    """
    if here is not None and here == target:
        raise OneCluster(flow, here)
    refuse_another_source(flow, group, here=here, there=there)


class TableUnusable(FlowRefused):
    """An internal topic would lose what it must keep, or cannot be created."""

    def __init__(self, flow: Flow, topic: str, keeps: str, why: str, *, remedy: str) -> None:
        super().__init__(
            f"Flow {flow} is refused: {topic} on {flow.target} cannot keep {keeps}, {why.rstrip('.')}.", remedy=remedy
        )
        self.why = why


class TopicRefused(Mm2Error):
    """One topic of a flow must not be copied in its present state; the others are copied."""

    event = "topic.refused"


class TargetNotEmpty(TopicRefused):
    """It is not known which records of the remote topic are ours: copying could repeat or mix records."""

    def __init__(self, flow: Flow, topic: str, remote: str, ends: Mapping[int, int]) -> None:
        """``ends``: where those remote partitions end, by number."""
        shown = sorted(ends)
        if remote == topic:
            keep = "Do not delete it: it may hold records that are nowhere else. "
            last = f" If it holds other records than {topic} on {flow.source}, let topics.exclude leave it out."
        else:
            keep = ""
            last = (
                f" If none of the records there came from {topic}, pass --allow-recopy '{flow}:{topic}' to each worker:"
                " it is copied from its first record on, behind what is there."
            )
        super().__init__(
            f"Topic {topic} of {flow} is refused: no position is stored for partition(s) {_few(shown)}, "
            f"and {remote} on {flow.target} is not empty there.",
            remedy=keep + behind_what_is_there(flow, topic, remote, shown[0], ends[shown[0]]) + last,
        )


class Recreated(TopicRefused):
    """The stored position of a topic belongs to another source topic or remote topic, such as an earlier one of that
    name."""

    def __init__(self, flow: Flow, topic: str, remote: str, what: str, *, partition: int = 0) -> None:
        """``partition``: one of those affected."""
        super().__init__(
            f"Topic {topic} of {flow} is refused: {what}, so the stored position means nothing.",
            remedy=f"If {remote} on {flow.target} holds its records already, go on behind them:"
            f" {requests(flow, topic, partition)}; likewise for each partition. N is the offset of the last"
            f" record on {flow.source} that is there: see {DOCS}. Otherwise mm2py gaps FILE accept '{flow}:{topic}'"
            " copies it from its first record on.",
        )


class NoPosition(TopicRefused):
    """``auto.offset.reset=none`` forbids to choose a start."""

    def __init__(self, flow: Flow, topic: str) -> None:
        super().__init__(
            f"Topic {topic} of {flow} is refused: no position is stored and auto.offset.reset is none.",
            remedy=f"Set {flow.source}.consumer.auto.offset.reset to earliest or latest.",
        )


class GroupStartsUnknown(TopicRefused):
    """The consumer group at whose commits the copy begins cannot be used now."""

    def __init__(self, flow: Flow, topic: str, group: str, why: str) -> None:
        super().__init__(
            f"Topic {topic} of {flow} is refused: it begins where group {group} of {flow.source} stands"
            f" (starting.offsets.group), and {why}.",
            remedy=f"Stop the consumers of {group}, and let mm2py DESCRIBE it; the topic then starts by itself. Or"
            f" remove {flow}.starting.offsets.group.",
        )


class SeveralFlows(TopicRefused):
    """Several flows would write to one remote topic."""

    def __init__(self, flow: Flow, topic: str, remote: str, others: Iterable[Flow]) -> None:
        super().__init__(
            f"Topic {topic} of {flow} is refused: {', '.join(map(str, sorted(others)))} also leads into {remote}.",
            remedy="Exclude the topic from all but one of the flows, or set many.to.one=true on each of them: "
            "their records then mix, and each is copied at least once.",
        )


class SeveralTopics(TopicRefused):
    """Rules of ``topics.rename`` give two topics of a flow one remote topic."""

    def __init__(self, flow: Flow, topic: str, remote: str, other: str) -> None:
        super().__init__(
            f"Topic {topic} of {flow} is refused: {other} is copied into {remote}, and topics.rename gives both that"
            " name.",
            remedy=f"Put a rule for {topic} in front in topics.rename, with another name, or exclude it.",
        )


class RemoteNameChanged(TopicRefused):
    """A topic was copied under one name, and ``topics.rename`` gives it another one now."""

    def __init__(self, flow: Flow, topic: str, before: str, now: str) -> None:
        super().__init__(
            f"Topic {topic} of {flow} is refused: its copy is {before} on {flow.target}, and by topics.rename it would"
            f" be {now} from now on.",
            remedy=f"Put the rules back as they were, or start another copy in {now} from its first record on: pass"
            f" --allow-recopy '{flow}:{topic}' to each worker. {before} stays as it is.",
        )


class RenamedCopyMissing(TopicRefused):
    """MirrorMaker 2 has copied a topic, and nothing of it is under the name that ``topics.rename`` gives it."""

    def __init__(self, flow: Flow, topic: str, remote: str, partition: int) -> None:
        super().__init__(
            f"Topic {topic} of {flow} is refused: MirrorMaker 2 has copied records of partition {partition}, and"
            f" {remote} on {flow.target}, whose name topics.rename gives, has none.",
            remedy="Take the rule away: then it goes on in MirrorMaker 2's copy. Or copy it from its first record on:"
            f" {requests(flow, topic, partition, 0)}; likewise for each partition.",
        )


class RemoteNameIllegal(TopicRefused):
    """Kafka does not accept the name of the remote topic, or another topic needs it."""

    def __init__(self, flow: Flow, topic: str, remote: str, problem: str) -> None:
        super().__init__(
            f"Topic {topic} of {flow} is refused: its remote name {_short(remote)} cannot be, {problem}.",
            remedy="Exclude the topic, shorten the alias, use the identity replication policy, or change its name in"
            " topics.rename.",
        )


class RemoteTopicTooNarrow(TopicRefused):
    """The remote topic has fewer partitions than its upstream topic: some records have nowhere to go."""

    event = "topic.too_narrow"

    def __init__(
        self, topic: str, *, upstream_partitions: int, remote_partitions: int, why: str, remedy: str | None = None
    ) -> None:
        granted = f"Grant mm2py ALTER on {topic}, or add the partitions by hand; the others are copied meanwhile."
        super().__init__(
            f"Remote topic {topic} has {remote_partitions} partitions, its upstream topic {upstream_partitions}: {why}",
            remedy=remedy or granted,
        )
        self.remote_partitions = remote_partitions
        first, last = remote_partitions, upstream_partitions - 1
        self.left_out = str(first) if first == last else f"{first}-{last}"
        """The partitions that are not copied."""


class TooManyPartitions(TopicRefused):
    """The source has more partitions than this flow may create on the target: a source must not fill the target up."""

    def __init__(self, flow: Flow, topic: str, partitions: int, *, most: int) -> None:
        super().__init__(
            f"Topic {topic} of {flow} is refused: with its {partitions} partition(s) the flow would have more on"
            f" {flow.target} than remote.partitions.max={most}.",
            remedy="Raise remote.partitions.max, or let topics.exclude leave out what need not be copied.",
        )


class NotPermitted(TopicRefused):
    """A right is missing, or the cluster refuses what must be done for a topic."""

    def __init__(self, flow: Flow, topic: str, what: str, remedy: str) -> None:
        super().__init__(f"Topic {topic} of {flow} is refused: {what}", remedy=remedy)


class Undecided(TopicRefused):
    """A filter's pattern found no answer in time."""

    def __init__(self, flow: Flow, topic: str, error: Mm2Error) -> None:
        super().__init__(f"Topic {topic} of {flow} is refused: {error.what}", remedy=error.remedy)


class WouldComeBack(TopicRefused):
    """A reverse flow copies this topic under the same name: its records would come back to where they came from."""

    def __init__(
        self, flow: Flow, topic: str, came_by: Flow, group: str, why: str = "", remedy: str = "", *, has_begun: bool
    ) -> None:
        """Make one.

        Args:
            came_by: the other flow, as its own file calls it; ``group`` runs it, if that is known.
            why: why the other flow has not ended; the topic may be copied when it has.
            has_begun: the other flow has copied the topic; otherwise both flows would begin.
        """
        reverse = f"{came_by} of group {group}" if group else str(came_by)
        what = f"flow {reverse} copies it from {flow.target} to {flow.source} under the same name"
        if not has_begun:
            what = f"flow {reverse} selects it too, and leads from {flow.target} to {flow.source} under the same name"
        exclude = "Exclude it from one of the two flows."
        is_known = file_that_knows(flow, came_by) == FILE
        turn = (
            f" To turn the direction round, stop the workers of flow {reverse}. Then:"
            f" {behind_what_is_there(flow, topic, topic, 0, came_by=came_by)} END is where partition 0 of {topic} on"
            f" {flow.target} ends." + ("" if is_known else f" {OTHER_FILE} is the file of flow {reverse}.")
        )
        super().__init__(
            f"Topic {topic} of {flow} is refused: {what}. Its records would come back"
            + (f", and {why}." if why else "."),
            remedy=remedy or exclude + (turn if has_begun else ""),
        )


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:60]}..."


def _few(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown if len(numbers) <= 8 else f"{shown} and {len(numbers) - 8} more"
