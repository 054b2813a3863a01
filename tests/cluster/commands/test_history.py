"""Who changed, paused and restarted what: told by ``mm2py history`` and ``/v1/events``, on real brokers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from deploy.local.certificates import write_private
from deploy.local.kafka import KafkaCluster
from mm2py.login import host_name, login_name
from mm2py.secret import Secret
from mm2py_rest.access.hashes import hash_token
from tests.cluster.commands.test_apply import run_apply
from tests.cluster.copies import make_topic
from tests.cluster.kafka_client import new_name
from tests.cluster.rest.serving import LISTENERS, Asked, asked
from tests.cluster.running import COMMAND_S, OWN_PATH, Mm2py, one_way_properties, wait_until

BOB = {"Authorization": f"Bearer {'b' * 40}"}


def history(file: Path, *arguments: str) -> tuple[int, str]:
    """Run the command; returns its exit code and what it printed."""
    ended = subprocess.run(
        [sys.executable, "-m", "mm2py", "history", str(file), *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
        env={"PYTHONPATH": OWN_PATH, "PATH": "/usr/bin:/bin"},
    )
    assert ended.stderr == ""
    return ended.returncode, ended.stdout


def events_since(rest: Asked, since: str, count: int) -> list[dict[str, Any]]:
    """Return the first events of a stream that are told of a flow's settings and connectors."""
    kinds = ("settings.changed", "connector.state", "restart")
    found: list[dict[str, Any]] = []
    with rest.stream("GET", "/v1/events", params={"since": since, "flow": rest.flow}, headers=BOB) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            event = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
            if event.get("kind") in kinds:
                found.append(event)
            if len(found) == count:
                break
    return found


def test_a_change_a_pause_and_a_restart_are_told_with_user_host_and_reason(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    alias, topic, file = new_name("H").replace("-", ""), new_name("orders"), tmp_path / "mm2.properties"
    flow = f"{alias}->B"
    make_topic(source_cluster, topic, 1)
    write_private(tmp_path / "users", f"bob:{hash_token(Secret('b' * 40))}:admin\n".encode())
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(alias, "B"),
        **{
            f"{flow}.topics": topic,
            "config.storage.replication.factor": 1,
            "listeners": LISTENERS,
            "rest.users.file": tmp_path / "users",
        },
    )
    with Mm2py(properties) as worker:
        worker.wait_for_event("flow.ready")
        rest = asked(worker, flow)
        code, out, err = run_apply(
            file, {**properties, f"{flow}.tasks.max": 3}, "--yes", "--reason", "raise tasks for team x"
        )
        assert (code, err) == (0, "") and "version 2 is stored" in out
        pause = {"headers": BOB, "params": {"reason": "maintenance of B"}}
        rest.told("PUT", f"{rest.connector()}/pause", 202, **pause)
        worker.wait_for_event("connector.paused")
        rest.told("PUT", f"{rest.connector()}/resume", 202, headers=BOB)
        rest.told("POST", f"{rest.connector()}/restart", 204, headers=BOB, params={"reason": "it was stuck"})
        worker.wait_for_event("connector.restarting")

        me, bob, name = (
            f"{login_name()} on {host_name()}",
            f"bob over REST on worker {host_name()}",
            "MirrorSourceConnector",
        )
        code, text = history(file, flow)
        first, second, change, *rest_of_them = [line.partition(f"  {flow}  ")[2] or line for line in text.splitlines()]
        assert code == 0 and first.startswith(f"version 1 stored by {me} (the file of worker ")
        assert second == f"version 2 stored by {me} (mm2py apply): raise tasks for team x"
        assert change.startswith("    tasks.max: ") and change.endswith(" -> '3'")
        assert rest_of_them == [
            f"{name} paused by {bob}: maintenance of B",
            f"{name} resumed by {bob}",
            f"{name} restarted by {bob}: it was stuck",
        ]

        code, text = history(file, "--json")
        entries = json.loads(text)["entries"]
        assert code == 0 and [one["kind"] for one in entries] == [
            "settings",
            "settings",
            "paused",
            "resumed",
            "restarted",
        ]
        assert [(one["user"], one["host"], one["reason"]) for one in entries[1:]] == [
            (login_name(), host_name(), "raise tasks for team x"),
            ("bob", host_name(), "maintenance of B"),
            ("bob", host_name(), ""),
            ("bob", host_name(), "it was stuck"),
        ]
        code, text = history(file, flow, "--since", str(entries[2]["at_ms"]), "--json")
        assert code == 0 and json.loads(text)["entries"] == entries[2:]

        events = events_since(rest, "1h", 5)
        assert [event["at_ms"] for event in events] == [one["at_ms"] for one in entries]
        for event, entry in zip(events, entries, strict=True):
            for field in ("user", "host", "reason"):
                assert event["data"][field] == entry[field]
        assert [event["data"].get("state") for event in events] == [None, None, "paused", "running", None]
        later = events_since(rest, str(entries[2]["at_ms"]), 3)
        assert [event["text"] for event in later] == [event["text"] for event in events[2:]]

        _, found = worker.status()
        (shown,) = found["flows"]
        stored = shown["settings"]["stored"]
        assert (stored["user"], stored["host"], stored["reason"]) == (
            login_name(),
            host_name(),
            "raise tasks for team x",
        )
        wait_until(
            lambda: rest.get(f"{rest.connector()}/status", headers=BOB).json()["connector"]["state"] == "RUNNING",
            "it runs",
        )
        assert worker.terminate() == 0
