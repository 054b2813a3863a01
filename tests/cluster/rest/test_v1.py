"""``/v1`` beside a real worker between real clusters. What routes answer on made-up facts: tests/unit/rest."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import make_topic, new_topic
from tests.cluster.group_offsets import commit
from tests.cluster.kafka_client import new_name, record_count, write
from tests.cluster.rest.serving import with_token
from tests.cluster.running import ANSWER_S, COMMAND_S, OWN_PATH, Mm2py, one_way_properties, wait_until

Event = dict[str, Any]


class Scene:
    """A worker of one flow, with topics that are copied and others that are not."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.source, self.target = source, target
        self.alias, self.group = new_name("V").replace("-", ""), new_name("app")
        self.flow = f"{self.alias}->B"
        self.orders, self.filled = new_topic(source, "orders"), new_topic(source, "filled")
        self.excluded, self.other = new_topic(source, "tmp"), new_topic(source, "other")
        self.remote = f"{self.alias}.{self.orders}"
        for topic in (self.orders, self.filled, self.other):
            write(source, topic, [b"%d" % number for number in range(20)])
        make_topic(target, f"{self.alias}.{self.filled}", 1)
        write(target, f"{self.alias}.{self.filled}", ["foreign"])
        commit(source, self.group, self.orders, 12)
        properties = one_way_properties(
            source,
            target,
            names=(self.alias, "B"),
            **{
                f"{self.flow}.topics": f"{self.orders},{self.filled},{self.excluded}",
                f"{self.flow}.topics.exclude": "tmp.*",
                f"{self.flow}.groups": self.group,
                "config.storage.replication.factor": 1,
                "offset.lag.max": 50,
                "emit.checkpoints.enabled": True,
                "emit.checkpoints.interval.seconds": 1,
                "sync.group.offsets.enabled": True,
                "sync.group.offsets.interval.seconds": 1,
                "listeners": "http://127.0.0.1:0",
                f"{self.alias}.client.id": "canary-4711-token",
            },
        )
        self.run = Mm2py(properties)

    def start(self) -> None:
        self.run.start()
        self.at = self.run.wait_for_event("rest.listening")["at"]
        self.run.wait_until(lambda: record_count(self.target, self.remote) == 20, "twenty are copied")
        self.run.wait_for_event("topic.refused")

    def get(self, path: str, *, status: int = 200) -> Any:
        answer = httpx2.get(f"{self.at}/v1/{path}", timeout=ANSWER_S)
        assert answer.status_code == status, answer.text
        return answer.json()

    def of_flow(self, path: str) -> Any:
        return self.get(f"flows/{self.flow}/{path}")

    def change(self, **settings: str) -> None:
        name = f"{self.flow}.MirrorSourceConnector"
        answer = httpx2.patch(f"{self.at}/connectors/{name}/config", json=settings, auth=with_token, timeout=ANSWER_S)
        assert answer.status_code == 200, answer.text

    def command(self, *arguments: str) -> Any:
        command = [sys.executable, "-m", "mm2py", arguments[0], str(self.run.file), *arguments[1:]]
        environment = {"PYTHONPATH": OWN_PATH, "PATH": "/usr/bin:/bin"}
        ended = subprocess.run(command, capture_output=True, timeout=COMMAND_S, check=False, env=environment)
        assert ended.stdout, ended.stderr.decode()
        return json.loads(ended.stdout)

    @contextmanager
    def events(self, last_id: str | None = None) -> Iterator[queue.Queue[Event]]:
        """Read the stream in a thread; each event has its ``id`` beside it."""
        found: queue.Queue[Event] = queue.Queue()
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        ended = threading.Event()

        def read() -> None:
            with httpx2.stream(
                "GET", f"{self.at}/v1/events?flow={self.flow}", headers=headers, timeout=ANSWER_S
            ) as answer:
                event: Event = {}
                for line in answer.iter_lines():
                    if ended.is_set():
                        return
                    name, _, value = line.partition(": ")
                    if name in ("id", "event", "data", "retry"):
                        event[name] = value
                    if not line and event:
                        found.put(event)
                        event = {}

        threading.Thread(target=read, daemon=True).start()
        try:
            yield found
        finally:
            ended.set()


def next_of(events: queue.Queue[Event], kind: str) -> Event:
    """Return the next event of a kind."""
    while True:
        event = events.get(timeout=ANSWER_S)
        if event.get("event") == kind:
            return {**json.loads(event["data"]), "id": event["id"]}


@pytest.fixture(scope="module")
def scene(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Scene]:
    found = Scene(source_cluster, target_cluster)
    try:
        found.start()
        yield found
    finally:
        found.run.kill()


def test_the_flow_its_clusters_and_its_worker_are_told(scene: Scene) -> None:
    def runs() -> Any:
        (flow,) = scene.get("flows")["items"]
        return flow if flow["state"] == "running" and flow["lag_records"] == 20 else None  # those of the refused topic

    flow = wait_until(runs, "it is told that all is copied")
    assert (flow["flow"], flow["topics_copied"], flow["guarantee"]["level"]) == (scene.flow, 1, "exactly-once")
    assert [one["cluster"] for one in scene.get("clusters")["items"]] == ["B", scene.alias]
    (worker,) = scene.get("workers")["items"]
    assert worker["member"]["leads"] and flow["coordinator"] == worker["member"]["member"]


def test_topics_are_copied_or_say_why_not(scene: Scene) -> None:
    items, after = [], ""
    while True:
        page = scene.of_flow(f"topics?limit=1000{after}")
        items += page["items"]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    topics = {one["topic"]: one for one in items}
    assert topics[scene.orders]["is_copied"] and topics[scene.orders]["remote_topic"] == scene.remote
    assert (topics[scene.orders]["lag_records"], topics[scene.orders]["lag_s"]) == (0, 0)
    assert (topics[scene.excluded]["reason"], topics[scene.other]["reason"]) == ("excluded", "not-included")
    assert topics["__consumer_offsets"]["reason"] == "internal"
    version = scene.of_flow("config")["stored"]["version"]
    where = rf"stored as version [1-{version}] by file, .+, [-0-9]+T[:0-9]+Z"
    for name, why in (
        (scene.excluded, rf"Pattern `tmp\.\*` \(entry 1 of topics\.exclude, {where}\) matches it\."),
        (scene.other, rf"No pattern of topics \({where}\) matches it\."),
    ):
        assert re.fullmatch(why, topics[name]["why"]), topics[name]

    def refused() -> Any:
        found = scene.of_flow("topics?copied=false&limit=1000")["items"]
        return next((one for one in found if one["topic"] == scene.filled and one["reason"] == "refused"), None)

    assert "not empty" in wait_until(refused, "the worker has told why")["why"]


def test_a_partition_tells_position_end_start_and_owner(scene: Scene) -> None:
    def copied() -> Any:
        (found,) = scene.of_flow(f"topics/{scene.orders}/partitions")["items"]
        return found if found["position"] == 20 else None

    part = wait_until(copied, "the position is stored")
    assert (part["start"], part["end"], part["target_position"], part["lag_records"]) == (0, 20, 20, 0)
    assert part["owner"] == scene.get("workers")["items"][0]["member"]["member"] and part["open_gaps"] == []


def test_groups_and_translations_are_those_of_the_commands(scene: Scene) -> None:
    def ready() -> Any:
        found = scene.of_flow("groups")
        return found if found["exit_code"] == 0 and found["total"] else None

    found = wait_until(ready, "the group could go on on the target")
    (group,) = found["groups"]
    assert (group["group"], group["partitions"][0]["committed"], group["is_exact"]) == (scene.group, 12, True)
    printed = scene.command("groups", scene.flow, "--json")
    assert {**printed, "at_ms": found["at_ms"], "next": None, "total": 1} == found
    (part,) = group["partitions"]
    assert part["checkpoint_source_offset"] == 12 and 0 < part["checkpoint_at_ms"] <= printed["at_ms"]
    path = f"translate?topic={scene.orders}&partition=0&offset=7&offset=30"
    asked = ("--topic", scene.orders, "--partition", "0", "--offset", "7", "30", "--json")
    told = scene.of_flow(path)
    printed = scene.command("translate", scene.flow, *asked)
    assert told["at_ms"] < printed["at_ms"]
    assert told == {**printed, "at_ms": told["at_ms"]}
    assert [one["kind"] for one in told["offsets"]] == ["copied", "not_yet"]
    again = scene.of_flow(path)
    assert {**again, "at_ms": told["at_ms"]} == told, "the tables that were read are used again"


def test_settings_say_where_they_come_from_and_show_no_secret(scene: Scene) -> None:
    found = scene.of_flow("config")
    settings = {one["name"]: one for one in found["settings"]}
    assert (found["stored"]["version"], found["stored"]["by"]) == (1, "file")
    assert settings["topics"]["origin"] == "stored" and settings["topics"]["file"]["key"] == f"{scene.flow}.topics"
    assert settings["source.consumer.bootstrap.servers"]["value"] == "[address]"
    worker = {one["name"]: one for one in scene.get("config")["settings"]}
    assert (worker["mm2py.group"]["origin"], worker["listeners"]["origin"]) == ("file", "file")
    assert scene.source.bootstrap not in json.dumps([found, worker])


def test_a_gap_is_listed_as_the_command_does_and_nothing_is_in_quarantine(scene: Scene) -> None:
    with scene.events() as events:
        events.get(timeout=ANSWER_S)  # it is connected
        write(scene.target, scene.remote, ["from elsewhere"])
        write(scene.source, scene.orders, ["one more"])
        event = next_of(events, "gap")
    assert (event["flow"], event["data"]["kind"], event["data"]["topic"]) == (
        scene.flow,
        "foreign-records",
        scene.orders,
    )

    def listed() -> Any:
        return scene.of_flow("gaps?all=true")["items"]

    found = wait_until(listed, "the gap is listed")
    assert found == scene.command("gaps", "--json", "--all")
    assert scene.of_flow("quarantine") == {"items": [], "next": None, "total": 0, "unread": []}


def test_changed_settings_are_an_event_and_a_stream_goes_on_behind_its_last_one(scene: Scene) -> None:
    with scene.events() as events:
        events.get(timeout=ANSWER_S)
        scene.change(**{"offset.lag.max": "60"})
        first = next_of(events, "settings.changed")
    assert (first["data"]["by"], first["data"]["settings"]) == ("rest", ["offset.lag.max"])
    assert first["data"]["changes"] == ["offset.lag.max: '50' -> '60'"]
    scene.change(**{"offset.lag.max": "70"})
    with scene.events(first["id"]) as events:
        second = next_of(events, "settings.changed")
    assert second["data"]["version"] == first["data"]["version"] + 1, "the first one does not come again"
    assert scene.of_flow("config")["stored"]["by"] == "rest"


def test_another_worker_that_joins_and_leaves_is_an_event(scene: Scene) -> None:
    with scene.events() as events:
        events.get(timeout=ANSWER_S)
        with Mm2py(scene.run.file, arguments=["--log-level", "info"]) as second:
            joined = next_of(events, "member.joined")
            assert next_of(events, "assignment.changed")["data"]["generation"] >= 2
            assert second.terminate() == 0
        left = next_of(events, "member.left")
    assert joined["data"]["member"] == left["data"]["member"] and joined["group"].endswith(" on B")


def test_an_event_id_that_is_none_and_an_unknown_flow_are_refused(scene: Scene) -> None:
    answer = httpx2.get(f"{scene.at}/v1/events", headers={"Last-Event-ID": "x"}, timeout=ANSWER_S)
    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)
    assert scene.get("flows/X->Y", status=404)["error_code"] == 404
