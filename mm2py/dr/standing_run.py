"""How a pair of clusters stands by the recovery journals, for what must not disturb an open run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.journal_topic import read_agreed
from mm2py.flow import Flow
from mm2py.flow_sides import DEADLINE_S, ClusterFailed, FlowSides
from mm2py.kafka.errors import BrokerRefused, Reaction


async def standing_run(
    flow: Flow, sides: FlowSides, say: Callable[[str], None], *, must_tell: bool = False
) -> JournalEntry | None:
    """Return the last entry of the run that stands, by the clusters that answer; None: there is none, or it is told
    that the journals may not be read.

    Args:
        must_tell: something else shows that a run may be open.
    Raises:
        JournalsDisagree, JournalUnreadable: it is not known what was done.
        BrokerRefused: with ``must_tell``, the journals may not be read.
        ClusterFailed: a cluster does not answer in time.
    """
    there = sides.answering
    try:
        async with asyncio.timeout(DEADLINE_S):
            return standing_entry((await read_agreed(flow, there)).entries)
    except TimeoutError as error:
        raise ClusterFailed(
            f"{' and '.join(there)}: the recovery journal was not read within {DEADLINE_S:g} s.", remedy="Ask again."
        ) from error
    except BrokerRefused as error:
        if must_tell or error.reaction is not Reaction.DENIED:
            raise
        say(f"note: whether a recovery is open is not known: {error.what}")
        return None
