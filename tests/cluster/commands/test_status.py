"""``mm2py status`` on real brokers, as a process: before any worker has run, beside one, and after it is gone."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys

from deploy.local.kafka import KafkaCluster
from deploy.local.python_path import python_path
from tests.cluster.commands.test_refusals import member_of
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import admin, new_name, record_count, write
from tests.cluster.running import ANSWER_S, COMMAND_S, ROOT, Mm2py, one_way_properties, wait_until


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_status_before_beside_and_after_a_worker(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    topic = new_topic(source_cluster, "status")
    alias, group = new_name("S").replace("-", ""), new_name("group")
    properties = one_way_properties(
        source_cluster, target_cluster, names=(alias, "B"), **{f"{alias}->B.topics": topic, "mm2py.group": group}
    )
    write(source_cluster, topic, numbered(10))
    run = Mm2py(properties)

    code, found = run.status()
    assert (code, found["format"]) == (3, 1)
    assert [problem["kind"] for problem in found["problems"]] == ["not-running"]
    (before,), (flow,) = found["groups"], found["flows"]
    assert (before["runs"], before["members"], before["last_append_ms_ago"]) == (False, [], None)
    assert (flow["guarantee"]["level"], flow["lag"], flow["topics"][0]["not_started"]) == ("unknown", 10, 1)
    control_log = f"mm2-cluster.{group}.internal"
    assert before["topic"] == control_log
    assert control_log not in admin(target_cluster).list_topics(timeout=ANSWER_S).topics, "looking makes nothing"

    run.start()
    try:
        run.wait_until(lambda: record_count(target_cluster, f"{alias}.{topic}") == 10, "ten are copied")

        def is_well() -> bool:
            code, found = run.status()
            return code == 0 and found["flows"][0]["lag"] == 0

        run.wait_until(is_well, "it is told that all is copied")
        code, found = run.status()
        assert code == 0, found["problems"]
        (group_now,), (flow,) = found["groups"], found["flows"]
        (member,) = group_now["members"]
        assert (group_now["runs"], group_now["leader"]) == (True, member["member"])
        assert (member["state"], member["leads"], member["flows"]) == ("alive", True, [f"{alias}->B"])
        assert group_now["leader_epoch"] >= 1 and group_now["generation"] >= 1
        assert member["last_seen_ms_ago"] < 3000
        assert (flow["guarantee"]["level"], flow["coordinator"], flow["unowned"]) == (
            "exactly-once",
            member["member"],
            0,
        )
        assert flow["topics"][0]["owners"] == {member["member"]: "0"}
    finally:
        run.kill()

    write(source_cluster, topic, numbered(5))
    wait_until(lambda: run.status()[1]["groups"][0]["runs"] is False, "it is told that nobody runs")
    code, found = run.status()
    assert code == 3
    (after,), (flow,) = found["groups"], found["flows"]
    assert (after["runs"], after["leader"]) == (False, member["member"])
    assert [(one["name"], one["state"]) for one in after["members"]] == [(member["name"], "stopped")]
    assert (flow["lag"], flow["topics"][0]["lag"]) == (5, 5)


def test_watching_redraws_a_terminal_until_ctrl_c(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    topic = new_topic(source_cluster, "watched")
    alias = new_name("W").replace("-", "")
    properties = one_way_properties(source_cluster, target_cluster, names=(alias, "B"), **{f"{alias}->B.topics": topic})
    write(source_cluster, topic, numbered(3))
    idle = Mm2py(properties)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mm2py", "status", str(idle.file), "--watch", "0.3"],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": python_path(ROOT), "TERM": "xterm"},
    )
    os.close(theirs)
    try:
        seen = b""

        def has_redrawn() -> bool:
            nonlocal seen
            if select.select([ours], [], [], 1)[0]:
                seen += os.read(ours, 65536)
            return seen.count(b"\x1b[J") >= 3

        wait_until(has_redrawn, "it draws three times", deadline_s=COMMAND_S)
        assert seen.startswith(b"\x1b[H"), "from the upper left corner"
        assert b"no worker runs, and none ever did" in seen
        assert topic.encode() in seen
        process.send_signal(signal.SIGINT)
        assert process.wait(COMMAND_S) == 3
        assert process.stderr is not None and process.stderr.read() == b""
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_flow_that_mirrormaker_2_runs_says_so(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    alias = new_name("M").replace("-", "")
    properties = one_way_properties(source_cluster, target_cluster, names=(alias, "B"))
    run = Mm2py(properties)
    with member_of(target_cluster, f"{alias}-mm2"):
        code, found = run.status()
    assert code == 3
    told = {problem["where"]: problem["text"] for problem in found["problems"]}
    assert told[f"{alias}->B"] == f"MirrorMaker 2 runs it: group {alias}-mm2 on B has 1 member."
