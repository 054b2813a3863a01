"""Recoveries work with the rights that docs/rights.md names for them, as a user of their own: nothing is denied.

The worker's user may do everything here: what it needs is tested by ``test_least_rights``. Commands connect by
``A.dr.*`` and ``B.dr.*``. Producers are stopped by a hook, so of the rows of ``fence`` only some are used: they are
tested there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import make_topic
from tests.cluster.dr.test_cutover import IDENTITY
from tests.cluster.group_offsets import commit
from tests.cluster.kafka_client import new_name, offsets, values, write
from tests.cluster.least_rights import PASSWORD, GuardedPair, Right, assert_least, guarded_pair, rights_of
from tests.cluster.running import ANSWER_S, OWN_PATH, PATIENCE, Mm2py, Value, two_way_properties

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 * PATIENCE)]

LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
HOOKS: Final = ("--hook-fence", "true", "--hook-switch", "true")
EVERYTHING: Final = ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")


class RightsScene:
    """A pair of clusters with a group that has stopped, and a worker of both flows."""

    def __init__(self, pair: GuardedPair) -> None:
        self.pair = pair
        self.a, self.b = new_name("R").replace("-", ""), new_name("S").replace("-", "")
        self.flow, self.back = f"{self.a}->{self.b}", f"{self.b}->{self.a}"
        self.topic, self.group, self.workers = new_name("orders"), new_name("billing"), new_name("workers")
        make_topic(pair.source, self.topic)
        self.write(pair.source)
        self._settings: dict[str, Value] = {
            "topics": self.topic,
            "groups": self.group,
            "mm2py.group": self.workers,
            "replication.policy.class": IDENTITY,
            f"{self.back}.standby": True,
            "config.storage.replication.factor": 1,
            "sync.topic.configs.enabled": False,
            "emit.checkpoints.enabled": True,
            **{f"{name}.interval.seconds": 1 for name in ("emit.checkpoints", "refresh.groups")},
        }
        self.worker = pair.grant([*_everything()])
        self.run = Mm2py(self.properties(self.worker))

    def write(self, cluster: KafkaCluster) -> None:
        write(cluster, self.topic, [b"%d" % number for number in range(10)])

    def properties(self, user: str) -> dict[str, Value]:
        """Return the file by which the worker runs, and recoveries connect as the user."""
        pair = self.pair
        found = two_way_properties(
            pair.source.bootstrap_for("SASL"), pair.target.bootstrap_for("SASL"), names=(self.a, self.b)
        )
        for alias in (self.a, self.b):
            for name, login in ((alias, self.worker), (f"{alias}.dr", user)):
                found |= {
                    f"{name}.security.protocol": "SASL_PLAINTEXT",
                    f"{name}.sasl.mechanism": "PLAIN",
                    f"{name}.sasl.jaas.config": f'{LOGIN} username="{login}" password="{PASSWORD}";',
                }
        return found | self._settings

    def rights(self, *purposes: str) -> list[Right]:
        names = {"A": self.a, "B": self.b, "TOPIC": self.topic, "GROUP": self.group, "NAME": self.workers}
        copy = f"{self.a}.{self.topic}"
        return [replace(one, name=self.topic) if one.name == copy else one for one in rights_of(purposes, names)]

    def rights_back(self, purpose: str) -> list[Right]:
        """Return the same for the flow back: a verb that fences one cluster in one direction fences the other later."""
        other = {"A": "B", "B": "A"}
        names = {"A": self.b, "B": self.a, "TOPIC": self.topic, "GROUP": self.group, "NAME": self.workers}
        return [replace(one, on=other[one.on]) for one in rights_of([purpose], names)]

    def wait_for_checkpoint(self, offset: int) -> None:
        """Wait until the last checkpoint of the group is behind an offset."""

        def is_there() -> bool:
            groups = json.loads(self.run._output_of("groups", self.flow, "--json")[1])["groups"]
            parts = [part for one in groups if one["group"] == self.group for part in one["partitions"]]
            return [part["checkpoint_source_offset"] for part in parts] == [offset]

        self.run.wait_until(is_there, "its commit is checkpointed", deadline_s=ANSWER_S)

    def call(self, user: str, verb: str, flow: str, *arguments: str, code: int = 0) -> str:
        """Run a verb as a user, and return what it prints."""
        file = Path(self.run.directory) / f"{user}.properties"
        file.write_text(render_properties(self.properties(user)))
        ended = subprocess.run(
            [sys.executable, "-m", "mm2py", "dr", verb, str(file), flow, "--yes", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=300 * PATIENCE,
            check=False,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
        )
        assert ended.returncode == code, f"dr {verb} ended with {ended.returncode}:\n{ended.stdout}"
        return ended.stdout


def _everything() -> Iterator[Right]:
    for on in ("A", "B"):
        for operation in EVERYTHING:
            yield Right(on, "topic", "*", operation)
        for operation in ("READ", "DESCRIBE", "DELETE"):
            yield Right(on, "group", "*", operation)
        for operation in ("WRITE", "DESCRIBE"):
            yield Right(on, "transactional id", "*", operation)
        for operation in ("ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "CREATE"):
            yield Right(on, "cluster", "kafka-cluster", operation)


def test_a_drill_and_all_verbs_of_a_recovery() -> None:
    with guarded_pair() as pair:
        scene = RightsScene(pair)
        drills, fails_over = scene.rights("drill"), scene.rights("failover")
        recovers = scene.rights("recoveries")
        copying = [one for one in scene.rights("copying") if one.on == "B"]
        driller = pair.grant(drills)
        recoverer = pair.grant([*recovers, *scene.rights("fence"), *scene.rights_back("fence")])
        survivor = pair.grant([*fails_over, *copying])
        with scene.run as run:
            commit(pair.source, scene.group, scene.topic, 5)
            run.wait_until(lambda: len(values(pair.target, scene.topic)) == 10, "it copies", deadline_s=ANSWER_S)
            scene.wait_for_checkpoint(5)
            assert "PROVEN: every group" in scene.call(driller, "drill", scene.flow)

            scene.call(recoverer, "cutover", scene.flow, *HOOKS)
            scene.call(recoverer, "rollback", scene.flow, *HOOKS)
            scene.call(recoverer, "complete", scene.back, "--unverified")
            commit(pair.source, scene.group, scene.topic, 7)
            scene.wait_for_checkpoint(7)
            told = scene.call(driller, "drill", scene.flow, code=3)  # with a ledger of the flow back
            assert "NOT PROVEN: 1 group, partitions: 1 exact" in told and "they could not write there [fenced]" in told
            assert_least(pair, driller, drills)
            scene.call(survivor, "failover", scene.flow, "--accept-loss", "--source-is-lost", *HOOKS)
            made = [one for one in fails_over if one.operation != "CREATE"]  # the journal is there since the cutover
            assert_least(pair, survivor, made)

            scene.write(pair.source)
            assert "has 10 record(s)" in scene.call(recoverer, "extras", scene.flow, code=3)
            scene.call(recoverer, "reinstate", scene.flow, "--replay", *HOOKS[:2])
            commit(pair.target, scene.group, scene.topic, offsets(pair.target, scene.topic)[1])
            scene.call(recoverer, "failback", scene.flow, *HOOKS)
            scene.call(recoverer, "complete", scene.back, "--unverified")
            assert "Nothing is to be changed" in scene.call(recoverer, "turn", scene.flow)
            assert_least(pair, recoverer, recovers)
            assert run.terminate() == 0
