"""One group runs a flow, as processes on real brokers. Each test has a source alias, and so a flow, of its own."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AclOperation

from deploy.local.kafka import KafkaCluster
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.copies import assert_copied, bounds_of, new_topic, now_ms, without_right
from tests.cluster.kafka_client import new_name, read
from tests.cluster.loads import PATIENT
from tests.cluster.running import COMMAND_S, OWN_PATH, Mm2py, Value, one_way_properties

PARTITIONS = 4
_numbers = itertools.count(1)
NOWHERE = "127.0.0.1:1"


class Flow:
    """A flow between two clusters, and files of two groups that want to run it."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.source, self.target = source, target
        self.alias = f"A{next(_numbers)}{uuid.uuid4().hex[:6]}"
        self.name = f"{self.alias}->B"
        self.topic = new_topic(source, "owned", PARTITIONS)
        self.group, self.laptop = new_name("owner"), new_name("laptop")

    def file(self, group: str, source: str | None = None, **extra: Value) -> dict[str, Value]:
        own: dict[str, Value] = {f"{self.name}.topics": self.topic, "mm2py.group": group}
        own |= {"config.storage.replication.factor": 1, **extra}
        return one_way_properties(source or self.source, self.target, names=(self.alias, "B")) | own

    @contextmanager
    def load(self) -> Iterator[None]:
        traffic = Traffic(seed=1, partitions=PARTITIONS, first_timestamp_ms=now_ms())
        settings: Any = {"codecs": ["lz4"], "per_second": 200, "settings": PATIENT}
        with Load(self.source.internal_bootstrap, self.topic, traffic, **settings).in_background():
            yield

    def records(self, key: bytes) -> list[dict[str, Any]]:
        """Return the values under a key of the configs topic, oldest first."""
        found = [one for one in read(self.target, f"mm2-configs.{self.alias}.internal") if one.key() == key]
        return [json.loads(value) for one in found if (value := one.value()) is not None]

    def owner(self) -> str:
        return str(self.records(b"mm2py-owner")[-1]["group"])

    def wait_until_grown(self, run: Mm2py) -> None:
        before = self._end()
        run.wait_until(lambda: self._end() > before, f"{self.name} copies")

    def _end(self) -> int:
        return sum(
            bounds.end for bounds in bounds_of(self.target, f"{self.alias}.{self.topic}", range(PARTITIONS)).values()
        )

    def assert_exact(self, run: Mm2py) -> None:
        assert_copied(self.source, self.target, self.topic, f"{self.alias}.{self.topic}", run=run, max_rewinds=0)


def refused(run: Mm2py) -> str:
    """Wait until a worker has refused its only flow and ended, and return why."""
    why = str(run.wait_for_event("flow.refused")["why"])
    assert run.wait() == 1
    return why


def applied(run: Mm2py) -> tuple[int, str]:
    """Run ``mm2py apply --yes`` with the same file; return its exit code and what it says."""
    ended = subprocess.run(
        [sys.executable, "-m", "mm2py", "apply", str(run.file), "--yes"],
        capture_output=True,
        timeout=COMMAND_S,
        check=False,
        env={**os.environ, "PYTHONPATH": OWN_PATH},
    )
    return ended.returncode, ended.stderr.decode()


def test_a_second_group_is_refused_by_name_with_a_dead_and_with_a_living_source_and_the_flow_goes_on(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    flow = Flow(source_cluster, target_cluster)
    with Mm2py(flow.file(flow.group)) as worker, flow.load():
        worker.wait_for_event("topics.copying")
        flow.wait_until_grown(worker)
        stored = flow.records(b"mm2py-flow")
        everything = {f"{flow.name}.topics": ".*"}
        for source in (NOWHERE, None):
            with Mm2py(flow.file(flow.laptop, source, **everything)) as laptop:
                why = refused(laptop)
                assert f"group {flow.group} runs it (1 live worker, claimed 20" in why
                assert f"Set mm2py.group = {flow.group} in this file to join it." in why
                if source is None:
                    code, told = laptop.status()
                    text = f"run by group {flow.group}, and this file names group {flow.laptop}."
                    assert code == 3 and any(text in problem["text"] for problem in told["problems"]), told["problems"]
                    code, said = applied(laptop)
                    assert code == 1 and f"group {flow.group} runs it" in said
        assert flow.records(b"mm2py-flow") == stored and flow.owner() == flow.group
        flow.wait_until_grown(worker)
        assert len(worker.events("flow.ready")) == 1
        assert not worker.events("config.changed") and not worker.events("flow.failed")
        _, told = worker.status()
        assert not [problem for problem in told["problems"] if "group" in problem["text"]]
    with Mm2py(flow.file(flow.group)) as worker:
        flow.assert_exact(worker)


def test_a_worker_stores_nothing_before_its_source_answers(target_cluster: KafkaCluster) -> None:
    flow = Flow(target_cluster, target_cluster)
    with Mm2py(flow.file(flow.group, NOWHERE)) as worker:
        worker.wait_for_event("cluster.unreachable", role="source", after=worker.wait_for_event("member.joined"))
        assert not read(target_cluster, f"mm2-configs.{flow.alias}.internal")
        assert worker.terminate() == 0
    with Mm2py(flow.file(flow.group)) as worker:  # its source is its target
        assert "are the same cluster" in refused(worker)
    assert not read(target_cluster, f"mm2-configs.{flow.alias}.internal")


def test_when_the_owner_was_killed_another_group_takes_over_exactly_once_and_a_sleeper_is_refused(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """kill -9 of one of the owner's workers, kill -STOP of the other: it wakes when the flow has a new owner."""
    flow = Flow(source_cluster, target_cluster)
    with Mm2py(flow.file(flow.group)) as killed, Mm2py(flow.file(flow.group)) as sleeper, flow.load():
        for worker in (killed, sleeper):
            worker.wait_for_event("topics.copying")
        flow.wait_until_grown(killed)
        killed.kill()
        sleeper.signal(signal.SIGSTOP)
        with Mm2py(flow.file(flow.laptop)) as laptop:
            claimed = laptop.wait_for_event("flow.claimed")
            assert claimed["instead_of"] == flow.group
            assert laptop.events("flow.fencing_owner")[0]["producers"] >= 2
            laptop.wait_for_event("topics.copying")
            flow.wait_until_grown(laptop)
            sleeper.signal(signal.SIGCONT)
            assert f"group {flow.laptop} runs it (1 live worker, claimed 20" in refused(sleeper)
            flow.wait_until_grown(laptop)
            assert not laptop.events("flow.failed") and flow.owner() == flow.laptop
    with Mm2py(flow.file(flow.laptop)) as laptop:
        flow.assert_exact(laptop)


def test_a_flow_without_an_owner_gets_one_from_the_group_that_runs_it_and_no_other(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """An upgrade: an older version has written no owner, and ``tests/cluster/older`` makes one of this version."""
    flow = Flow(source_cluster, target_cluster)
    older = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "older"), OWN_PATH])}
    with Mm2py(flow.file(flow.group), environment=older) as old, flow.load():
        old.wait_for_event("topics.copying")
        flow.wait_until_grown(old)
        assert not flow.records(b"mm2py-owner")
        stored = flow.records(b"mm2py-flow")
        with Mm2py(flow.file(flow.laptop)) as laptop:
            assert re.search(rf"group {flow.group} runs it \(1 live worker: ", refused(laptop))
        assert not flow.records(b"mm2py-owner") and flow.records(b"mm2py-flow") == stored
        with Mm2py(flow.file(flow.group)) as new:
            new.wait_for_event("topics.copying")
            assert new.wait_for_event("flow.claimed")["instead_of"] is None
            assert flow.owner() == flow.group and len(old.events("flow.ready")) == 1
            assert old.terminate() == 0
            flow.wait_until_grown(new)
    with Mm2py(flow.file(flow.group)) as new:
        flow.assert_exact(new)


def test_an_owner_whose_control_log_cannot_be_read_keeps_the_flow(
    source_cluster: KafkaCluster, guarded_cluster: KafkaCluster
) -> None:
    flow = Flow(source_cluster, guarded_cluster)
    with Mm2py(flow.file(flow.group)) as worker:
        worker.wait_for_event("topics.copying")
        assert worker.terminate() == 0
    log = f"mm2-cluster.{flow.group}.internal"
    with without_right(guarded_cluster, log, AclOperation.READ):
        with Mm2py(flow.file(flow.laptop)) as laptop:
            why = refused(laptop)
        assert f"group {flow.group} may run it, and its control log cannot be read." in why
        assert f"mm2py needs DESCRIBE and READ on {log}." in why
    assert flow.owner() == flow.group
    with Mm2py(flow.file(flow.laptop)) as laptop:
        laptop.wait_for_event("topics.copying")
    assert flow.owner() == flow.laptop
