"""Whether the ledger of a copy is true: each of its answers is compared with both logs of two cluster models.

Records are told apart by their content, so each must have one of its own; records that look alike are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable

from mm2py.flow import ClusterAlias
from mm2py.offsets.answers import AnswerKind
from mm2py.offsets.ledger import EntryOutOfOrder
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.records.ledger_record import decode
from mm2py.topics.names import ledger_topic
from tests.fakes.broker.broker_model import ClusterModel


def ledgers_in(
    cluster: ClusterModel, source_alias: str = "A", *, may_contradict: bool = False
) -> dict[tuple[str, int], PartitionLedger]:
    """Return what the ledger topic says, by source topic and partition.

    Args:
        may_contradict: go on with a chunk that contradicts an earlier one, as a worker does that reads it and logs
            ``ledger.contradicted``. That happens where a target has lost acknowledged records; and where the last
            record copied before a crash was quarantined: it is quarantined again, behind the marker of the fence.

    Raises:
        EntryOutOfOrder: a chunk contradicts an earlier one, and may not.
    """
    found: dict[tuple[str, int], PartitionLedger] = defaultdict(PartitionLedger)
    name = str(ledger_topic(ClusterAlias(source_alias)))
    if name not in cluster.topics:
        return {}
    for number in range(len(cluster.topics[name].partitions)):
        for record in cluster.records(name, number):
            chunk = decode(record.key, record.value)
            if chunk is not None:
                try:
                    found[chunk.key.topic, chunk.key.partition].take(chunk)
                except EntryOutOfOrder:
                    if not may_contradict:
                        raise
    return dict(found)


def wrong_answers(
    source: ClusterModel,
    target: ClusterModel,
    topic: str,
    remote: str,
    *,
    committed: bool,
    is_over: bool = False,
    may_contradict: bool = False,
) -> list[str]:
    """Return which answers of a topic's ledgers are not true.

    An exact answer must be the target offset of a record's newest copy; or, if the record has none, lie behind the
    copies before it and not behind those that follow. An answer that is not exact may be lower.

    Args:
        is_over: all was copied more than a second ago, so the ledger must know it.
        may_contradict: see ``ledgers_in``.
    """
    ledgers = ledgers_in(target, may_contradict=may_contradict)
    wrong: list[str] = []
    for number in range(len(source.topics[topic].partitions)):
        ledger = ledgers.get((topic, number), PartitionLedger())
        if remote not in target.topics:
            continue
        records = {one.offset: one.content for one in source.records(topic, number, committed=committed)}
        copies = [(one.offset, one.content) for one in target.records(remote, number)]
        wrong += [f"{topic}-{number} {line}" for line in _wrong(ledger, records, copies, is_over=is_over)]
        if is_over and copies and not ledger.ledgers:
            wrong.append(f"{topic}-{number} has no ledger")
    return wrong


def _wrong(
    ledger: PartitionLedger, source: dict[int, object], copies: list[tuple[int, object]], *, is_over: bool
) -> Iterable[str]:
    alike = {content for content, times in Counter(map(repr, source.values())).items() if times > 1}
    newest = {repr(content): offset for offset, content in copies}
    pairs = {
        offset: newest[repr(content)]
        for offset, content in source.items()
        if repr(content) in newest and repr(content) not in alike
    }
    places = sorted(pairs.values())
    known = sorted(pairs)
    for offset in sorted({one + near for one in source for near in (-1, 0, 1) if one + near >= 0}):
        answer = ledger.forward(offset)
        if answer.offset is None:
            if is_over and answer.kind is AnswerKind.NOT_YET and offset in pairs:
                yield f"{offset}: no answer yet, and its copy is at {pairs[offset]}"
            continue
        at = bisect_left(known, offset)
        following = pairs[known[at]] if at < len(known) else None
        if following is None:
            continue
        reads_again = bisect_left(places, answer.offset) < bisect_left(places, following)
        if answer.offset > following or (answer.is_exact and reads_again):
            yield f"{offset}: {answer}, and the next copied record {known[at]} is at {following}"
    records = sorted(source)
    for offset, target in pairs.items():
        answer = ledger.reverse(target)
        if answer.offset is None:
            continue
        is_exact = answer.offset == offset
        if answer.kind is AnswerKind.END:  # what was copied ends there, and a marker of a transaction may follow
            is_exact = bisect_left(records, answer.offset) == bisect_left(records, offset)
        if answer.offset > offset or (answer.is_exact and not is_exact):
            yield f"reverse {target}: {answer}, and it is the copy of {offset}"
