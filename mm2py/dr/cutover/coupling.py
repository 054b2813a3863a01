"""Topics that transactions couple: the same producer has written to them in transactional batches.

Readers of committed records see a transaction whole, or not at all. If only some of its topics move, later transactions
would be torn apart: a part on each cluster. Brokers remember the producers of each partition for a day
(``producer.id.expiration.ms``), and tell their ids. So a coupling that is found is real. One that is not found proves
nothing: the producer may have been quiet for longer, or have a new id since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from mm2py.dr.fence.facts import SeenTransaction
from mm2py.flow import Flow
from mm2py.kafka.port import TopicPartition
from mm2py.kafka.producer.fencing import PREFIX
from mm2py.kafka.producer.transactions import ActiveProducer


class Coupling(NamedTuple):
    """A topic that does not move, and one that does, to which the same producer writes in transactions."""

    topic: str
    """It does not move."""
    moves: str
    producer: str
    """By its transactional id, if a coordinator still lists it; else by its number."""

    def __str__(self) -> str:
        return f"{self.topic} and {self.moves} together ({self.producer})"


def couplings(
    moved: Collection[str],
    producers: Mapping[TopicPartition, Sequence[ActiveProducer]],
    listed: Iterable[SeenTransaction],
) -> tuple[Coupling, ...]:
    """Return each topic that transactions couple with one that moves, and does not move itself. Pure.

    Args:
        moved: the topics that move.
        producers: of all topics that are looked at, by partition.
        listed: the transactional ids that the cluster tells. mm2py itself writes no transactions, but its fences leave
            markers: its producers are left out.
    """
    names = {one.producer_id: one.transactional_id for one in listed}
    writes: dict[int, set[str]] = {}
    for (topic, _), found in producers.items():
        for one in found:
            if names.get(one.producer_id, "").startswith(PREFIX):
                continue
            if one.coordinator_epoch >= 0 or one.txn_start_offset >= 0:  # it has, or had, a transaction there
                writes.setdefault(one.producer_id, set()).add(topic)
    coupled: dict[str, Coupling] = {}
    for producer_id, topics in sorted(writes.items()):
        moving = sorted(topics.intersection(moved))
        name = names.get(producer_id)
        producer = f"producer id {producer_id}" if name is None else f"transactional id {name}"
        for topic in topics.difference(moved) if moving else ():
            coupled.setdefault(topic, Coupling(topic, moving[0], producer))
    return tuple(coupled[topic] for topic in sorted(coupled))


def refusal_text(one: Coupling, flow: Flow) -> str:
    """Return why a run must not begin without the word of an operator, with its way out."""
    return (
        f"Transactions write to {one}, and {one.topic} does not move: behind the switch a part of them would be on"
        f" {flow.source} still. Move it as well (--topics, and {flow}.topics), or accept it: --accept-coupled."
    )
