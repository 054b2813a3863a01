"""Turns flows of a file on and off on real brokers, as ``mm2py dr`` does."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import ClusterSettings
from mm2py.connector_offsets.turning import Turned, TurnedFlow, turn_off, turn_on, turned_flow
from mm2py.flow import Flow
from mm2py.flow_clusters import connect
from mm2py.kafka.port import Brokers

T = TypeVar("T")
BY = "ann (mm2py dr)"


def with_flows(file: SettingsFile, work: Callable[[Callable[[Flow], Awaitable[TurnedFlow]]], Awaitable[T]]) -> T:
    """Do something with flows of a file, with connections of its own. ``work`` gets what reads a flow."""

    async def main() -> T:
        rng, clock, configuration = random.Random(), SystemClock(), file.configuration()
        settings = {one.flow: one for one in configuration.flows}
        async with contextlib.AsyncExitStack() as opened:

            def side(flow: Flow, cluster: ClusterSettings) -> Brokers:
                brokers = connect("dr", flow, cluster, timeout_s=30, rng=rng)
                opened.push_async_callback(brokers.close)
                return brokers

            async def read(flow: Flow) -> TurnedFlow:
                one = settings[flow]
                source, target = side(flow, one.source), side(flow, one.target)
                group = configuration.groups[flow.target]
                return await turned_flow(file, one, group, source=source, target=target, clock=clock, rng=rng)

            return await work(read)

    return asyncio.run(main())


def off(file: SettingsFile, flow: Flow) -> Turned:
    async def work(read: Callable[[Flow], Awaitable[TurnedFlow]]) -> Turned:
        return await turn_off(await read(flow), by=BY)

    return with_flows(file, work)


def on(file: SettingsFile, flow: Flow) -> Turned:
    async def work(read: Callable[[Flow], Awaitable[TurnedFlow]]) -> Turned:
        here = await read(flow)
        back = None if here.settings.flow_back is None else await read(here.settings.flow_back.flow)
        return await turn_on(here, back, by=BY)

    return with_flows(file, work)
