"""One cluster of a flow, with time limits for every question that the status asks it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.port import Brokers

PROBE_S: Final = 10.0
"""How long a cluster may take to answer at all."""
PART_S: Final = 30.0
"""How long one part may take, such as reading all positions."""
FAILING_S: Final = 5.0
"""How long a part may fail before that is reported. A partition leader that moves is back by then."""
AGAIN_S: Final = 0.5


class Side:
    """The brokers of one cluster, with the rights of one flow."""

    def __init__(self, alias: ClusterAlias, brokers: Brokers) -> None:
        self.alias = alias
        self.brokers = brokers
        self.away = ""
        """Why it did not answer last time; empty if it did."""

    async def probe(self) -> None:
        """Find out whether it answers."""
        try:
            async with asyncio.timeout(PROBE_S):
                await fetch_metadata(self.brokers, [])
            self.away = ""
        except TimeoutError:
            self.away = (
                f"{self.alias} did not answer within {PROBE_S:g} s. Check its bootstrap.servers and the network."
            )
        except Mm2Error as error:
            self.away = said(error)

    async def why_not(self, doing: str, work: Callable[[], Awaitable[None]]) -> str:
        """Do ``work``, and again if that may help. Return why it could not be done; empty if it was done.

        Args:
            doing: what the work is, for the message that it took too long.
        """
        if self.away:
            return self.away
        why = ""
        try:
            async with asyncio.timeout(PART_S) as limit:
                while True:
                    try:
                        await work()
                        return ""
                    except Mm2Error as error:
                        if not error.retriable:
                            return said(error)
                        if not why:
                            until = asyncio.get_running_loop().time() + FAILING_S
                            limit.reschedule(min(until, limit.when() or until))
                        why = said(error)
                    await asyncio.sleep(AGAIN_S)
        except TimeoutError:
            return why or f"{self.alias} does not answer: {doing} took more than {PART_S:g} s."


def said(error: Mm2Error) -> str:
    """Return an error's text. Unlike a worker, the status does not keep trying."""
    return str(error).replace("; mm2py keeps trying", "")
