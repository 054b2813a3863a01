"""Real mirrors under load are taken over in mid-stream, and get the flow back: nothing is lost, nothing is repeated.

They are MirrorMaker 2 as a process of its own, its connectors on a Kafka Connect, and a Kafka Connect that is set up as
Strimzi sets it up. Each goes on from what ``mm2py handback`` has stored.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.jars import jar_directory
from deploy.local.jvm import JavaServer
from deploy.local.kafka import KafkaCluster
from deploy.local.ports import HOST, lease_ports
from mm2py.records.checkpoint import decode
from tests.checker.check import check_copy
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.copies import answered, assert_copied, bounds_of, dump, new_topic
from tests.cluster.group_offsets import commit
from tests.cluster.kafka_client import admin, new_name, topic_names
from tests.cluster.running import COMMAND_S, OWN_PATH, PATIENCE, Mm2py, one_way_properties, pause, wait_until

MIRROR_DEADLINE_S = 120.0 * PATIENCE
PARTITIONS = 4
PER_SECOND = 200
RUNS_S = 4
"""How long each mirror copies, under load, before the other one takes over."""
CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"

pytestmark = pytest.mark.timeout(400 * PATIENCE)


class Mirror(ABC):
    """A mirror that is no mm2py, and the flow that it copies."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, folder: Path) -> None:
        self.source, self.target, self.folder = source, target, folder
        self.aliases = (new_name("S"), new_name("T"))
        self.topic = new_topic(source, f"{self.aliases[0]}-orders", PARTITIONS)
        self.flow = "->".join(self.aliases)
        self.file = folder / "mm2py.properties"
        self.app = f"{self.aliases[0]}-app"
        """A consumer group of the topic on the source."""

    @property
    def remote(self) -> str:
        return f"{self.aliases[0]}.{self.topic}"

    @abstractmethod
    def running(self) -> Any:
        """Run it until the block ends, and end it there in order, as its operator does."""

    @property
    @abstractmethod
    def origin(self) -> list[str]:
        """The options of ``mm2py takeover`` that name it."""

    @property
    @abstractmethod
    def way_back(self) -> list[str]:
        """The options of ``mm2py handback`` that name it."""

    def write_file(self) -> None:
        """Let ``mm2py takeover`` write the file, and add what only a test needs."""
        assert self.command("takeover", *self.origin)[0] == 0
        own = {"listeners": "", "mm2py.group": new_name("group"), "topics.watch.interval.ms": 200}
        self.file.write_text(f"{self.file.read_text()}\n{render_properties(own)}")

    def command(self, name: str, *arguments: str) -> tuple[int, str]:
        """Run a command with the file; return its exit code, and all that it prints."""
        ended = subprocess.run(
            [sys.executable, "-m", "mm2py", name, str(self.file), *arguments],
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
        )
        return ended.returncode, (ended.stdout + ended.stderr).decode()

    def records_on_target(self) -> int:
        """Return how many records each partition of the copy has at least."""
        if self.remote not in topic_names(self.target):
            return 0
        ends = answered(lambda: bounds_of(self.target, self.remote, range(PARTITIONS)))
        return min(one.end for one in ends.values())


class Dedicated(Mirror):
    """MirrorMaker 2 as a process of its own. mm2py reads its file."""

    origin = property(lambda self: [])
    way_back = property(lambda self: [])

    def write_file(self) -> None:
        properties = one_way_properties(self.source, self.target, names=self.aliases) | {
            f"{self.flow}.topics": self.topic,
            f"{self.aliases[1]}.offset.flush.interval.ms": 1000,
            "emit.checkpoints.enabled": False,
            "sync.topic.acls.enabled": False,
            "config.storage.replication.factor": 1,
            "tasks.max": 2,
            "listeners": f"http://{HOST}:0",  # MirrorMaker 2 does not start with an empty one
        }
        self.file.write_text(render_properties(properties))

    @contextmanager
    def running(self) -> Iterator[None]:
        server = JavaServer(
            "org.apache.kafka.connect.mirror.MirrorMaker",
            [str(self.file)],
            jars=jar_directory(),
            log_path=self.folder / "mm2.log",
        )
        server.start()
        try:
            yield
        finally:
            server.stop(timeout_s=60)


class Connect(Mirror):
    """The connectors of MirrorMaker 2 on a Kafka Connect, which runs all the time."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, folder: Path) -> None:
        super().__init__(source, target, folder)
        (self._lease,) = lease_ports(1)
        self.group = new_name("connect")
        self.names = {kind: self.name_of(kind) for kind in ("Source", "Checkpoint", "Heartbeat")}
        worker = {
            "bootstrap.servers": target.bootstrap,
            "group.id": self.group,
            **{f"{one}.storage.topic": f"{self.group}-{one}" for one in ("config", "offset", "status")},
            **{f"{one}.storage.replication.factor": 1 for one in ("config", "offset", "status")},
            **{f"{one}.converter": CONVERTER for one in ("key", "value", "header")},
            "listeners": f"http://{HOST}:{self._lease.port}",
            "offset.flush.interval.ms": 1000,
            "plugin.discovery": "service_load",
            "plugin.path": str(jar_directory()),
        }
        (folder / "connect.properties").write_text(render_properties(worker))
        self.server = JavaServer(
            "org.apache.kafka.connect.cli.ConnectDistributed",
            [str(folder / "connect.properties")],
            jars=jar_directory(),
            log_path=folder / "connect.log",
        )

    def name_of(self, kind: str) -> str:
        return f"{kind.lower()}-of-{self.aliases[0]}"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._lease.port}"

    @property
    def origin(self) -> list[str]:
        return ["--from-connect", self.url]

    @property
    def way_back(self) -> list[str]:
        return ["--to-connect", self.url]

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask its REST; 0: it does not answer yet."""
        connection = http.client.HTTPConnection(HOST, self._lease.port, timeout=COMMAND_S)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            is_json = "json" in (answer.getheader("Content-Type") or "")  # while it starts, it answers 404 in HTML
            return answer.status, json.loads(text) if is_json else None
        except OSError:
            return 0, None
        finally:
            connection.close()

    def config_of(self, kind: str) -> Mapping[str, object]:
        source, target = self.aliases
        of_kind: dict[str, object] = {
            "Source": {
                "topics": self.topic,
                "tasks.max": 2,
                "replication.factor": 1,
                "offset-syncs.topic.replication.factor": 1,
                "sync.topic.acls.enabled": False,
                "heartbeats.replication.enabled": False,
                "header.converter": CONVERTER,
            },
            "Checkpoint": {
                "topics": self.topic,
                "groups": self.app,
                "checkpoints.topic.replication.factor": 1,
                "emit.checkpoints.interval.seconds": 1,
                "refresh.groups.interval.seconds": 1,
            },
            "Heartbeat": {"heartbeats.topic.replication.factor": 1},
        }[kind]
        return {
            "connector.class": f"org.apache.kafka.connect.mirror.Mirror{kind}Connector",
            "source.cluster.alias": source,
            "target.cluster.alias": target,
            "source.cluster.bootstrap.servers": self.source.bootstrap,
            "target.cluster.bootstrap.servers": self.target.bootstrap,
            **of_kind,
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """Its connectors run; the switch stops them, so nothing is ended here."""
        self.server.start()
        wait_until(lambda: self.ask("GET", "/connectors")[0] == 200, "it answers", deadline_s=MIRROR_DEADLINE_S)
        for kind, name in self.names.items():
            path = f"/connectors/{quote(name, safe='')}"
            if self.ask("GET", path)[0] == 200:
                assert self.ask("PUT", f"{path}/resume")[0] == 202
            else:
                assert self.ask("PUT", f"{path}/config", self.config_of(kind))[0] == 201
        yield

    def close(self) -> None:
        self.server.stop(timeout_s=60)
        self._lease.release()


class Strimzi(Connect):
    """A Kafka Connect as Strimzi's operator sets it up: its resource is all that mm2py gets, and its topics."""

    def name_of(self, kind: str) -> str:
        return f"{self.flow}.Mirror{kind}Connector"

    @property
    def resource(self) -> Path:
        path = self.folder / "mirror.json"
        given = {
            kind: {"config": {k: v for k, v in self.config_of(kind).items() if ".cluster." not in k and "." in k}}
            for kind in self.names
        }
        for one in given.values():
            del one["config"]["connector.class"]
        source, target = self.aliases
        spec = {
            "connectCluster": target,
            "clusters": [
                {"alias": source, "bootstrapServers": self.source.bootstrap},
                {
                    "alias": target,
                    "bootstrapServers": self.target.bootstrap,
                    "config": {
                        "group.id": self.group,
                        **{f"{one}.storage.topic": f"{self.group}-{one}" for one in ("config", "offset", "status")},
                    },
                },
            ],
            "mirrors": [
                {
                    "sourceCluster": source,
                    "targetCluster": target,
                    "sourceConnector": {**given["Source"], "tasksMax": 2},
                    "checkpointConnector": given["Checkpoint"],
                    "heartbeatConnector": given["Heartbeat"],
                    "topicsPattern": self.topic,
                }
            ],
        }
        named = {"apiVersion": "kafka.strimzi.io/v1beta2", "kind": "KafkaMirrorMaker2", "metadata": {"name": "mirror"}}
        path.write_text(json.dumps({**named, "spec": spec}))
        return path

    @property
    def origin(self) -> list[str]:
        return ["--from-strimzi", str(self.resource)]

    @property
    def way_back(self) -> list[str]:
        return ["--to-strimzi", str(self.resource)]

    @contextmanager
    def running(self) -> Iterator[None]:
        with super().running():
            yield
        code, told = self.command("takeover", *self.origin, "--yes")
        assert (code, "kubectl patch kafkamirrormaker2 mirror" in told) == (1, True), told
        self.server.stop(timeout_s=60)


@pytest.mark.parametrize("form", [Dedicated, Connect, Strimzi])
def test_a_mirror_is_taken_over_under_load_and_gets_the_flow_back(
    form: type[Mirror], source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    mirror = form(source_cluster, target_cluster, tmp_path)
    load = Load(
        source_cluster.internal_bootstrap,
        mirror.topic,
        Traffic(seed=91, partitions=PARTITIONS),
        codecs=["none", "lz4"],
        per_second=PER_SECOND,
    )
    with ExitStack() as ending:
        if isinstance(mirror, Connect):
            ending.callback(mirror.close)
        if isinstance(mirror, Dedicated):
            mirror.write_file()
        with load.in_background():
            with mirror.running():
                _copies(mirror)
                if not isinstance(mirror, Dedicated):
                    mirror.write_file()
            _members_leave(mirror)
            code, told = mirror.command("takeover", *mirror.origin, "--plan")
            assert (code, mirror.topic in told) == (0 if form is Dedicated else 3, True), told
            code, told = mirror.command("takeover", *mirror.origin, "--yes")
            assert code == 0, told
            with Mm2py(mirror.file) as run:
                assert run.wait_for_event("flow.ready", deadline_s=MIRROR_DEADLINE_S)["positions"] == PARTITIONS
                _copies(mirror)
                if isinstance(mirror, Connect):
                    committed, translated = _follows_a_group(mirror)
                    assert translated == committed, "the copy began with the topic: both logs have the same offsets"
                code, told = mirror.command("handback", mirror.flow, *mirror.way_back, "--yes")
                assert (code, "Stop them" in told) == (1, True), told
                assert run.terminate() == 0
            code, told = mirror.command("handback", mirror.flow, *mirror.way_back, "--plan")
            assert (code, f"{PARTITIONS} positions" in told) == (3, True), told
            code, told = mirror.command("handback", mirror.flow, *mirror.way_back, "--yes")
            assert code == 0, told
            ending.enter_context(mirror.running())
            _copies(mirror)
            if isinstance(mirror, Connect):
                committed, translated = _follows_a_group(mirror)
                assert 0 < translated <= committed, "MirrorMaker 2 goes on from the offset syncs of mm2py"
        wait_until(lambda: _is_complete(mirror), "it has copied all there is", deadline_s=MIRROR_DEADLINE_S)
        report = assert_copied(source_cluster, target_cluster, mirror.topic, mirror.remote)
    assert load.acknowledged > RUNS_S * PER_SECOND, report


def _copies(mirror: Mirror) -> None:
    """Let a mirror copy for a while, from where it is."""
    before = mirror.records_on_target()
    wait_until(lambda: mirror.records_on_target() > before, "it copies to each partition", deadline_s=MIRROR_DEADLINE_S)
    pause(RUNS_S, "it copies under load")


def _follows_a_group(mirror: Mirror) -> tuple[int, int]:
    """Let a group commit what is copied, and return the checkpoint that follows: its offset on both clusters."""
    at = bounds_of(mirror.target, mirror.remote)[0].end
    commit(mirror.source, mirror.app, mirror.topic, at)

    def followed() -> tuple[int, int] | None:
        records = answered(lambda: dump(mirror.target, f"{mirror.aliases[0]}.checkpoints.internal"))[0]
        found = [decode(one.key, one.value) for one in records]
        ours = [one for one in found if (one.group, one.partition) == (mirror.app, 0)][-1:]
        return next(((one.upstream_offset, one.downstream_offset) for one in ours if one.upstream_offset == at), None)

    return wait_until(followed, "a checkpoint follows the group", deadline_s=MIRROR_DEADLINE_S)


def _members_leave(mirror: Mirror) -> None:
    """Wait until the group of a mirror that was ended is empty."""
    if type(mirror) is not Connect:
        group = mirror.group if isinstance(mirror, Connect) else f"{mirror.aliases[0]}-mm2"
        wait_until(lambda: not admin(mirror.target).list_groups(group)[0].members, "its group is empty")


def _is_complete(mirror: Mirror) -> bool:
    source, target = mirror.source.internal_bootstrap, mirror.target.internal_bootstrap
    report = answered(lambda: check_copy(source, target, {mirror.topic: mirror.remote}))
    return not any({"I1", "I12"} & verdict.breaches.keys() for verdict in report.verdicts)
