"""Connect's REST against workers that copy: what it tells, and what the workers do of what it asks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mm2py.login import host_name
from mm2py.shared_settings.config_log import ConfigTable
from mm2py_rest.clusters.live import FRESH_S
from tests.scenarios.config_world import TOPIC
from tests.scenarios.paused_world import FOLLOWED_S, copied, states, under_load
from tests.scenarios.process import Process
from tests.scenarios.rest.rest_world import CHECKPOINT, HEARTBEAT, SOURCE, FakeLink, Rest, rest_of
from tests.scenarios.shared_world import SharedWorld
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

FOLLOWED_WHOLE_S = 20.0
"""As long as a flow may take to drain and start again."""


@contextlib.asynccontextmanager
async def one_worker(**extra: str) -> AsyncIterator[tuple[SharedWorld, Process, Rest]]:
    """One worker that copies ``t0``, with two partitions, and its REST."""
    lines = {"config.storage.replication.factor": "1", **extra}
    world = SharedWorld(extra=lines)
    world.make_topics(1, 2)
    world.write("t0", 3)
    worker = world.start()
    await world.until(lambda: world.is_fully_assigned() and world.is_copied())
    async with rest_of(world) as rest:
        yield world, worker, rest


def names(*kinds: str) -> list[str]:
    return [f"A->B.Mirror{kind}Connector" for kind in kinds]


async def state(rest: Rest, connector: str = SOURCE) -> str:
    found: str = (await rest.told("GET", f"{connector}/status", 200))["connector"]["state"]
    return found


# What is told


async def test_a_flow_is_three_connectors_with_a_task_for_each_worker_that_copies() -> None:
    extra = {"emit.heartbeats.enabled": "true", "emit.checkpoints.enabled": "true"}
    async with under_load(2, **extra) as (world, _), rest_of(world) as rest:
        back = "B->A.MirrorHeartbeatConnector"  # MirrorMaker 2 has it, too: B's heartbeats for a flow to come
        assert await rest.told("GET", "/connectors", 200) == [*names("Checkpoint", "Heartbeat", "Source"), back]
        status = await rest.told("GET", f"{SOURCE}/status", 200)
        version = {"version": "0.1.0"}
        assert status == {
            "name": "A->B.MirrorSourceConnector",
            "connector": {"state": "RUNNING", "worker_id": status["connector"]["worker_id"], **version},
            "tasks": [{"id": at, "state": "RUNNING", "worker_id": f"w{at + 1}", **version} for at in (0, 1)],
            "type": "source",
        }
        for connector in (CHECKPOINT, HEARTBEAT, f"/connectors/{back}"):
            (task,) = (await rest.told("GET", f"{connector}/status", 200))["tasks"]
            assert task["state"] == "RUNNING"
        expanded = await rest.told("GET", "/connectors?expand=status&expand=info", 200)
        assert expanded["A->B.MirrorSourceConnector"]["status"] == status
        info = expanded["A->B.MirrorSourceConnector"]["info"]
        assert info == await rest.told("GET", SOURCE, 200)
        assert (info["type"], info["tasks"][1]) == ("source", {"connector": info["name"], "task": 1})
        assert await rest.told("GET", f"{SOURCE}/tasks/1/status", 200) == status["tasks"][1]
        tasks = await rest.told("GET", f"{SOURCE}/tasks", 200)
        assert [task["id"] for task in tasks] == info["tasks"]
        assert tasks[0]["config"] == info["config"] | {"task.class": "org.apache.kafka.connect.mirror.MirrorSourceTask"}
        topics = {"topics": ["A.heartbeats", "A.t0", "A.t1"]}
        assert await rest.told("GET", f"{SOURCE}/topics", 200) == {info["name"]: topics}


async def test_a_partition_that_has_stopped_makes_its_task_failed_with_the_reason_as_its_trace() -> None:
    async with one_worker(**{"on.source.gap": "stop"}) as (world, _, rest):
        await rest.told("PUT", f"{SOURCE}/pause", 202)
        await world.until(lambda: states(world) == {"paused"})
        world.write("t0", 5)
        world.source.delete_records("t0", 0, world.source.records("t0", 0)[-1].offset)
        await rest.told("PUT", f"{SOURCE}/resume", 202)

        async def failed() -> dict[str, Any] | None:
            (task,) = (await rest.told("GET", f"{SOURCE}/status", 200))["tasks"]
            return task if task["state"] == "FAILED" else None

        async with asyncio.timeout(60):
            while (task := await failed()) is None:
                await asyncio.sleep(1)
        assert task["trace"].startswith("t0-0 has stopped (")
        assert task["trace"].endswith("It waits for an operator: see mm2py gaps.")
        assert await state(rest) == "RUNNING", "the other partition is copied"


async def test_without_a_worker_connectors_are_unassigned() -> None:
    world = SharedWorld()
    world.make_topics(1, 1)
    async with rest_of(world) as rest:
        status = await rest.told("GET", f"{SOURCE}/status", 200)
        assert (status["connector"], status["tasks"]) == ({"state": "UNASSIGNED", "worker_id": ""}, [])


async def test_while_the_target_is_away_what_was_known_is_told_and_nothing_is_changed() -> None:
    async with one_worker() as (_, _, rest):
        assert await state(rest) == "RUNNING"
        rest.away.add("B")
        await asyncio.sleep(10)
        assert await rest.told("GET", "/connectors", 200) == names("Source")
        for method, path, body in (
            ("PATCH", f"{SOURCE}/config", {"topics": "x"}),
            ("PUT", f"{SOURCE}/pause", None),
            ("POST", f"{SOURCE}/restart", None),
            ("DELETE", f"{SOURCE}/offsets", None),
        ):
            told = await rest.told(method, path, 500, json=body)
            assert told["message"] == "Request timed out. The target cluster does not answer."
        rest.away.clear()
        await asyncio.sleep(5)
        assert (await rest.get(f"{SOURCE}/config")).headers["etag"] == '"1"'
        assert await state(rest) == "RUNNING"


async def test_nothing_is_changed_while_a_mirrormaker_2_runs_the_flow() -> None:
    """MirrorMaker 2 follows the same topic, and reads pauses and restarts there as well."""
    async with one_worker() as (world, _, rest):
        await rest.told("PUT", f"{SOURCE}/stop", 204)
        await world.until(lambda: states(world) == {"stopped"})
        world.target.groups.activate("A-mm2", protocol_type="connect")
        before = len(world.target.records("mm2-configs.A.internal", 0))
        for method, path, body in (
            ("PATCH", f"{SOURCE}/config", {"topics": "x"}),
            ("PUT", f"{SOURCE}/config", {"topics": "x"}),
            ("DELETE", SOURCE, None),
            ("PUT", f"{SOURCE}/resume", None),
            ("POST", f"{SOURCE}/restart", None),
            ("PUT", "/admin/loggers/root?scope=cluster", {"level": "DEBUG"}),
            ("DELETE", f"{SOURCE}/offsets", None),
        ):
            told = await rest.told(method, path, 409, json=body)
            assert "group A-mm2 on B has 1 member(s). Stop MirrorMaker 2 for this flow first" in told["message"]
        assert len(world.target.records("mm2-configs.A.internal", 0)) == before
        world.target.groups.deactivate("A-mm2")
        await rest.told("PUT", f"{SOURCE}/resume", 202)


# Settings


async def test_a_changed_setting_is_applied_by_all_workers_within_two_seconds_without_a_restart() -> None:
    async with under_load(2) as (world, processes), rest_of(world) as rest:
        before = [len(process.said("flow.ready")) for process in processes]
        body = {"topics": "t0", "tasks.max": 2}
        changed = await rest.told("PATCH", f"{SOURCE}/config", 200, json=body)
        assert (changed["version"], changed["restarts_for"]) == (2, [])
        assert (changed["config"]["topics"], changed["config"]["tasks.max"]) == ("t0", "2"), "numbers are texts"
        await world.until(lambda: all(one.said("config.changed") for one in processes), within_s=FOLLOWED_S)
        assert (await rest.told("GET", f"{SOURCE}/config", 200))["topics"] == "t0", "who changes sees the change"
        restored = await rest.told("PATCH", f"{SOURCE}/config", 200, json={"topics": None})
        assert "topics" not in restored["config"]
        assert [len(process.said("flow.ready")) for process in processes] == before


async def test_a_put_config_replaces_all_settings_and_names_those_for_which_the_flow_restarts() -> None:
    async with one_worker(topics="t0") as (_, _, rest):
        config = await rest.told("GET", f"{SOURCE}/config", 200)
        same = await rest.told("PUT", f"{SOURCE}/config", 200, json=config)
        assert (same["version"], same["restarts_for"]) == (1, []), "what was read may be written back"
        config = {**config, "exactly.once.source.support": "preparing", "errors.tolerance": "none"}
        del config["topics"]
        changed = await rest.told("PUT", f"{SOURCE}/config", 200, json=config)
        assert (changed["version"], changed["restarts_for"]) == (2, ["exactly.once.source.support"])
        assert changed["without_effect"] == ["errors.tolerance"]
        assert "topics" not in changed["config"]


async def test_if_match_lets_only_one_of_two_editors_write() -> None:
    """B36."""
    async with one_worker() as (_, _, rest):
        read = await rest.get(f"{SOURCE}/config")
        assert read.headers["etag"] == '"1"'
        first, second = await asyncio.gather(
            *(
                rest.patch(f"{SOURCE}/config", json={"topics": topics}, headers={"If-Match": '"1"'})
                for topics in ("one", "two")
            )
        )
        assert sorted((first.status_code, second.status_code)) == [200, 409]
        lost = first if first.status_code == 409 else second
        assert lost.headers["retry-after"] == "1"
        assert lost.json() == {"error_code": 409, "message": "Version 2 is stored, and not 1."}
        await rest.told("PATCH", f"{SOURCE}/config", 400, json={}, headers={"If-Match": '"x"'})
        await rest.told("PATCH", f"{SOURCE}/config", 200, json={}, headers={"If-Match": "*"})


async def test_two_workers_that_store_at_once_leave_one_order_of_versions() -> None:
    """B36."""
    async with one_worker() as (world, _, rest), rest_of(world, name="w2") as other:
        answers = await asyncio.gather(
            *(
                asked.patch(f"{SOURCE}/config", json={"offset.lag.max": number})
                for number, asked in enumerate((rest, other) * 5, 1)
            )
        )
        assert {answer.status_code for answer in answers} <= {200, 409}
        stored = {one.json()["version"]: one.json()["config"] for one in answers if one.status_code == 200}
        assert len(stored) == sum(answer.status_code == 200 for answer in answers) >= 1
        await asyncio.sleep(FRESH_S)  # so long one may answer without what the other one has stored
        config = await rest.told("GET", f"{SOURCE}/config", 200)
        assert config["offset.lag.max"] == stored[max(stored)]["offset.lag.max"]


async def test_wrong_settings_are_refused_each_with_its_reason_and_nothing_changes() -> None:
    """B35."""
    async with one_worker() as (_, _, rest):
        wrong = {"tasks.max": "many", "no.such": "x", "source.cluster.bootstrap.servers": "169.254.169.254:80"}
        told = await rest.told("PATCH", f"{SOURCE}/config", 400, json=wrong)
        first, *lines = told["message"].splitlines()
        assert first == "Connector configuration is invalid and contains the following 3 error(s):"
        assert lines == [
            "tasks.max: it is not a whole number",
            "no.such: there is no such setting of a flow",
            "source.cluster.bootstrap.servers: addresses and credentials cannot be changed over REST;"
            " each worker has them in its own file",
        ]
        assert (await rest.get(f"{SOURCE}/config")).headers["etag"] == '"1"'


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
async def test_a_pattern_that_would_cost_gigabytes_is_refused_before_it_is_stored(method: str) -> None:
    """17 characters cost each worker 2,300 MB, were stored for all, and outlasted a restart."""
    async with one_worker() as (_, _, rest):
        told = await rest.told(method, f"{SOURCE}/config", 400, json={"topics": "(?:a{3000}){3000}"})
        assert "topics: it is not a list of patterns" in told["message"] and "300,000" in told["message"]
        assert (await rest.get(f"{SOURCE}/config")).headers["etag"] == '"1"'


# Switching off and on


async def test_delete_switches_a_flow_off_and_post_switches_it_on_again() -> None:
    async with one_worker(**{"emit.checkpoints.enabled": "true"}) as (world, worker, rest):
        assert await rest.told("GET", "/connectors", 200) == names("Checkpoint", "Source")
        taken = {"name": "A->B.MirrorSourceConnector", "config": {}}
        assert "already exists" in (await rest.told("POST", "/connectors", 409, json=taken))["message"]
        assert await rest.told("DELETE", SOURCE, 204) is None
        assert await rest.told("GET", "/connectors", 200) == []
        for path in ("", "/status", "/config", "/topics", "/tasks"):
            gone = (await rest.told("GET", SOURCE + path, 404))["message"]
            assert gone.startswith("Connector A->B.MirrorSourceConnector not found.")
        await rest.told("DELETE", SOURCE, 404)
        first = {"name": "A->B.MirrorCheckpointConnector", "config": {}}
        assert "is switched off" in (await rest.told("POST", "/connectors", 409, json=first))["message"]
        await world.until(lambda: worker.said("flow.changing"), within_s=FOLLOWED_S)
        await asyncio.sleep(5)
        before = copied(world)
        world.write("t0", 3)
        await asyncio.sleep(10)
        assert copied(world) == before
        answer = await rest.post("/connectors", json={**taken, "config": {"topics": "t0"}})
        assert answer.status_code == 201
        assert answer.headers["location"] == "/connectors/A-%3EB.MirrorSourceConnector"
        assert answer.json()["config"]["topics"] == "t0"
        await world.until(world.is_copied, within_s=FOLLOWED_WHOLE_S)
        assert not worker.said("flow.failed")


async def test_put_config_of_a_connector_that_is_switched_off_creates_it() -> None:
    async with one_worker(topics="t0") as (_, _, rest):
        await rest.told("PUT", f"{CHECKPOINT}/config", 201, json={"groups": "g"})
        assert await rest.told("GET", "/connectors", 200) == names("Checkpoint", "Source")
        config = await rest.told("GET", f"{SOURCE}/config", 200)
        assert (config["topics"], config["groups"]) == ("t0", "g"), "the flow keeps its settings"
        await rest.told("DELETE", CHECKPOINT, 204)
        assert await rest.told("GET", "/connectors", 200) == names("Source")
        assert await state(rest) == "RUNNING"


async def test_a_connector_may_be_created_paused_and_once_deleted_it_is_paused_no_more() -> None:
    async with one_worker() as (world, _, rest):
        await rest.told("DELETE", SOURCE, 204)
        body = {"name": "A->B.MirrorSourceConnector", "config": {"no.such": 1}, "initial_state": "STOPPED"}
        await rest.told("POST", "/connectors", 400, json=body)
        body |= {"config": {}, "initial_state": "PAUSED"}
        await rest.told("POST", "/connectors", 201, json=body)
        await world.until(lambda: states(world) == {"paused"}, within_s=FOLLOWED_WHOLE_S)
        await rest.told("DELETE", SOURCE, 204)
        await rest.told("POST", "/connectors", 201, json={**body, "initial_state": None})
        await world.until(lambda: states(world) == {"running"}, within_s=FOLLOWED_WHOLE_S)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("A->C.MirrorSourceConnector", "enables no flow A->C. Define both clusters"),
        ("B->A.MirrorSourceConnector", "enables no flow B->A. Define both clusters"),
        ("sink", "mm2py has no such connector. Name it A->B.KIND"),
        ("A->B.off", "mm2py has no such connector."),
        ("A->B.FileStreamSource", "mm2py has no such connector."),
    ],
)
async def test_what_the_file_does_not_enable_cannot_be_created_and_the_answer_says_what_to_do(
    name: str, why: str
) -> None:
    """B34."""
    async with rest_of(SharedWorld()) as rest:
        told = await rest.told("POST", "/connectors", 400, json={"name": name, "config": {}})
        assert why in told["message"]


# Pause, stop, restart


async def test_paused_stopped_and_resumed_on_all_workers_and_shown_so() -> None:
    async with under_load(2) as (world, _), rest_of(world) as rest:
        for _ in range(2):  # both are idempotent
            assert await rest.told("PUT", f"{SOURCE}/pause", 202) is None
        await world.until(lambda: states(world) == {"paused"}, within_s=FOLLOWED_S)
        status = await rest.told("GET", f"{SOURCE}/status", 200)
        assert (status["connector"]["state"], {task["state"] for task in status["tasks"]}) == ("PAUSED", {"PAUSED"})
        await rest.told("PUT", f"{SOURCE}/stop", 204)
        status = await rest.told("GET", f"{SOURCE}/status", 200)
        assert (status["connector"]["state"], status["tasks"]) == ("STOPPED", [])
        before = copied(world)
        await rest.told("PUT", f"{SOURCE}/resume", 202)
        await world.until(lambda: copied(world) > before, within_s=FOLLOWED_S)
        assert await state(rest) == "RUNNING"


async def test_what_is_asked_over_rest_names_its_user_the_workers_host_and_the_reason() -> None:
    """Clients of Connect send no reason, and need none."""
    async with one_worker() as (world, worker, rest):
        await rest.told("PUT", f"{SOURCE}/pause", 202, params={"reason": " für Team x "})
        await world.until(lambda: states(world) == {"paused"}, within_s=FOLLOWED_S)
        by = f"anonymous over REST on worker {host_name()}"
        assert worker.said("connector.paused")[-1]["why"] == f"paused by {by}: für Team x"
        await rest.told("PUT", f"{SOURCE}/resume", 202)
        await rest.told("PATCH", f"{SOURCE}/config", 200, json={"tasks.max": "2"}, params={"reason": "more"})
        await rest.told("POST", f"{SOURCE}/restart", 204, params={"reason": "stuck"})
        await rest.told("POST", "/v1/flows/A->B/topics/t0/restart", 202, params={"partition": 1, "reason": "late"})
        await world.until(lambda: bool(worker.said("connector.restarting")), within_s=FOLLOWED_S)
        assert worker.said("connector.restarting")[-1]["why"] == f"asked for by {by}: stuck"
        table = ConfigTable(world.target, TOPIC)
        await table.read_patiently(world.rng)
        name = "MirrorSourceConnector"
        assert [entry.text for entry in table.records.entries()][-5:] == [
            f"{name} paused by {by}: für Team x",
            f"{name} resumed by {by}",
            f"version 2 stored by {by}: more",
            f"{name} restarted by {by}: stuck",
            f"t0-1 restarted by {by}: late",
        ]


@pytest.mark.parametrize("reason", ["x" * 201, "two\nlines", "password=hunter2"])
async def test_a_reason_that_may_not_be_shown_is_refused_and_nothing_is_asked(reason: str) -> None:
    async with one_worker() as (world, _, rest):
        before = len(world.target.records(TOPIC, 0))
        told = await rest.told("PUT", f"{SOURCE}/pause", 400, params={"reason": reason})
        assert "hunter2" not in told["message"] and "eason" in told["message"]
        assert len(world.target.records(TOPIC, 0)) == before


async def test_a_restart_is_answered_as_connect_does_and_happens_once_on_each_worker() -> None:
    async with under_load(2) as (world, processes), rest_of(world) as rest:
        starts = [len(process.said("flow.ready")) for process in processes]

        async def restarted(method_path: str, code: int) -> Any:
            told = await rest.told("POST", f"{SOURCE}/{method_path}", code)
            for at, process in enumerate(processes):
                await world.until(
                    lambda process=process, at=at: len(process.said("flow.ready")) == starts[at] + 1,
                    within_s=FOLLOWED_S + 2,
                )
                starts[at] += 1
            return told

        assert await restarted("restart", 204) is None
        status = await restarted("restart?includeTasks=true", 202)
        assert status["connector"]["state"] == status["tasks"][1]["state"] == "RESTARTING"
        assert await restarted("tasks/1/restart", 204) is None
        status = await rest.told("POST", f"{SOURCE}/restart?includeTasks=true&onlyFailed=true", 202)
        assert status["connector"]["state"] == status["tasks"][1]["state"] == "RUNNING", "nothing has failed"
        await asyncio.sleep(5)
        assert [len(process.said("flow.ready")) for process in processes] == starts
        assert (await rest.told("POST", f"{SOURCE}/tasks/7/restart", 404))["message"].startswith("Unknown task")


async def test_one_topic_or_one_partition_restarts() -> None:
    async with under_load(1) as (world, (worker,)), rest_of(world) as rest:
        await rest.told("POST", "/v1/flows/A->B/topics/t0/restart", 202)
        await rest.told("POST", "/v1/flows/A-%3EB/topics/t1/restart?partition=2", 202)
        for path in ("A->B/topics/none/restart", "A->B/topics/t1/restart?partition=3", "C->B/topics/t0/restart"):
            await rest.told("POST", f"/v1/flows/{path}", 404)
        await rest.told("POST", "/v1/flows/A->B/topics/t1/restart?partition=-1", 400)
        await world.until(lambda: len(worker.said("partitions.restarted")) == 2, within_s=FOLLOWED_S)


# Offsets


async def shown(rest: Rest) -> dict[int, int]:
    """Return the offset of each partition of ``t0``."""
    found = (await rest.told("GET", f"{SOURCE}/offsets", 200))["offsets"]
    return {one["partition"]["partition"]: one["offset"]["offset"] for one in found}


def wanted(*offsets: tuple[int, int | None], cluster: str = "A") -> dict[str, Any]:
    return {
        "offsets": [
            {
                "partition": {"cluster": cluster, "topic": "t0", "partition": partition},
                "offset": None if offset is None else {"offset": offset},
            }
            for partition, offset in offsets
        ]
    }


async def test_offsets_of_a_stopped_connector_are_altered_and_copying_goes_on_behind_them() -> None:
    """B39."""
    async with one_worker() as (world, _, rest):
        await asyncio.sleep(5)
        before = await shown(rest)
        ends = {number: world.source.records("t0", number)[-1].offset for number in (0, 1)}
        assert before == ends
        told = await rest.told("PATCH", f"{SOURCE}/offsets", 400, json=wanted((0, 1)))
        assert "must be in the STOPPED state" in told["message"]
        assert (await rest.told("DELETE", f"{SOURCE}/offsets", 400))["error_code"] == 400
        await rest.told("PUT", f"{SOURCE}/stop", 204)
        told = await rest.told("PATCH", f"{SOURCE}/offsets", 200, json=wanted((0, 1)))
        assert told == {"message": "The offsets for this connector have been altered successfully"}
        assert await shown(rest) == {**before, 0: 1}
        for wrong in (
            wanted((0, -1)),
            wanted((9, 1)),
            wanted((0, 10**6)),
            wanted((0, 1), cluster="B"),
            {"offsets": []},
        ):
            assert (await rest.told("PATCH", f"{SOURCE}/offsets", 400, json=wrong))["error_code"] == 400
        assert await shown(rest) == {**before, 0: 1}
        copies = len(world.target.records("A.t0", 0))
        await rest.told("PUT", f"{SOURCE}/resume", 202)
        again = len(world.source.records("t0", 0)) - 2
        await world.until(lambda: len(world.target.records("A.t0", 0)) == copies + again, within_s=FOLLOWED_WHOLE_S)


async def test_deleted_offsets_copy_a_flow_once_more() -> None:
    async with one_worker() as (world, _, rest):
        await asyncio.sleep(5)
        copies = len(world.target.records("A.t0", 0))
        await rest.told("PUT", f"{SOURCE}/stop", 204)
        told = await rest.told("DELETE", f"{SOURCE}/offsets", 200)
        assert told == {"message": "The offsets for this connector have been reset successfully"}
        assert await shown(rest) == {}
        await rest.told("PUT", f"{SOURCE}/resume", 202)
        await world.until(lambda: len(world.target.records("A.t0", 0)) == 2 * copies, within_s=FOLLOWED_WHOLE_S)


# Loggers


async def test_one_worker_or_all_of_them_log_more() -> None:
    """B41."""
    link = FakeLink()
    async with under_load(2) as (world, processes), rest_of(world, link) as rest:
        assert await rest.told("GET", "/admin/loggers", 200) == {"root": {"level": "INFO", "last_modified": None}}
        assert await rest.told("PUT", "/admin/loggers/root", 200, json={"level": "warn"}) == ["root"]
        assert link.level == "warning"
        assert (await rest.told("GET", "/admin/loggers/root", 200))["level"] == "WARN"
        assert await rest.told("PUT", "/admin/loggers/root?scope=cluster", 204, json={"level": "DEBUG"}) is None
        await world.until(lambda: all(one.said("log.level") for one in processes), within_s=FOLLOWED_S)
        newcomer = world.start()
        await world.until(world.is_fully_assigned)
        await asyncio.sleep(5)
        assert not newcomer.said("log.level"), "it counts for workers that ran when it was asked"
        await rest.told("PUT", "/admin/loggers/root", 400, json={})
        await rest.told("PUT", "/admin/loggers/root", 404, json={"level": "LOUD"})
        await rest.told("PUT", "/admin/loggers/org.apache", 404, json={"level": "INFO"})
        link.is_silent = True
        await rest.told("GET", "/admin/loggers", 503)


@pytest.mark.virtual_time(limit_s=40_000.0)
async def test_a_change_is_taken_also_hours_after_the_last_one() -> None:
    """An idle producer may be forgotten by the brokers, so its gate shuts after hours. REST began no other one."""
    world = SharedWorld(extra={"config.storage.replication.factor": "1"})
    world.make_topics(1, 2)
    async with rest_of(world) as rest:  # no worker: its heartbeats would fill seven hours
        await rest.told("PUT", f"{SOURCE}/pause", 202)
        await asyncio.sleep(7 * 3600)
        await rest.told("PUT", f"{SOURCE}/resume", 202)
        await rest.told("PATCH", f"{SOURCE}/config", 200, json={"offset.lag.max": 7})
