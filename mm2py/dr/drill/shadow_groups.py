"""The groups of a drill on the target: ``mm2py-drill.A.<run>.<group>``. They are deleted when the drill is over.

No flow takes them for groups of applications (``GroupFilter``), so nothing of them is committed on another cluster. A
drill that is killed leaves them behind: the next one deletes them, and so does ``mm2py dr history`` when they are older
than a drill lasts. What is left after all expires with the cluster's ``offsets.retention.minutes``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

from mm2py.flow import ClusterAlias
from mm2py.kafka.consumer_groups import delete_groups, list_groups
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.topics.filters import SHADOW_GROUPS

OLD_AFTER_S: Final = 15 * 60
"""Shadow groups of a run that began so long ago belong to a drill that was killed."""
_RUN: Final = r"(\d{8}T\d{6})-[0-9a-f]{6}"
_TIME: Final = "%Y%m%dT%H%M%S"


def new_run(now_ms: int, rng: random.Random) -> str:
    """Return the name of a run: when it began, in UTC, and something random."""
    return f"{datetime.fromtimestamp(now_ms / 1000, UTC):{_TIME}}-{rng.getrandbits(24):06x}"


def shadow_of(source: ClusterAlias, run: str, group: str) -> str:
    """Return the name of a group's shadow on the target."""
    return f"{SHADOW_GROUPS}{source}.{run}.{group}"


def left_shadows(groups: Collection[str], source: ClusterAlias, *, begun_before_ms: int | None = None) -> list[str]:
    """Return the groups that drills of flows from a source have left on the target.

    Args:
        begun_before_ms: only those of runs that began before; None: all.
    """
    pattern = re.compile(rf"{re.escape(f'{SHADOW_GROUPS}{source}.')}{_RUN}\..*", re.DOTALL)
    found = []
    for group in sorted(groups):
        told = pattern.fullmatch(group)
        if told is not None and (begun_before_ms is None or _begun_ms(told[1]) < begun_before_ms):
            found.append(group)
    return found


def _begun_ms(text: str) -> float:
    """Return when a run began; one with an impossible time began long ago."""
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp() * 1000
    except ValueError:
        return 0


async def delete_left(
    target: Brokers, source: ClusterAlias, *, begun_before_ms: int | None = None
) -> tuple[list[str], dict[str, BrokerRefused]]:
    """Delete what earlier drills have left; return what was deleted, and what was not, with the reason.

    Raises:
        KafkaError: as ``list_groups``, ``delete_groups``.
    """
    return await delete_shadows(
        target, left_shadows(await list_groups(target), source, begun_before_ms=begun_before_ms)
    )


async def delete_shadows(target: Brokers, groups: Collection[str]) -> tuple[list[str], dict[str, BrokerRefused]]:
    """Delete these groups; return as ``delete_left``. Raises: KafkaError, as ``delete_groups``."""
    answers = await delete_groups(target, groups) if groups else {}
    gone = [group for group, why in answers.items() if why is None]
    return gone, {group: why for group, why in answers.items() if why is not None}
