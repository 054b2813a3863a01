"""Election backends: what they promise a worker, without a ZooKeeper."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from mm2py.group.election.backend import CandidateState, ElectionBackend, LogElection

WITHOUT_KAZOO = """
import sys
sys.modules["kazoo"] = None
from mm2py.config.settings import GroupSettings, ZooKeeperSettings
from mm2py.errors import Mm2Error
from mm2py.group.election.backends import make_backend
zookeeper = ZooKeeperSettings((("z", 2181),), "", None, True, None)
group = GroupSettings("B", "mm2py", 3.0, 0.5, "zookeeper", zookeeper)
for cluster_id in ("c", None):
    try:
        make_backend(group, cluster_id=cluster_id, worker="w", clock=None, rng=None, log=None)
    except Mm2Error as error:
        print(type(error).__name__, error)
"""


@pytest.mark.real_time
async def test_through_the_log_every_worker_may_claim_at_any_time() -> None:
    backend: ElectionBackend = LogElection()
    assert (backend.state, backend.evidence) == (CandidateState.MAY_LEAD, "")
    assert await backend.changed(CandidateState.LOST) is CandidateState.MAY_LEAD
    for waits in (backend.changed(CandidateState.MAY_LEAD), backend.run()):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await waits


def test_without_kazoo_or_a_cluster_id_the_way_out_is_told() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_KAZOO], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "GroupRefused leader.election=zookeeper needs the package kazoo, which is not installed. Install it with: pip"
        " install 'mm2py[zookeeper]'; or write leader.election = log.\n"
        "GroupRefused B has no cluster id, by which workers would find each other in ZooKeeper. Set"
        " B.leader.election=log.\n"
    )
