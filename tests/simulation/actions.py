"""Changes the clusters during a run, and remembers each change for the judge."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import assert_never

from tests.fakes.broker.broker_model import ClusterModel
from tests.simulation.history import PartitionHistory, Traffic, is_led
from tests.simulation.schedule import Action, ActionKind, TopicPlan

_CUT_MOST = 20


class ClusterActions:
    """Carries out actions. One that is impossible at that moment (no leader, nothing to delete) is left out."""

    def __init__(
        self,
        source: ClusterModel,
        target: ClusterModel,
        traffic: Traffic,
        topics: dict[str, TopicPlan],
        counts: Counter[str],
    ) -> None:
        self._source = source
        self._target = target
        self._traffic = traffic
        self._topics = topics
        self._counts = counts

    def do(self, action: Action) -> None:
        plan = self._topics[action.topic]
        number = int(action.where * len(self._source.topics[plan.name].partitions))
        self._counts[action.kind.value] += self._do(action, plan, number)

    def _do(self, action: Action, plan: TopicPlan, number: int) -> bool:
        history = self._traffic.history[plan.name, number]
        remote = self._target.topics.get(plan.remote)
        copied = remote is not None and number < len(remote.partitions)
        match action.kind:
            case ActionKind.SOURCE_CUT:
                return not (plan.compacted or plan.transactions) and self._cut_source(action, plan, number, history)
            case ActionKind.TARGET_CUT:
                return copied and not plan.compacted and self._cut_target(action, plan, number, history)
            case ActionKind.SOURCE_DELETE:
                return copied and not plan.compacted and self._delete_source(action, plan, number)
            case ActionKind.TARGET_DELETE:
                return copied and not plan.compacted and self._delete_target(action, plan, number, history)
            case ActionKind.GROW:
                wanted = len(self._source.topics[plan.name].partitions) + 1 + int(action.how_much * 3)
                self._source.add_partitions(plan.name, wanted, visible_at_once=False)
                return True
            case ActionKind.COMPACT:
                return plan.compacted and self._compact(action, plan)
            case ActionKind.LIMIT:
                if remote is not None:
                    limit = str(int(500 * 200**action.how_much))
                    self._target.configure_topic(plan.remote, {"max.message.bytes": limit})
                return remote is not None
            case ActionKind.MOVE_ALL:
                self._move_all()
                return True
            case ActionKind.CUT_OFF:
                return self._cut_off(action)
            case _:
                assert_never(action.kind)

    def _cut_source(self, action: Action, plan: TopicPlan, number: int, history: PartitionHistory) -> bool:
        found = self._source.partition(plan.name, number)
        to_offset = found.log.end_offset - 1 - int(action.how_much * _CUT_MOST)
        if history.was_cut or not is_led(self._source, plan.name, number) or to_offset <= found.log.log_start_offset:
            return False
        history.before_cut = history.in_order(committed=False)
        self._source.truncate(plan.name, number, to_offset)
        history.gone = [record for record in history.before_cut if record.offset >= found.log.end_offset]
        for record in history.gone:
            del history.records[record.offset]
        history.was_cut = True
        return True

    def _cut_target(self, action: Action, plan: TopicPlan, number: int, history: PartitionHistory) -> bool:
        found = self._target.partition(plan.remote, number)
        to_offset = found.high_watermark - 1 - int(action.how_much * _CUT_MOST)
        if history.target_was_cut or not is_led(self._target, plan.remote, number):
            return False
        if to_offset <= found.log.log_start_offset:
            return False
        before = [*history.target_deleted, *found.log.records(found.log.end_offset, committed=False)]
        self._target.truncate(plan.remote, number, to_offset)
        end = found.log.end_offset  # whole batches are removed, so this may be below what was deleted
        history.target_cut = [record for record in before if record.offset >= end]
        history.target_deleted = [record for record in history.target_deleted if record.offset < end]
        history.target_was_cut = True
        return True

    def _delete_source(self, action: Action, plan: TopicPlan, number: int) -> bool:
        found = self._source.partition(plan.name, number)
        start = found.log.log_start_offset
        upto = start + int(action.how_much * (found.high_watermark - start + 1))
        if upto <= start or not is_led(self._source, plan.name, number) or not self._has_copies(plan, number):
            return False
        self._source.delete_records(plan.name, number, upto)
        return True

    def _delete_target(self, action: Action, plan: TopicPlan, number: int, history: PartitionHistory) -> bool:
        found = self._target.partition(plan.remote, number)
        start = found.log.log_start_offset
        upto = start + int(action.how_much * (found.high_watermark - start + 1))
        if upto <= start or not is_led(self._target, plan.remote, number):
            return False
        upto = min(upto, found.high_watermark)
        history.target_deleted += found.log.records(upto, committed=False)
        history.target_was_emptied |= all(batch.control for batch in found.log.from_offset(upto, found.log.end_offset))
        self._target.delete_records(plan.remote, number, upto)
        return True

    def _has_copies(self, plan: TopicPlan, number: int) -> bool:
        """Records deleted before the copy of a partition started are no loss of the copy, and are not reported."""
        return self._target.partition(plan.remote, number).high_watermark > 0

    def _compact(self, action: Action, plan: TopicPlan) -> bool:
        self._source.compact(plan.name)
        if action.how_much > 0.5 and plan.remote in self._target.topics:
            self._target.compact(plan.remote)
        return True

    def _move_all(self) -> None:
        for cluster in (self._source, self._target):
            for topic in cluster.topics.values():
                for partition in topic.partitions:
                    if is_led(cluster, topic.name, partition.index):
                        cluster.move_leader(topic.name, partition.index)

    def _cut_off(self, action: Action) -> bool:
        """Let no packet reach a broker for some seconds."""
        cluster = self._source if action.where < 0.5 else self._target
        node = 1 + int(action.how_much * len(cluster.nodes))
        if not cluster.nodes[node].up or not cluster.nodes[node].reachable:
            return False
        cluster.cut_broker(node)
        asyncio.get_running_loop().call_later(1.0 + 14.0 * action.how_much, partial(cluster.join_broker, node))
        return True
