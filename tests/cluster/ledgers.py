"""Ledgers as a topic on the target holds them, and their answers for every offset of a partition."""

from __future__ import annotations

from collections import defaultdict

from deploy.local.kafka import KafkaCluster
from mm2py.flow import ClusterAlias
from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.records.ledger_record import decode
from mm2py.topics.names import ledger_topic
from tests.checker.offset_mutants import Answers
from tests.checker.offsets import Answered
from tests.checker.pairs import Pairs
from tests.cluster.kafka_client import admin, read, topic_names
from tests.cluster.running import ANSWER_S


def ledgers_in(cluster: KafkaCluster, source_alias: str) -> dict[tuple[str, int], PartitionLedger]:
    """Return the ledgers that the flows from a source keep, by source topic and partition; none without a topic."""
    topic = ledger_topic(ClusterAlias(source_alias))
    found: defaultdict[tuple[str, int], PartitionLedger] = defaultdict(PartitionLedger)
    if topic in topic_names(cluster):
        partitions = admin(cluster).list_topics(topic, timeout=ANSWER_S).topics[topic].partitions
        for message in read(cluster, topic, sorted(partitions)):
            chunk = decode(message.key(), message.value())
            if chunk is not None:
                found[chunk.key.topic, chunk.key.partition].take(chunk)
    return dict(found)


def answers_of(ledger: PartitionLedger, pairs: Pairs) -> tuple[Answers, Answers]:
    """Return the answers for every offset: from source to target, and back."""
    forward = {offset: _said(ledger.forward(offset)) for offset in range(pairs.here.start, pairs.here.end + 1)}
    backward = {offset: _said(ledger.reverse(offset)) for offset in range(pairs.there.start, pairs.there.end + 1)}
    return forward, backward


def _said(answer: Answer) -> Answered:
    return Answered(answer.offset, answer.is_exact, answer.kind is AnswerKind.COPIED)
