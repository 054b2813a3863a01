"""One candidate of an election through ZooKeeper in a process of its own, to be killed or frozen.

Arguments: ``zookeeper.connect``, the worker's name, the session time-out in seconds. Prints each state as it comes.
"""

from __future__ import annotations

import asyncio
import random
import sys

import structlog

from mm2py.clock import SystemClock
from mm2py.config.kinds import ensemble
from mm2py.config.settings import GroupSettings, ZooKeeperSettings
from mm2py.flow import ClusterAlias
from mm2py.group.election.zookeeper.election import ZooKeeperElection
from mm2py.kafka.security.settings import TlsSettings
from mm2py.secret import Secret

CLUSTER_ID = "Yl3Z0kQmRkC8mVnq2u4b1A"


def candidate(
    connect: str,
    worker: str,
    *,
    timeout_s: float,
    group: str = "mm2py",
    digest: str | None = None,
    set_acl: bool = True,
    tls: TlsSettings | None = None,
) -> ZooKeeperElection:
    """Return a candidate as a worker makes it."""
    where = ensemble(connect)
    secret = None if digest is None else Secret(digest)
    settings = GroupSettings(
        ClusterAlias("B"),
        group,
        session_timeout_s=timeout_s,
        heartbeat_interval_s=timeout_s / 6,
        election="zookeeper",
        zookeeper=ZooKeeperSettings(where.servers, where.chroot, secret, set_acl, tls),
    )
    return ZooKeeperElection(
        settings,
        cluster_id=CLUSTER_ID,
        worker=worker,
        clock=SystemClock(),
        rng=random.Random(worker),
        log=structlog.get_logger(),
    )


async def main(connect: str, worker: str, timeout_s: float) -> None:
    election = candidate(connect, worker, timeout_s=timeout_s)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(election.run())
        state = election.state
        while True:
            print(state.name, flush=True)
            state = await election.changed(state)


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
