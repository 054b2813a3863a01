"""``mm2py why`` names each cause for which a whole flow copies nothing: the second part of the table in docs/why.md.

The command is asked, since no worker has to run. Others are made in ``test_flows_not_copied.py`` and its neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.commands.test_refusals import member_of
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import new_name, record_count, write
from tests.cluster.running import Mm2py, Value, one_way_properties, wait_until
from tests.cluster.why_table import wait_for_cause

NOWHERE = "127.0.0.1:1"


class Flows:
    """A worker of ``N->B`` and of ``N->same``, whose target is its source, and other files about the same topic."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.source, self.target = source, target
        self.alias, self.topic = new_name("F").replace("-", ""), new_topic(source, "flows")
        self.flow = f"{self.alias}->B"
        write(source, self.topic, [b"1", b"2"])
        self.run = Mm2py(
            self.file(
                clusters=f"{self.alias},B,same",
                **{
                    "same.bootstrap.servers": source.bootstrap.replace("127.0.0.1", "localhost"),
                    f"{self.alias}->same.enabled": True,
                },
            )
        )

    def file(self, **extra: Value) -> Mapping[str, Value]:
        own: Mapping[str, Value] = {"topics": self.topic, "config.storage.replication.factor": 1, **extra}
        return one_way_properties(self.source, self.target, names=(self.alias, "B"), **own)

    def why(self, run: Mm2py, cause: str, flow: str = "", *, code: int) -> Any:
        """Ask the command, with the file of a run, until it tells a cause."""

        def ask() -> Mapping[str, Any]:
            found, text = run.why(flow or self.flow, "--topic", self.topic, "--json")
            answer: Mapping[str, Any] = json.loads(text)
            assert found == answer["exit_code"]
            return answer

        answer = wait_for_cause(cause, ask)
        assert (answer["exit_code"], answer["replicated"]) == (code, {3: "no", 1: "unknown"}[code]), answer
        return answer


@pytest.fixture(scope="module")
def flows(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Flows]:
    found = Flows(source_cluster, target_cluster)
    with found.run:
        remote = f"{found.alias}.{found.topic}"
        found.run.wait_until(lambda: record_count(target_cluster, remote) == 2, "it is copied")
        yield found


def test_a_flow_that_a_worker_refuses(flows: Flows) -> None:
    flows.why(flows.run, "flow-refused", f"{flows.alias}->same", code=3)


def test_a_flow_that_the_file_of_another_group_asks_about(flows: Flows) -> None:
    other = Mm2py(flows.file())
    flows.why(other, "other-group", code=1)


def test_a_file_that_switches_a_flow_off_which_its_workers_run(flows: Flows) -> None:
    flows.why(Mm2py(flows.file(**{f"{flows.flow}.enabled": False})), "off-in-file-alone", code=1)


@pytest.mark.parametrize(("cause", "alias"), [("source-away", ""), ("target-away", "B")])
def test_a_cluster_that_does_not_answer_makes_it_unknown(flows: Flows, cause: str, alias: str) -> None:
    address = {f"{alias or flows.alias}.bootstrap.servers": NOWHERE, "mm2py.group": "any"}
    flows.why(Mm2py(flows.file(**address)), cause, code=1)


def test_a_flow_that_never_ran_and_one_that_is_switched_off_and_one_of_mirrormaker_2(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    flows = Flows(source_cluster, target_cluster)
    run = Mm2py(flows.file())
    flows.why(run, "no-worker", code=3)
    flows.why(Mm2py(flows.file(**{f"{flows.flow}.enabled": False})), "off-in-file", code=3)
    with member_of(target_cluster, f"{flows.alias}-mm2"):
        flows.why(run, "mirrormaker-2", code=3)
    wait_until(lambda: run.why(flows.flow, "--topic", flows.topic)[0] == 3, "it has ended, and still nothing is copied")
