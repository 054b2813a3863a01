"""What a flow says of offsets on real clusters, judged by the checker: all partitions of some topics at once.

Checkpoints, offset syncs and the ledger are decoded with mm2py's layouts. What is true comes from dumps of both logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from deploy.local.kafka import KafkaCluster
from mm2py.records import checkpoint
from tests.checker.dump import Reader
from tests.checker.ledger import Ledger
from tests.checker.offset_mutants import Answers
from tests.checker.offsets import Checkpointed, judge_checkpoints, judge_groups, judge_ledger, judge_syncs
from tests.checker.pairs import Pairs, pair_up
from tests.checker.verdict import Finding, Verdict
from tests.cluster.copies import answered
from tests.cluster.group_offsets import syncs_in
from tests.cluster.kafka_client import admin, read, topic_names
from tests.cluster.ledgers import answers_of, ledgers_in
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py

Place = tuple[str, int]
"""Topic and partition."""
SETTLED_S = 60.0 * PATIENCE
BACK_S = 180.0 * PATIENCE


@dataclass(frozen=True)
class Flow:
    """A flow with aliases of its own, and the topics of it that are judged."""

    source: KafkaCluster
    target: KafkaCluster
    source_alias: str
    target_alias: str
    topics: Sequence[str]
    sends: Ledger
    cleaned: Collection[str] = ()
    """Those of which a cleaner may have removed records on the source."""
    groups: Collection[str] = ()
    may_repeat: Collection[str] = ()
    """Topics whose ledger may have holes: a cleaner removed records that a crash had left behind the stored position.
    There a group may read again what the ledger's answer makes it read again. It may skip copies of records that the
    source itself has no more, and no others."""

    def remote(self, topic: str) -> str:
        return f"{self.source_alias}.{topic}"

    @property
    def remotes(self) -> list[str]:
        return [self.remote(topic) for topic in self.topics]

    # What both logs say

    def pairs(self) -> dict[Place, Pairs]:
        """Return the pairs of all partitions, by source topic and partition, as a read_committed flow copies them."""
        found: dict[Place, Pairs] = {}
        with (
            Reader(self.source.internal_bootstrap, read_committed=True) as source,
            Reader(self.target.internal_bootstrap, read_committed=True) as target,
        ):
            for topic in self.topics:
                remote, numbers = self.remote(topic), range(source.partitions(topic))
                there = answered(lambda remote=remote, numbers=numbers: target.bounds(remote, numbers))
                # A source that was killed has groups of twenty clients to take back first.
                here = answered(lambda topic=topic, numbers=numbers: source.bounds(topic, numbers), deadline_s=BACK_S)
                for number in numbers:
                    found[topic, number] = pair_up(
                        list(source.records(topic, number, *here[number])),
                        list(target.records(remote, number, *there[number])),
                        source_bounds=here[number],
                        target_bounds=there[number],
                        sends=self.sends.of(topic, number),
                        source_cleaned=topic in self.cleaned,
                    )
        return found

    # What the flow says

    def checkpoints(self) -> dict[Place, list[Checkpointed]]:
        """Return all checkpoints in the order of their topic, by source topic and partition."""
        topic = f"{self.source_alias}.checkpoints.internal"
        found: dict[Place, list[Checkpointed]] = {}
        for message in read(self.target, topic) if topic in topic_names(self.target) else ():
            one = checkpoint.decode(message.key(), message.value())
            place = (one.topic.removeprefix(f"{self.source_alias}."), one.partition)
            found.setdefault(place, []).append(Checkpointed(one.group, one.upstream_offset, one.downstream_offset))
        return found

    def syncs(self) -> dict[Place, list[tuple[int, int]]]:
        """Return all offset syncs in the order of their topic."""
        found: dict[Place, list[tuple[int, int]]] = {}
        for one in syncs_in(self.source, f"mm2-offset-syncs.{self.target_alias}.internal"):
            found.setdefault((one.topic, one.partition), []).append((one.upstream_offset, one.downstream_offset))
        return found

    def commits(self, cluster: KafkaCluster) -> dict[str, dict[Place, int]]:
        """Return what each group has committed on one of the two clusters, by source topic and partition."""
        return {group: self._commits(cluster, group) for group in self.groups}

    def _commits(self, cluster: KafkaCluster, group: str) -> dict[Place, int]:
        prefix = "" if cluster is self.source else f"{self.source_alias}."
        asked = admin(cluster).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        at: list[TopicPartition] = asked[group].result(ANSWER_S).topic_partitions
        places = {(one.topic.removeprefix(prefix), one.partition): one.offset for one in at if one.offset >= 0}
        return {place: offset for place, offset in places.items() if place[0] in self.topics}

    # Judgement

    def findings(self) -> list[Finding]:
        """Judge I6, I7, the groups of I12, and L, with both logs as they are now."""
        pairs, checkpoints, syncs = self.pairs(), self.checkpoints(), self.syncs()
        stood, stand = self.commits(self.source), self.commits(self.target)
        ledgers = ledgers_in(self.target, self.source_alias)
        found: list[Finding] = []
        for place, all_pairs in pairs.items():
            verdict = Verdict(*place, max_findings=5)
            at, ledger, exact = _at(stood, place), ledgers.get(place), place[0] not in self.may_repeat
            again: dict[str, int] = {}
            ours = all_pairs if exact else all_pairs.without_gone
            if ledger is None:
                verdict.add("L", "the topic has no ledger of this partition", source_offset=None, target_offset=None)
            else:
                forward, backward = answers_of(ledger, ours)
                judge_ledger(forward, backward, ours, verdict, exact=exact)
                again = {} if exact else {group: _repeats(offset, forward, ours) for group, offset in at.items()}
            judge_syncs(syncs.get(place, ()), ours, verdict)
            judge_checkpoints(checkpoints.get(place, ()), ours, verdict, may_repeat=again)
            judge_groups(at, _at(stand, place), ours, verdict, may_repeat=again)
            found += verdict.findings
        return found

    def assert_exact(self, run: Mm2py, *, deadline_s: float = SETTLED_S) -> None:
        """Wait until everything that is said of offsets is exact, and fail with what is not."""
        last: list[Finding] = []

        def exact() -> bool:
            last[:] = self.findings()
            return not last

        wait_or_tell(run, exact, lambda: "\n".join(map(str, last)), deadline_s=deadline_s)


def wait_or_tell(run: Mm2py, condition: Callable[[], bool], tell: Callable[[], str], *, deadline_s: float) -> None:
    """Wait until a condition holds; fail with what there is to tell about it."""
    try:
        run.wait_until(condition, "what is said of offsets is exact", deadline_s=deadline_s)
    except AssertionError as error:
        error.add_note(tell())
        raise


def _at(commits: Mapping[str, Mapping[Place, int]], place: Place) -> dict[str, int]:
    return {group: offsets[place] for group, offsets in commits.items() if place in offsets}


def _repeats(offset: int, answers: Answers, pairs: Pairs) -> int:
    """Return how many records a group reads again that goes on where the ledger says."""
    answer = answers.get(offset)
    return 0 if answer is None or answer.offset is None else pairs.cost(offset, answer.offset).read_again
