"""Candidacy: what the two backends promise a worker, without a ZooKeeper."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from mm2py.worker.candidacy import Candidacy, ElectionByLog, Standing

WITHOUT_KAZOO = """
import sys
sys.modules["kazoo"] = None
from mm2py.config.settings import GroupSettings, ZooKeeperSettings
from mm2py.errors import ConfigError
from mm2py.worker.zookeeper import ElectionByZooKeeper
zookeeper = ZooKeeperSettings((("z", 2181),), "", None, True, None)
group = GroupSettings("B", "mm2py", 3.0, 0.5, "zookeeper", zookeeper)
try:
    ElectionByZooKeeper(group, cluster_id="c", worker="w", clock=None, rng=None, log=None)
except ConfigError as error:
    print(error)
"""


def test_through_the_log_everybody_may_claim_at_any_time() -> None:
    async def story() -> None:
        candidacy: Candidacy = ElectionByLog()
        assert (candidacy.standing, candidacy.may_claim, candidacy.evidence) == (Standing.LEAD, True, "")
        assert await candidacy.changed(Standing.LOST) is Standing.LEAD
        for waits in (candidacy.changed(Standing.LEAD), candidacy.run()):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await waits

    asyncio.run(story())


def test_without_kazoo_the_way_to_it_is_told() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_KAZOO], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "leader.election=zookeeper needs the package kazoo, which is not installed. Install it with: pip install"
        " 'mm2py[zookeeper]'; or write leader.election = log.\n"
    )
