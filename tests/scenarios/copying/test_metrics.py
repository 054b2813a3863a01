"""What a whole worker tells of itself: its page of metrics agrees with what it has done."""

from __future__ import annotations

import asyncio

from tests.fakes.metrics_page import page_of
from tests.scenarios.world import World

RECORDS = "kafka_connect_mirror_mirrorsourceconnector_record_count"
LATENCY = "kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms"


async def test_a_page_agrees_with_what_was_copied() -> None:
    world = World(1)
    world.source.create_topic("orders", 2)
    for number in (0, 0, 0, 1):
        world.source.append("orders", number, [b"1", b"2"])
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
        world.source.append("orders", 0, [b"3"])
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
        page = page_of(herder)
    assert page.value(RECORDS, topic="A.orders", partition="0") == 7
    assert page.value(RECORDS, topic="A.orders", partition="1") == 2
    assert page.value("mm2py_lag_records", topic="orders", partition="0") == 0
    assert page.value("mm2py_lag_seconds", topic="orders", partition="0") == 0
    assert 0 < page.value(f"{LATENCY}", topic="A.orders", partition="0") < 1000
    assert page.value("mm2py_flow_partitions", flow="A->B", state="copying") == 2
    assert page.value("mm2py_flow_state", flow="A->B", state="running") == 1
    assert page.value("mm2py_flow_exactly_once", flow="A->B") == 1
    assert page.value("mm2py_flow_ledger_runs_written_total") >= 2
    assert page.value("mm2py_flow_ledger_entries_waiting") == 0
    assert page.value("mm2py_fetch_to_acknowledgement_seconds_count", topic="orders") == 9
    assert 0 < page.value("mm2py_fetch_to_acknowledgement_seconds_sum", topic="orders") < 9
    assert page.value("mm2py_group_is_leader", target="B") == 1
    assert page.value("mm2py_group_tasks", target="B") >= 2
    assert page.value("mm2py_group_member_state", state="active") == 1
    assert page.value("kafka_connect_worker_rebalance_rebalancing") == 0
    assert page.value("kafka_connect_connector_task_offset_commit_avg_time_ms") > 0
    assert page.value("kafka_consumer_incoming_byte_total") > page.value("kafka_producer_outgoing_byte_total") > 0
    sent = sum(one.value for one in page.samples if one.name.endswith("mirrorsourceconnector_byte_count"))
    assert page.value("kafka_producer_outgoing_byte_total") == sent
    assert page.value("kafka_connect_connector_status", connector='"A->B.MirrorSourceConnector"', status="running")


async def test_while_the_target_is_away_lag_grows_and_latencies_of_the_last_minute_vanish() -> None:
    world = World(2)
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [b"1"])
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        (node,) = world.target.alive
        world.target.stop_broker(node)
        for _ in range(3):
            world.source.append("orders", 0, [b"2"])
        await asyncio.sleep(90)
        page = page_of(herder)
        assert page.value("mm2py_lag_records", topic="orders", partition="0") == 3
        assert 80 < page.value("mm2py_lag_seconds", topic="orders", partition="0") < 120
        assert page.value("mm2py_flow_stalled_partitions", flow="A->B") == 1
        average = page.value(f"{LATENCY}_avg", topic="A.orders", partition="0")
        assert average != average  # noqa: PLR0124  (it is NaN)
        world.target.start_broker(node)
        await world.copied({"orders": "A.orders"})


async def test_a_worker_that_has_copied_nothing_itself_tells_the_age_of_the_copy() -> None:
    world = World(4)
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [b"1"])
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        await world.stop(herder)
    world.target.unwritable_topics.add("A.orders")
    for _ in range(9):
        world.source.append("orders", 0, [b"2"])
    async with world.worker() as herder:
        await asyncio.sleep(60)
        page = page_of(herder)
        assert page.value("mm2py_lag_records", topic="orders", partition="0") == 9
        assert 50 < page.value("mm2py_lag_seconds", topic="orders", partition="0") < 120
        assert page.value("mm2py_flow_not_copied_partitions", flow="A->B", reason="target-denied") == 1


async def test_a_checkpoint_is_on_the_page_with_its_latency() -> None:
    world = World(3, extra={"emit.checkpoints.enabled": "true"})
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [b"1"] * 10)
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        world.source.groups.commit("pay", {("orders", 0): (10, "")})
        await asyncio.sleep(90)
        page = page_of(herder)
    at = {"source": "A", "target": "B", "group": "pay", "topic": "A.orders", "partition": "0"}
    assert 0 <= page.value("kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms", **at) < 1000
    assert page.value("mm2py_checkpoints_total", flow="A->B") == 1
