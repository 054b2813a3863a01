"""Two flows that lead back and forth under the identity policy take turns, as one process on real brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.connector_offsets.turning import TurnedFlow
from mm2py.flow import Flow, parse_flow
from mm2py.records.direction_record import Direction, DirectionState
from mm2py.shared_settings.direction import TurnRefused
from tests.checker.check import check_copy
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.copies import COPY_DEADLINE_S, make_topic
from tests.cluster.kafka_client import new_name, offsets, values
from tests.cluster.running import Mm2py, during, two_way_properties
from tests.cluster.turns import off, on, with_flows
from tests.cluster.why_table import wait_for_cause

PARTITIONS = 2
RECORDS = 2_000


class Pair:
    """Clusters with aliases of their own, and a process that runs both flows; the way back is standby."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, folder: Path) -> None:
        self.a, self.b = new_name("A").replace("-", ""), new_name("B").replace("-", "")
        self.clusters = {self.a: source, self.b: target}
        self.there, self.back = parse_flow(f"{self.a}->{self.b}"), parse_flow(f"{self.b}->{self.a}")
        stem = new_name("turns")
        self.plain, self.transactional = f"{stem}-plain", f"{stem}-transactional"
        for topic in self.topics:
            make_topic(source, topic, PARTITIONS)
        properties = two_way_properties(
            source,
            target,
            names=(self.a, self.b),
            **{
                "topics": f"{stem}.*",
                "replication.policy.class": "IdentityReplicationPolicy",
                f"{self.back}.standby": True,
                "config.storage.replication.factor": 1,
            },
        )
        path = folder / "mm2.properties"
        path.write_text(render_properties(properties))
        self.file: SettingsFile = read_settings_file(path, None)
        self.run = Mm2py(properties)
        self.sent = 0

    @property
    def topics(self) -> tuple[str, str]:
        return self.plain, self.transactional

    def source_of(self, flow: Flow) -> KafkaCluster:
        return self.clusters[flow.source]

    def target_of(self, flow: Flow) -> KafkaCluster:
        return self.clusters[flow.target]

    def ends(self, cluster: KafkaCluster) -> Mapping[tuple[str, int], int]:
        return {
            (topic, number): offsets(cluster, topic, number)[1] for topic in self.topics for number in range(PARTITIONS)
        }

    def send(self, flow: Flow) -> None:
        """Let clients of its source write: an idempotent producer, and a transactional one that also aborts."""
        bootstrap = self.source_of(flow).internal_bootstrap
        for topic, name in ((self.plain, None), (self.transactional, new_name("ids"))):
            self.sent += 1
            traffic = Traffic(seed=self.sent, partitions=PARTITIONS, producer=self.sent, plain=True)
            Load(bootstrap, topic, traffic, codecs=["lz4"], transactional_id=name).run(records=RECORDS)

    def judge(
        self,
        flow: Flow,
        starts: Mapping[tuple[str, int], int] | None = None,
        target_starts: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        """Nothing is lost and nothing is there twice, from these offsets on."""
        report = check_copy(
            self.source_of(flow).internal_bootstrap,
            self.target_of(flow).internal_bootstrap,
            {topic: topic for topic in self.topics},
            starts=starts,
            target_starts=target_starts,
            wait_s=COPY_DEADLINE_S,
        )
        assert report.ok, str(report)

    def turn(self, flow: Flow) -> Mapping[tuple[str, int], int]:
        """Turn the other flow off, and this one on; return where its copies begin on its target."""
        off(self.file, self.back if flow == self.there else self.there)
        ends = self.ends(self.target_of(flow))
        turned = on(self.file, flow)
        assert turned.direction.is_on and not turned.extras
        assert turned.starts == self.ends(self.source_of(flow)), "nothing was written since the other flow has ended"
        self.run.wait_for_event("flow.turned_on", flow=str(flow))
        return ends

    def why(self, cause: str, flow: Flow, *, code: int = 3) -> Mapping[str, Any]:
        def ask() -> Mapping[str, Any]:
            found, text = self.run.why(str(flow), "--topic", self.plain, "--json")
            answer: Mapping[str, Any] = json.loads(text)
            assert found == answer["exit_code"]
            return answer

        answer = wait_for_cause(cause, ask)
        assert answer["exit_code"] == code
        return answer


@pytest.fixture
def pair(source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Pair]:
    found = Pair(source_cluster, target_cluster, tmp_path)
    with found.run:
        found.run.wait_for_event("flow.standby", flow=str(found.back))
        yield found


def test_each_turn_copies_exactly_the_new_records_and_nothing_back(pair: Pair) -> None:
    pair.send(pair.there)
    pair.judge(pair.there)
    for flow in (pair.back, pair.there, pair.back):
        starts = pair.ends(pair.source_of(flow))
        target_starts = pair.turn(flow)
        with pytest.raises(TurnRefused, match=r"Turn .* off first"):
            on(pair.file, pair.back if flow == pair.there else pair.there)
        if flow == pair.there:
            pair.run.kill()
            pair.run.start()
        pair.send(flow)
        pair.judge(flow, starts, target_starts)
        for _ in during(3, "whether something comes back"):
            pair.judge(flow, starts, target_starts)
        assert sorted(values(pair.source_of(flow), pair.plain, range(PARTITIONS))) == sorted(
            values(pair.target_of(flow), pair.plain, range(PARTITIONS))
        )
    records = values(pair.clusters[pair.a], pair.plain, range(PARTITIONS))
    assert len(records) == len(set(records)) == 4 * RECORDS


def test_status_and_why_name_a_flow_that_is_standby_and_two_that_are_both_on(pair: Pair) -> None:
    pair.send(pair.there)
    pair.judge(pair.there)
    pair.why("flow-standby", pair.back)

    def is_told() -> bool:
        code, told = pair.run.status()
        texts = {one["flow"]: one["verdict"]["text"] for one in told["flows"]}
        how = f"turns on with mm2py dr turn FILE '{pair.back}'"
        return code == 0 and texts[str(pair.back)] == f"{pair.back}: standby by its file; {how}"

    pair.run.wait_until(is_told, "the status tells it, and all is well")
    pair.turn(pair.back)

    async def write_on(read: Callable[[Flow], Any]) -> None:
        flow: TurnedFlow = await read(pair.there)
        current = flow.log.records.direction.current
        assert current is not None
        wanted = Direction(DirectionState.ON, current.generation + 1, "a mistake", 0)
        await flow.log.turn(wanted, instead_of=current)

    with_flows(pair.file, write_on)
    for flow in (pair.there, pair.back):
        pair.run.wait_for_event("flow.both_on", flow=str(flow))
        pair.why("both-on", flow)
    assert pair.run.status()[0] == 3
    off(pair.file, pair.there)
    pair.send(pair.back)
    pair.run.wait_until(lambda: pair.run.status()[0] == 0, "all is well again")
    told = {one["flow"]: one["topics"] for one in pair.run.status()[1]["flows"]}
    reasons = {
        flow: {why["reason"] for topic in topics for why in topic["not_copied"]} for flow, topics in told.items()
    }
    assert reasons == {str(pair.there): {"standby"}, str(pair.back): set()}


def test_the_command_turns_a_flow_or_says_why_not_and_leaves_all_as_it_was(pair: Pair) -> None:
    def turn(flow: Flow, *options: str) -> tuple[int, Mapping[str, Any]]:
        code, text = pair.run.dr("turn", str(flow), *options, "--json")
        told: Mapping[str, Any] = json.loads(text)
        assert told["exit_code"] == code and told["flow"] == str(flow)
        return code, told

    pair.send(pair.there)
    pair.judge(pair.there)
    code, told = turn(pair.back, "--plan")
    assert (code, told["now"], len(told["steps"])) == (3, None, 2)
    assert turn(pair.there, "--plan")[0] == 0, "it is on"
    assert turn(pair.back)[0] == 2, "there is no terminal to ask on"
    pair.run.ordered("pause", str(pair.there), "--topic", pair.plain)
    pair.run.wait_for_event("topic.paused", topic=pair.plain)
    pair.send(pair.there)
    assert turn(pair.back, "--yes")[0] == 3, "what is paused was not copied"
    assert turn(pair.there, "--plan")[0] == 0, "it was turned on again"
    pair.run.ordered("resume", str(pair.there), "--topic", pair.plain)
    pair.judge(pair.there)
    starts, target_starts = pair.ends(pair.source_of(pair.back)), pair.ends(pair.target_of(pair.back))
    code, told = turn(pair.back, "--yes", "--reason", "drill")
    assert code == 0 and not told["left"] and "(mm2py dr turn): drill" in told["now"], told
    assert turn(pair.back, "--yes")[0] == 0, "it is on already"
    pair.send(pair.back)
    pair.judge(pair.back, starts, target_starts)
    assert turn(pair.back, "--off", "--yes")[0] == 0
    assert turn(pair.back, "--plan", "--off")[0] == 0
