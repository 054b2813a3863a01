"""``mm2py status`` with stored settings: flows as their workers run them, and how the file and each member differ."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mm2py.records.connector_config import FLOW_KEY, DecidedBy, FlowConfig, encode_flow
from mm2py.records.control_record import Beat
from mm2py.shared_settings.config_log import SettingsWritten, ensure_configs_topic
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_WAITS, exit_of_report
from mm2py.status.inquiry import Inquiry
from mm2py.status.report import Report, report_of
from tests.scenarios.config_world import TOPIC, log_of, put, put_as_mm2
from tests.scenarios.settings.test_settings_followed import apply, reach_all, started, world_of
from tests.scenarios.settings.test_status_command import A_TO_B, FILE, W1, W2, Link, Scene, Watching, kinds, run
from tests.scenarios.shared_world import SharedWorld
from tests.simulation.incarnation import SimulationLoop

STORED = {
    "enabled": "true",
    "topics": "orders, payments",
    "emit.heartbeats.enabled": "false",
    "offset.storage.partitions": "3",
}
"""The settings of A->B in FILE."""


async def store(
    scene: Scene, settings: Mapping[str, str], *, by: DecidedBy = DecidedBy.APPLY, version: int = 2
) -> None:
    """Store settings as a worker or an operator does."""
    properties = {name: value for name, value in {**STORED, **settings}.items() if value}
    log = await log_of(scene, f"operator-{scene.rng.random()}")
    await log.read_patiently(scene.rng)
    assert isinstance(await log.write(FlowConfig(properties, by, version), instead_of=log.config), SettingsWritten)


async def looked_at(world: SharedWorld, *, source_answers: bool = True, **extra: str) -> Report:
    """Return the command's report with a worker's file that has the lines ``extra``."""
    file = world.file(extra)
    inquiry = Inquiry(
        file,
        lambda _, cluster, __, ___: Link(
            world.source if cluster.alias == "A" else world.target, lambda *_: source_answers or cluster.alias != "A"
        ),
        clock=world.clock,
        rng=random.Random(1),
    )
    report = report_of(await inquiry.look())
    await inquiry.close()
    return report


# -- as the workers run it ---------------------------------------------------------------------------------------------


@pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)
async def test_a_topic_that_was_deselected_does_not_come_back_beside_a_source_that_does_not_answer() -> None:
    """Its position is kept, and shows nothing of that: what is stored of the settings does."""
    world = world_of()
    world.make_topics(2, 2)
    await started(world, 2, topics="t0,t1")
    await world.until(world.is_copied)
    version = await apply(world, topics="t0")
    await reach_all(world, version)
    await asyncio.sleep(60)
    assert [topic.topic for topic in (await looked_at(world, topics="t0")).flows[0].topics] == ["t0"]
    for file in ("t0", "t0,t1"):  # the file has no say
        report = await looked_at(world, source_answers=False, topics=file)
        (flow,) = report.flows
        assert [(topic.topic, topic.not_copied, topic.lag) for topic in flow.topics] == [("t0", (), 0)]
        assert [one.kind for one in report.problems if one.kind != "drift"] == ["unreachable"]


@pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)
async def test_a_flow_that_is_disabled_although_the_file_enables_it_is_a_problem() -> None:
    world = world_of()
    world.make_topics(1, 2)
    await started(world, 2, topics="t0")
    await asyncio.sleep(5)
    version = await apply(world, enabled="false")
    await reach_all(world, version, within_s=20)
    world.write("t0", 500)
    await asyncio.sleep(20)
    report = await looked_at(world, topics="t0")
    (problem,) = report.problems
    assert (problem.kind, exit_of_report(report)) == ("switched-off", EXIT_WAITS)
    assert problem.text.endswith("nothing is copied. mm2py apply FILE switches it on again.")
    (flow,) = report.flows
    assert (flow.lag, flow.settings.enabled) == (1000, False), "waiting flows are shown"


@pytest.mark.parametrize("is_whole", [True, False], ids=["positions", "gaps"])
async def test_the_stored_settings_decide_where_positions_are_and_which_ends_count_and_how_many_tasks_run(
    tmp_path: Path, *, is_whole: bool
) -> None:
    scene = Scene(1, tmp_path)
    await scene.copy("orders", [b"0", b"1"])
    scene.source.append("orders", 0, [b"2"])
    where = "offset.storage.topic" if is_whole else "status.storage.topic"
    await store(scene, {where: "elsewhere", "tasks.max": "7", "many.to.one": "true"})
    (flow,) = (await scene.found())["flows"]
    assert flow["lag"] == (3 if is_whole else 1)
    assert (flow["guarantee"]["level"], flow["tasks_max"]) == ("at-least-once", 7)
    assert "several flows write to one topic" in flow["guarantee"]["reasons"]
    assert {one["setting"]: (one["stored"], one["file"]) for one in flow["settings"]["drift"]} == {
        where: ("elsewhere", None),
        "tasks.max": ("7", None),
        "many.to.one": ("true", None),
    }


async def test_a_change_is_shown_while_watching(tmp_path: Path) -> None:
    scene = Scene(2, tmp_path)
    scene.source.create_topic("orders", 1)
    scene.source.create_topic("others", 1)
    watching = Watching(scene, "--watch", "1", "--json")

    def topics() -> list[str]:
        return sorted(topic["topic"] for topic in json.loads(watching.blocks[-1])["flows"][0]["topics"])

    await asyncio.sleep(3)
    assert topics() == ["orders"]
    await store(scene, {"topics": "others"})
    await asyncio.sleep(3)
    assert topics() == ["others"]
    scene.target.delete_topic(TOPIC)
    await asyncio.sleep(10)
    assert topics() == ["orders"], "the file counts again"
    watching.stopped.set()
    await watching.code()


# -- problems with the settings ----------------------------------------------------------------------------------------


async def test_an_equivalent_file_is_no_drift_and_the_version_is_shown(tmp_path: Path) -> None:
    scene = Scene(3, tmp_path)
    scene.source.create_topic("orders", 1)
    await store(scene, {"topics": "orders , payments", "tasks.max": ""}, version=4)
    await scene.form_group(("orders", 0), topics={"orders": 1})
    await scene.append(Beat(W1, {A_TO_B: 4}), Beat(W2, {A_TO_B: 4}))
    code, text = await scene.status()
    assert code == EXIT_DONE, text
    assert "settings: version 4, by apply, 20" in text
    assert "; applied: host1-10 4, host2-20 4\n" in text
    (flow,) = (await scene.found())["flows"]
    assert (flow["settings"]["enabled"], flow["settings"]["drift"]) == (True, [])
    assert (flow["settings"]["stored"]["version"], flow["settings"]["stored"]["by"]) == (4, "apply")


def test_a_worker_that_has_not_applied_the_stored_settings_is_shown_at_once_and_a_problem_after_a_minute(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        scene = Scene(4, tmp_path)
        await store(scene, {}, version=4)
        await scene.form_group(topics={})
        for wait_s, code in ((0, EXIT_DONE), (61, EXIT_WAITS)):
            await asyncio.sleep(wait_s)
            await scene.append(Beat(W1, {A_TO_B: 3}), Beat(W2, {A_TO_B: 4}))
            found = await scene.found()
            (flow,) = found["flows"]
            assert flow["settings"]["applied"] == [
                {"member": W1, "version": 3, "is_behind": True},
                {"member": W2, "version": 4, "is_behind": False},
            ]
            assert found["exit_code"] == code
        (problem,) = found["problems"]
        assert (problem["kind"], problem["where"]) == ("behind", "A->B")
        assert problem["text"] == "host1-10 runs it by version 3, and version 4 is stored. Its log says why."
        await scene.append(Beat(W1, {A_TO_B: 0}), Beat(W2, {}))
        code, text = await scene.status()
        assert code == EXIT_WAITS
        assert "host1-10 runs it by its own file, and version 4 is stored" in text
        assert "applied: host1-10 its own file (behind), host2-20 not yet\n" in text

    run(scenario())


async def test_the_difference_is_printed_and_complete_for_programs(tmp_path: Path) -> None:
    scene = Scene(5, tmp_path)
    many = ",".join(["orders", "payments", *(f"topic-{number}" for number in range(30))])
    await store(scene, {"topics": many})
    code, text = await scene.status()
    assert code == EXIT_WAITS
    apply = f"mm2py apply {tmp_path}/mm2.properties"
    assert f"by which the workers run (to apply it: {apply}):\n  topics: " in text
    assert "! A->B: its workers run by what is stored (version 2, by apply), NOT by this file, which differs" in text
    assert f"To make them run by the file: {apply}\n" in text and "FILE" not in text
    (change,) = (await scene.found())["flows"][0]["settings"]["drift"]
    assert (change["setting"], change["stored"], change["file"]) == ("topics", many, "orders, payments")


async def test_a_flow_that_the_file_disables_and_the_workers_run_is_drift(tmp_path: Path) -> None:
    text = FILE.replace("A->B.enabled = true", "A->B.enabled = false").replace("emit.heartbeats.enabled = false", "")
    scene = Scene(6, tmp_path, text=text)
    assert "drift" not in kinds(await scene.found())
    await store(scene, {})
    found = await scene.found()
    (problem,) = [one for one in found["problems"] if one["kind"] == "drift"]
    assert problem["text"].endswith("(version 2, by apply). mm2py apply FILE switches it off.")
    await store(scene, {"enabled": "false"}, version=3)
    assert "drift" not in kinds(await scene.found())
    scene.target.deny(TOPIC)
    found = await scene.found()
    (problem,) = [one for one in found["problems"] if one["where"] == "A->B"]
    assert (problem["kind"], found["exit_code"]) == ("unreachable", EXIT_FAILED)
    assert f"mm2py needs DESCRIBE and READ on {TOPIC}" in problem["text"]


async def test_settings_that_mirrormaker_2_wrote_over_ours_are_not_what_our_workers_run(tmp_path: Path) -> None:
    scene = Scene(7, tmp_path)
    await ensure_configs_topic(scene.target, TOPIC, replication_factor=1, rng=scene.rng)
    await put_as_mm2(scene, {"enabled": "true", "topics": "java", "source.cluster.bootstrap.servers": "a:1"})
    (flow,) = (await scene.found())["flows"]
    assert (flow["settings"]["stored"], flow["settings"]["drift"]) == (None, [])
    await store(scene, {"topics": "one"})
    await put_as_mm2(scene, {"enabled": "true", "topics": "java", "source.cluster.bootstrap.servers": "a:1"})
    (flow,) = (await scene.found())["flows"]
    assert [one["stored"] for one in flow["settings"]["drift"]] == ["one"]


async def test_unreadable_settings_are_named_and_the_rest_is_shown_by_the_file(tmp_path: Path) -> None:
    scene = Scene(8, tmp_path)
    await scene.copy("orders", [b"0"])
    await store(scene, {"topics": "others"})
    scene.target.deny(TOPIC)
    found = await scene.found()
    (flow,) = found["flows"]
    assert found["exit_code"] == EXIT_FAILED
    assert any(f"mm2py needs DESCRIBE and READ on {TOPIC}" in why for why in flow["unread"])
    assert (flow["settings"]["stored"], flow["lag"], flow["topics"][0]["topic"]) == (None, 0, "orders")


async def test_settings_of_a_newer_mm2py_are_named_with_its_version(tmp_path: Path) -> None:
    scene = Scene(9, tmp_path)
    await store(scene, {})
    younger: dict[str, Any] = json.loads(encode_flow(FlowConfig({}, DecidedBy.FILE, 9, written_by="9.9.9")))
    await put(scene, (FLOW_KEY, json.dumps({**younger, "readable_from": 99}).encode()))
    found = await scene.found()
    assert found["exit_code"] == EXIT_FAILED
    assert any("mm2py 9.9.9 wrote it" in why for why in found["flows"][0]["unread"])


async def test_stored_settings_that_this_file_cannot_run_are_refused_and_none_of_their_secrets_is_printed(
    tmp_path: Path,
) -> None:
    scene = Scene(10, tmp_path)
    await store(scene, {"topics": "orders, A.ssl.key.password = hunter2", "x.password": "hunter2"})
    text = "".join([(await scene.status("--all"))[1], (await scene.status("--json"))[1]])
    found = await scene.found()
    assert (found["exit_code"], "refused" in kinds(found)) == (EXIT_WAITS, True)
    assert "must not be stored" in text
    assert "hunter2" not in text
