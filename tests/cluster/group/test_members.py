"""Workers of one group on real brokers, without connectors: joined, led, killed, fenced, and gone on from."""

from __future__ import annotations

import asyncio
import io
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from deploy.local.kafka import KafkaCluster
from mm2py.clock import SystemClock
from mm2py.config.settings import GroupSettings
from mm2py.connector import Side
from mm2py.flow import ClusterAlias, parse_flow
from mm2py.group.election.backend import LogElection
from mm2py.group.group import Group
from mm2py.group.leader_loop import GroupContext
from mm2py.group.member import Member
from mm2py.group.ownership import Ownership
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.producer.incarnation import OwnProducer
from mm2py.kafka.write_gate import IncarnationEnded
from mm2py.logs import make_logger
from mm2py.records.control_record import MemberId
from tests.cluster import kafka_client, running
from tests.cluster.running import paused

FLOW = parse_flow("A->B")
SESSION_S = 3.0
BEAT_S = 0.5
DAY_MS = 86_400_000


class GroupOfOne(Group):
    """A worker's part in the group, for a flow without connectors."""

    def __init__(self, worker: Worker, name: str) -> None:
        settings = GroupSettings(ClusterAlias("B"), name, SESSION_S, BEAT_S, "log", None)
        parts = {"clock": worker.clock, "rng": worker.rng, "log": worker.log}
        self._worker = worker
        self._context = GroupContext(
            settings, worker.cluster, DAY_MS, lambda _: [f"{name}-offsets", f"{name}-status"], **parts
        )
        target = Side(settings.target, worker.cluster, lambda: asyncio.sleep(0, None))
        super().__init__(settings, target, (), {}, name=worker.name, **parts)

    async def new_member(self, member_id: MemberId) -> Member:
        joined = replace(self._joined, member=member_id, flows=(FLOW,))
        self._worker.members.append(Member(joined, LogElection(), self._context))
        return self._worker.members[-1]


class Worker:
    """One process, as far as brokers can tell."""

    def __init__(self, kafka: KafkaCluster, number: int, group: str, log_text: io.StringIO) -> None:
        self.rng = random.Random(f"{group} {number}")
        self.clock = SystemClock()
        self.members: list[Member] = []
        places = [(host, int(port)) for host, port in (at.split(":") for at in kafka.bootstrap.split(","))]
        self.cluster = Cluster("B", places, rng=self.rng, client_id=f"worker-{number}")
        self.name = f"w{number}"
        self.log = make_logger("info", "text", log_text)
        self.group = GroupOfOne(self, group)
        self.tasks = [asyncio.create_task(self.group.run()), asyncio.create_task(self._release())]

    async def _release(self) -> None:
        """Stand in for a connector, which lets go at once of what it owns no more."""
        while True:
            member = await self.group.joined()
            ownership = member.ownership(FLOW)
            try:
                while not member.is_over:
                    ownership.changed.clear()
                    await ownership.release(ownership.to_release())
                    await ownership.release(())
                    await ownership.changed.wait()
            except IncarnationEnded:
                continue

    @property
    def ownership(self) -> Ownership:
        return self.members[-1].ownership(FLOW)

    async def kill(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.cluster.close()


async def until(reached: Callable[[], bool], log_text: io.StringIO) -> None:
    try:
        await running.until(reached, "the group is so")
    except AssertionError as error:
        error.add_note(log_text.getvalue())
        raise


@pytest.mark.slow
async def test_what_a_killed_worker_owned_is_fenced_and_goes_on_elsewhere(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    """First one that follows is killed, then the leader; a broker that may lead the control log in between."""
    kafka = make_cluster(nodes=3)
    group = f"g{uuid.uuid4().hex[:8]}"
    kafka_client.create_topic(kafka, f"{group}-offsets", 25, {}, replicas=3)
    kafka_client.create_topic(kafka, f"{group}-status", 5, {}, replicas=3)
    log_text = io.StringIO()
    partitions = 60

    def copied(workers: list[Worker]) -> list[int]:
        return sorted(number for worker in workers for _, number in worker.ownership.mine())

    workers = [Worker(kafka, number, group, log_text) for number in range(4)]
    try:
        everything = list(range(partitions))
        await until(lambda: all(w.members and len(w.members[-1].view.members) == 4 for w in workers), log_text)
        await until(lambda: any(worker.ownership.is_coordinator for worker in workers), log_text)
        head = next(worker for worker in workers if worker.ownership.is_coordinator)
        await head.ownership.list_partitions({"orders": partitions}, {"orders": partitions}, {})
        await until(lambda: copied(workers) == everything, log_text)
        for leads in (False, True):
            dead = next(worker for worker in workers if worker.members[-1].is_leader is leads)
            identities = [
                await OwnProducer(dead.cluster, f"mm2py-{group}-{leads}-{life}", rng=dead.rng).begin()
                for life in range(5)
            ]
            for identity in identities:
                await dead.ownership.announce(identity)
            workers.remove(dead)
            await dead.kill()
            killed_s = time.monotonic()
            await until(lambda: copied(workers) == everything, log_text)
            assert time.monotonic() - killed_s > SESSION_S - BEAT_S - 0.1
            fences = workers[0].ownership.known_producers.fence_epochs
            assert {identity.producer_id for identity in identities} <= fences.keys()
            assert set(fences.values()) == {1}
        members = [worker.members[-1] for worker in workers]
        await asyncio.to_thread(kafka.broker(2).stop)
        await paused(SESSION_S, "no session expires meanwhile")
        await until(lambda: all(member.gate.is_open for member in members), log_text)
        assert not any(member.is_over for member in members)
        assert copied(workers) == everything
    finally:
        await asyncio.gather(*(worker.kill() for worker in workers))
