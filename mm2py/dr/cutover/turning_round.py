"""Turns the flow of a run round: from here on the flow back copies what producers write on the run's target.

Under the identity policy at most one of the two may be on (``mm2py/connector_offsets/turning.py``). With other names
both run all the time, and only a flow back that is standby is turned on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from mm2py.connector_offsets.altering import StillRunning
from mm2py.connector_offsets.turning import TurnedFlow, TurnedMeanwhile, turn_off, turn_on, turned_flow
from mm2py.dr.cutover.pair import RecoveryPair, turned
from mm2py.flow import Flow

TURN_MOST_S: Final = 60.0
"""How long workers may take to drain a flow that is turned off."""
ASK_AGAIN_S: Final = 0.5
T = TypeVar("T")


async def read_turned(pair: RecoveryPair, flow: Flow) -> TurnedFlow:
    """Read the direction of a flow. Raises: Mm2Error, if its target does not answer."""
    return await turned_flow(
        pair.file,
        pair.by_file[flow],
        pair.file.configuration().groups[flow.target],
        source=pair.brokers[flow.source],
        target=pair.brokers[flow.target],
        clock=pair.clock,
        rng=pair.rng,
    )


async def turn_round(
    pair: RecoveryPair,
    flow: Flow,
    renew: Callable[[], Awaitable[None]],
    *,
    force: bool = False,
    leaves_out: Sequence[int] = (),
) -> None:
    """Stop the flow, where both may not be on, and start the one that leads back. It may be repeated.

    Args:
        renew: is called before each change: it raises if another process may have begun.
        force, leaves_out: see ``turn_on``.
    Raises: StillRunning, TurnedMeanwhile, TurnRefused; Mm2Error, if a cluster does not answer.
    Cancelling may leave both off; the next call goes on.
    """
    back = await read_turned(pair, turned(flow))
    if back.settings.flow_back is None:
        if not (await back.seen()).is_on:
            await renew()
            await until_drained(pair, lambda: turn_on(back, None, by=pair.by, author=pair.author))
        return
    there = await read_turned(pair, flow)
    if not (await back.seen()).is_on:
        await renew()
        await until_drained(pair, lambda: turn_off(there, by=pair.by, author=pair.author))
    await renew()
    turn = partial(turn_on, back, there, by=pair.by, author=pair.author, force=force, leaves_out=leaves_out)
    await until_drained(pair, turn)


async def until_drained(pair: RecoveryPair, turn: Callable[[], Awaitable[T]]) -> T:
    """Change a flow; ask again while workers have not drained, until the time is over."""
    until_s = pair.clock.monotonic() + TURN_MOST_S
    while True:
        try:
            return await turn()
        except (StillRunning, TurnedMeanwhile):
            if pair.clock.monotonic() >= until_s:
                raise
        await asyncio.sleep(ASK_AGAIN_S)
