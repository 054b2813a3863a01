"""Which election backend ``leader.election`` names.

A new backend needs a module, a case in ``make_backend``, its settings in ``config/groups.py`` and
``config/settings.py``, the names of its addresses and credentials in ``secret.py``, and an extra in ``pyproject.toml``.
"""

from __future__ import annotations

import random
from typing import assert_never

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import GroupSettings
from mm2py.group.election.backend import ElectionBackend, LogElection
from mm2py.group.refusal import GroupRefused


def make_backend(
    group: GroupSettings,
    *,
    cluster_id: str | None,
    worker: str,
    clock: Clock,
    rng: random.Random,
    log: FilteringBoundLogger,
) -> ElectionBackend:
    """Return the backend that ``leader.election`` names.

    Args:
        cluster_id: the target cluster's, if it has one.
        worker: its name, for people who look into ZooKeeper.
    Raises:
        GroupRefused: this worker cannot use that backend; the error names the way out.
    """
    match group.election:
        case "log":
            return LogElection()
        case "zookeeper":
            return _zookeeper(group, cluster_id=cluster_id, worker=worker, clock=clock, rng=rng, log=log)
        case _:
            assert_never(group.election)


def _zookeeper(
    group: GroupSettings,
    *,
    cluster_id: str | None,
    worker: str,
    clock: Clock,
    rng: random.Random,
    log: FilteringBoundLogger,
) -> ElectionBackend:
    if cluster_id is None:
        raise GroupRefused(
            f"{group.target} has no cluster id, by which workers would find each other in ZooKeeper.",
            remedy=f"Set {group.target}.leader.election=log.",
        )
    try:
        from mm2py.group.election.zookeeper.election import ZooKeeperElection  # noqa: PLC0415  (kazoo is an extra)
    except ImportError as error:
        raise GroupRefused(
            "leader.election=zookeeper needs the package kazoo, which is not installed.",
            remedy="Install it with: pip install 'mm2py[zookeeper]'; or write leader.election = log.",
        ) from error
    return ZooKeeperElection(group, cluster_id=cluster_id, worker=worker, clock=clock, rng=rng, log=log)
