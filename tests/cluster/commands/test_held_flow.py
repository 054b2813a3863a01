"""A flow is paused, stopped, restarted and set back while processes run it, against real brokers (F73)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file
from mm2py.connector_offsets.altering import Clusters, ConnectorOffsets, StillRunning
from mm2py.connector_offsets.offsets_body import body_of
from mm2py.copying.positions import read_positions
from mm2py.flow import Kind
from mm2py.flow_clusters import connect
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.write_gate import gated_alone
from mm2py.records.operator_request import RestartConnector, TargetState
from mm2py.shared_settings.config_log import ConfigLog
from mm2py.status.cluster_inquiry import GroupInquiry, InquirySide
from tests.cluster.copies import make_topic
from tests.cluster.groups import Group
from tests.cluster.kafka_client import new_name, read, values, write
from tests.cluster.running import one_way_properties, wait_until

T = TypeVar("T")
RECORDS = [b"%d" % number for number in range(20)]
MORE = [b"%d" % number for number in range(100, 110)]


def ask(file: SettingsFile, flow: str, work: Callable[[ConfigLog, ConnectorOffsets], Awaitable[T]]) -> T:
    """Do what a server beside the workers would do, with connections of its own."""

    async def main() -> T:
        rng, clock, settings = random.Random(), SystemClock(), flow_of(file, flow)
        timeout_s = settings.target_request_timeout_s
        source = connect("test", settings.flow, settings.source, timeout_s=timeout_s, rng=rng)
        target = connect("test", settings.flow, settings.target, timeout_s=timeout_s, rng=rng)
        group = file.configuration().groups[settings.flow.target]
        log = ConfigLog(gated_alone(target, clock), settings, worker="test", clock=clock, rng=rng)
        inquiry = GroupInquiry(group, InquirySide(settings.flow.target, target), clock=clock, rng=rng)
        try:
            return await work(log, ConnectorOffsets(settings, Clusters(source, target, log, inquiry, clock, rng)))
        finally:
            await source.close()
            await target.close()

    return asyncio.run(main())


async def stored(file: SettingsFile, flow: str) -> dict[str, Any]:
    """Return the positions of a flow as REST tells them."""
    settings = flow_of(file, flow)
    target = connect("test", settings.flow, settings.target, timeout_s=30, rng=random.Random())
    try:
        topic = (await fetch_metadata(target, [settings.offsets_topic])).topics[settings.offsets_topic]
        return body_of((await read_positions(target, topic, settings.flow.source))[0], settings.flow.source)
    finally:
        await target.close()


def test_processes_follow_an_operator_and_go_on_at_the_altered_offset(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    alias, topic, path = new_name("C").replace("-", ""), new_name("orders"), tmp_path / "mm2.properties"
    flow, copy = f"{alias}->B", f"{alias}.{topic}"
    make_topic(source_cluster, topic, 1)
    write(source_cluster, topic, [record.decode() for record in RECORDS])
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(alias, "B"),
        **{f"{flow}.topics": topic, "config.storage.replication.factor": 1},
    )
    path.write_text(render_properties(properties))
    file = read_settings_file(path, None)

    def direct(state: TargetState) -> None:
        ask(file, flow, lambda log, _: log.write_target(Kind.SOURCE, state, by="ann"))

    def alter(body: object) -> None:
        def is_altered() -> bool:
            with contextlib.suppress(StillRunning):
                return bool(ask(file, flow, lambda _, offsets: offsets.alter(Kind.SOURCE, body)))
            return False

        wait_until(is_altered, "all workers have drained")

    def shown() -> list[str]:
        _, found = group.workers[0].status()
        return [held["state"] for held in found["flows"][0]["held"]]

    with (group := Group(target_cluster, properties, workers=2)):
        wait_until(lambda: values(target_cluster, copy) == RECORDS, "all is copied")
        direct(TargetState.PAUSED)
        for worker in group.workers:
            worker.wait_for_event("connector.paused")
        assert shown() == ["paused"]
        direct(TargetState.STOPPED)
        alter({"offsets": [{"partition": {"cluster": alias, "topic": "gone", "partition": 0}, "offset": None}]})
        write(source_cluster, topic, [record.decode() for record in MORE])
        group.workers[0].kill()
        group.start_another().wait_for_event("connector.stopped")
        assert values(target_cluster, copy) == RECORDS
        partition = {"cluster": alias, "topic": topic, "partition": 0}
        found = asyncio.run(stored(file, flow))
        assert found == {"offsets": [{"partition": partition, "offset": {"offset": 19}}]}
        wanted = {"offsets": [{"partition": partition, "offset": {"offset": 14}}]}
        alter(wanted)
        direct(TargetState.STARTED)
        wait_until(lambda: values(target_cluster, copy) == RECORDS + RECORDS[15:] + MORE, "it goes on at the next one")
        before = [len(worker.events("flow.ready")) for worker in group.workers[1:]]
        ask(file, flow, lambda log, _: log.write_restart(RestartConnector(Kind.SOURCE, by="ann")))
        wait_until(
            lambda: (
                [len(worker.events("flow.ready")) for worker in group.workers[1:]] == [count + 1 for count in before]
            ),
            "both have restarted",
        )
        for worker in group.workers[1:]:
            assert worker.terminate() == 0
    assert values(target_cluster, copy) == RECORDS + RECORDS[15:] + MORE
    records = {message.key(): message.value() for message in read(target_cluster, f"mm2-configs.{alias}.internal")}
    target = json.loads(records[b"target-state-MirrorSourceConnector"] or b"")
    assert (target["state"], target["state.v2"], target["by"]) == ("STARTED", "STARTED", "ann")
