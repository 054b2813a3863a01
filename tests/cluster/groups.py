"""Several workers of one group, as its control log shows them: who is in it, who leads, who owns which partition.

    group = Group(two_flows(source, target, "orders"), workers=3)
    with group:
        group.wait_until_assigned(24)
        dead = group.leader
        dead.kill()

The log is folded by mm2py's own rules; what was copied is judged by the checker alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from deploy.local.kafka import KafkaCluster
from mm2py.group.membership import GroupState
from mm2py.records.control_codec import decode
from mm2py.records.control_record import ControlRecord, Entry, TaskName
from tests.cluster.kafka_client import admin, read
from tests.cluster.running import ANSWER_S, DEADLINE_S, Mm2py, Value, one_way_properties, wait_until


def two_flows(
    source: KafkaCluster, target: KafkaCluster, topics: Mapping[str, str], **extra: Value
) -> dict[str, Value]:
    """Return a file with the flows ``A->B`` and ``C->B``, both from ``source``; ``topics`` is by source alias."""
    properties = one_way_properties(source, target) | extra
    properties |= {"clusters": "A,C,B", "C.bootstrap.servers": source.bootstrap, "C->B.enabled": True}
    return properties | {f"{alias}->B.topics": names for alias, names in topics.items()}


class Group:
    """Workers with one file; they start with the ``with`` block and end with it."""

    def __init__(self, target: KafkaCluster, properties: Mapping[str, Value], *, workers: int = 3) -> None:
        self.properties = dict(properties)
        self.log = f"mm2-cluster.{properties['mm2py.group']}.internal"
        self.workers: list[Mm2py] = []
        self._target = target
        self._first = workers
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for _ in range(self._first):
            self.start_another()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def start_another(
        self,
        *,
        environment: Mapping[str, str | None] | None = None,
        popen: Mapping[str, Any] | None = None,
        python: Path | None = None,
        **changes: Value,
    ) -> Mm2py:
        """Start one more worker, with other properties if wanted; the rest as for ``Mm2py``."""
        worker = Mm2py({**self.properties, **changes}, environment=environment, popen=popen, python=python)
        self._stack.enter_context(worker)
        self.workers.append(worker)
        return worker

    # What the control log says

    def entries(self) -> list[Entry]:
        """Return all that stands in the control log, if there is one; a record of another format fails the test."""
        found = []
        for message in read(self._target, self.log):
            kind, time_ms = message.timestamp()
            assert kind == TIMESTAMP_LOG_APPEND_TIME
            offset = message.offset()
            assert offset is not None
            found.append(Entry(offset, time_ms, decode(message.value(), where=f"{self.log} at {offset}")))
        return found

    def records(self, kind: type[ControlRecord]) -> list[ControlRecord]:
        return [entry.record for entry in self.entries() if isinstance(entry.record, kind)]

    def view(self) -> GroupState:
        """Return the group as it is now."""
        view = GroupState()
        for entry in self.entries():
            view.take(entry)
        return view

    def member_of(self, worker: Mm2py) -> str:
        """Return the id under which a worker joined last."""
        return str(worker.events("member.joined")[-1]["member"])

    def worker_of(self, member: str | None) -> Mm2py:
        """Return whose id that is or was. The group may know a member before its log has been read."""

        def joined() -> list[Mm2py]:
            return [one for one in self.workers if one.events("member.joined", member=member)]

        (found,) = wait_until(joined, f"a worker says that it joined as {member}")
        return found

    @property
    def leader(self) -> Mm2py:
        return self.worker_of(self.view().leader)

    def partitions(self, view: GroupState | None = None) -> dict[TaskName, str]:
        """Return who may copy which partition just now: owners that wait for nobody."""
        return {
            share: str(owned.member)
            for share, owned in (view or self.view()).owners.items()
            if share.is_partition and owned.member is not None and owned.waits_for is None
        }

    def wait_until_assigned(
        self, partitions: int, *, among: int | None = None, each: bool = True, deadline_s: float = DEADLINE_S
    ) -> dict[TaskName, str]:
        """Wait until so many partitions have owners that may copy, exactly so many workers, all alive.

        Args:
            each: every worker owns a partition. Few idle partitions do not tell: the flow's tasks that are not divided
                weigh as much as they do, so the worker that runs those may have no partition.
        """
        wanted = len([one for one in self.workers if one.alive]) if among is None else among
        found: dict[TaskName, str] = {}

        def assigned() -> bool:
            nonlocal found
            view = self.view()
            found = self.partitions(view)
            alive = {str(name) for name in view.members}
            return (
                len(alive) == wanted
                and view.leader is not None
                and len(found) == partitions
                and (set(found.values()) == alive if each else set(found.values()) <= alive)
                and not any(owned.waits_for for owned in view.owners.values())
                and not view.to_fence
            )

        try:
            wait_until(assigned, f"{partitions} partitions are assigned to {wanted} workers", deadline_s=deadline_s)
        except AssertionError as error:
            logs = "\n".join(worker.tail() for worker in self.workers)
            raise AssertionError(f"{error}\nThe control log says: {self.view()}\n{logs}") from None
        return found

    def log_leader(self) -> int:
        """Return which broker leads the control log."""
        return int(admin(self._target).list_topics(self.log, timeout=ANSWER_S).topics[self.log].partitions[0].leader)

    def assert_steady(self, *, but: tuple[Mm2py, ...] = ()) -> None:
        """No flow has failed anywhere, and no worker was evicted but those."""
        for worker in self.workers:
            assert not worker.events("flow.crashed"), worker.tail()
            if worker not in but:
                assert not worker.events("flow.failed"), worker.tail()
                assert not worker.events("group.rejoining"), worker.tail()
