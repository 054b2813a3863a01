"""An operator pauses and resumes topics and partitions over REST, and any worker's REST says so."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.records.history_record import HistoryKind
from mm2py.shared_settings.config_log import ConfigTable
from tests.scenarios.config_world import TOPIC
from tests.scenarios.paused_topics import copied
from tests.scenarios.paused_world import under_load
from tests.scenarios.rest.rest_world import SOURCE, rest_of
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)
FLOW, T0 = "/v1/flows/A->B", "/v1/flows/A->B/topics/t0"
FOLLOWED_S = 1.0


async def test_a_topic_is_paused_and_resumed_and_every_answer_says_so() -> None:
    async with under_load() as (world, _), rest_of(world) as rest:
        assert (await rest.told("PUT", f"{T0}/pause?reason=ticket+4711", 202)) is None
        await asyncio.sleep(FOLLOWED_S)
        before = copied(world, "t0")
        await asyncio.sleep(10)
        assert copied(world, "t0") == before
        topics = {one["topic"]: one for one in (await rest.told("GET", f"{FLOW}/topics", 200))["items"]}
        assert (topics["t0"]["is_copied"], topics["t0"]["reason"]) == (False, "paused")
        assert topics["t0"]["why"].startswith("Paused by ") and topics["t0"]["why"].endswith(": ticket 4711.")
        assert topics["t0"]["remedy"] == "To copy it again: mm2py resume FILE 'A->B' --topic t0"
        assert topics["t0"]["lag_records"] > 0
        assert topics["t1"]["is_copied"]
        report = (await rest.told("GET", FLOW, 200))["report"]
        assert report["verdict"]["readiness"] == "incomplete"
        assert [(one["topic"], one["partition"], one["reason"]) for one in report["paused"]] == [
            ("t0", None, "ticket 4711")
        ]
        why = await rest.told("GET", f"{FLOW}/why?topic=t0", 200)
        assert (why["exit_code"], why["reason"]) == (3, "paused")
        status = await rest.told("GET", f"{SOURCE}/status", 200)
        assert status["connector"]["state"] == "RUNNING"
        assert {task["state"] for task in status["tasks"]} == {"RUNNING"}
        assert (await rest.told("GET", "/v1/status", 200))["summary"].startswith("copied except t0 of A->B (paused")
        await rest.told("PUT", f"{T0}/resume", 202)
        await world.until(lambda: copied(world, "t0") > before, within_s=FOLLOWED_S)
        table = ConfigTable(world.target, TOPIC)
        await table.read()
        kept = [(one.kind, one.topic, one.author.reason) for one in table.records.entries() if one.topic]
        assert kept == [(HistoryKind.PAUSED, "t0", "ticket 4711"), (HistoryKind.RESUMED, "t0", "")]


async def test_one_partition_is_paused_and_resumed() -> None:
    async with under_load() as (world, _), rest_of(world) as rest:
        await rest.told("PUT", f"{T0}/partitions/1/pause", 400, json={"reasno": "ticket 4711"})
        await rest.told("PUT", f"{T0}/partitions/1/pause", 400, json={"reason": "password=hunter2"})
        await rest.told("PUT", f"{T0}/partitions/1/pause", 202, json={"reason": "ticket 4711"})
        await asyncio.sleep(5)
        (paused,) = (await rest.told("GET", FLOW, 200))["report"]["paused"]
        assert (paused["partition"], paused["reason"]) == (1, "ticket 4711")
        parts = (await rest.told("GET", f"{T0}/partitions", 200))["items"]
        assert [[one["reason"] for one in part["not_copied"]] for part in parts] == [[], ["paused"], []]
        before = copied(world, "t0", 1)
        await rest.told("PUT", f"{T0}/partitions/1/resume", 202)
        await world.until(lambda: copied(world, "t0", 1) > before, within_s=FOLLOWED_S)


async def test_what_the_flow_does_not_copy_cannot_be_paused_and_one_partition_of_a_paused_topic_not_resumed() -> None:
    async with under_load(1) as (world, _), rest_of(world) as rest:
        before = len(world.target.records(TOPIC, 0))
        told = await rest.told("PUT", f"{FLOW}/topics/t00/pause", 404)
        assert "A->B copies no topic t00. Do you mean t0" in told["message"]
        await rest.told("PUT", f"{T0}/partitions/3/pause", 404)
        await rest.told("PUT", f"{FLOW}/topics/t00/resume", 404)
        await rest.told("PUT", "/v1/flows/A->C/topics/t0/pause", 404)
        await rest.told("PUT", f"{T0}/resume", 202)
        assert len(world.target.records(TOPIC, 0)) == before, "nothing was stored"
        await rest.told("PUT", f"{T0}/pause", 202)
        told = await rest.told("PUT", f"{T0}/partitions/1/resume", 409)
        assert "t0 is paused as a whole" in told["message"]
        await rest.told("PUT", f"{T0}/resume", 202)
