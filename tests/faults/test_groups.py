"""Workers share partitions and stop, die, freeze, stall, starve and have different clocks.

The control log shows how the others react, and the copies are judged as in ``shared.py``.
"""

from __future__ import annotations

import random
import resource
import shutil
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from deploy.local.python_path import python_path
from mm2py.records.control_record import Fenced, Left
from tests.cluster.kafka_client import delete_topic, record_count
from tests.cluster.kafka_proxy import KafkaProxy
from tests.cluster.loads import PARTITIONS
from tests.cluster.running import PATIENCE, ROOT, Mm2py, during, pause, wait_until
from tests.faults.scene import BEGIN_S, Pair, rounds
from tests.faults.shared import PER_SECOND, SESSION_S, Failpoint, SharedScene, cpu_s, limited

LONGER_S: Final = SESSION_S + 3 * PATIENCE
"""Longer than a session: a worker that is silent for so long is evicted."""
HOUR_S: Final = 3_600.0


def again(scene: SharedScene, worker: Mm2py) -> None:
    """Wait until an evicted worker owns partitions again, as another member."""
    rejoining = worker.wait_for_event("group.rejoining", deadline_s=BEGIN_S)
    worker.wait_for_event("member.joined", after=rejoining, deadline_s=BEGIN_S)
    scene.wait_until_assigned()
    scene.wait_until_all_grow()


# Stops and kills


@pytest.mark.parametrize("how", ["clean", "hard"])
def test_a_restart_of_all_workers_in_turn_costs_no_record(pair: Pair, how: str) -> None:
    """F03, F04: three rounds. A clean stop needs no fence, a kill needs one."""
    bounces = 0
    with SharedScene(pair, f"bounced-{how}") as scene:
        for _ in range(rounds(3)):
            for worker in scene.workers:
                if how == "clean":
                    assert worker.terminate() == 0
                else:
                    worker.kill()
                worker.start()
                scene.wait_until_assigned()
                scene.wait_until_all_grow()
                bounces += 1
        if how == "clean":
            assert scene.evicted() == scene.group.records(Fenced) == []
            assert len(scene.group.records(Left)) == bounces
        else:
            assert len(scene.evicted()) == len(scene.group.records(Fenced)) == bounces
        scene.conclude()


def test_workers_that_were_all_killed_at_once_resume_where_they_were(pair: Pair) -> None:
    """F05: no worker is left to evict them; the first that returns waits for the session of its predecessor."""
    with SharedScene(pair, "all-killed") as scene:
        before = [scene.group.member_of(worker) for worker in scene.workers]
        for worker in scene.workers:
            worker.signal(signal.SIGKILL)
        for worker in scene.workers:
            assert worker.wait() == -signal.SIGKILL
        scene.loads.wait_for(PER_SECOND)
        for worker in scene.workers:
            worker.start()
        scene.wait_until_assigned()
        scene.wait_until_all_grow()
        assert sorted(scene.evicted()) == sorted(before)
        scene.conclude()


def test_workers_that_come_and_go_every_three_seconds_do_not_disturb_the_others(pair: Pair) -> None:
    """F71: one joins, stops in order or is killed every three seconds; two stay, and copy all the time."""
    chance = random.Random(71)
    with SharedScene(pair, "storm", workers=2) as scene:
        staying = list(scene.workers)
        coming = [scene.group.start_another() for _ in range(2)]
        before = copied(scene)
        for _ in during(30, "they come and go all the time"):
            worker = chance.choice(coming)
            if not worker.alive:
                worker.start()
            elif chance.random() < 0.5:
                worker.signal(signal.SIGTERM)
            else:
                worker.kill()
            pause(3, "the time between is the fault")
        more = copied(scene) - before
        for worker in coming:
            if worker.alive:
                worker.terminate()
            worker.start()
        scene.wait_until_assigned(among=4)
        scene.wait_until_all_grow()
        assert more > 10 * PER_SECOND, f"{more} records in 30 s"
        for worker in staying:
            assert not worker.events("group.rejoining"), worker.tail()
            assert len(worker.events("member.joined")) == 1
        scene.conclude()


def copied(scene: SharedScene) -> int:
    """Return the number of records in the remote topics, markers among them."""
    return sum(record_count(scene.pair.target, f"A.{topic}", range(PARTITIONS)) for topic in scene.loads.topics)


# Freezes and stalls


def test_a_leader_that_freezes_through_an_election_has_no_effect_when_it_wakes(pair: Pair) -> None:
    """F07, F08: several times; it wakes as leader of a past epoch, and comes back as another member."""
    with SharedScene(pair, "leader") as scene:
        for _ in range(rounds(2)):
            leader, was = scene.group.leader, scene.group.view().leader
            leader.signal(signal.SIGSTOP)
            frozen_s = time.monotonic()
            scene.wait_until_assigned(among=2)
            scene.wait_until_all_grow()
            assert scene.group.leader is not leader
            pause(max(0.0, frozen_s + LONGER_S - time.monotonic()), "so long it is frozen at least")
            lines = len(leader.log)
            leader.signal(signal.SIGCONT)
            wait_until(
                lambda at=lines, run=leader: [e for e in run.log[at:] if e["event"] == "member.joined"],  # type: ignore[misc]
                "it comes back",
                deadline_s=BEGIN_S,
            )
            scene.wait_until_assigned()
            scene.wait_until_all_grow()
            assert was in scene.evicted()
        assert len(scene.evicted()) == rounds(2)
        scene.conclude()


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_repeated_short_stalls_evict_no_worker(pair: Pair, leads: bool) -> None:
    """F09: two seconds of every five. More than half of the new records are copied meanwhile."""
    with SharedScene(pair, "stalls") as scene:
        stalled = scene.group.leader if leads else scene.follower
        before, begun_s = copied(scene), time.monotonic()
        for _ in range(4):
            stalled.signal(signal.SIGSTOP)
            pause(2, "the time of the stall is the fault")
            stalled.signal(signal.SIGCONT)
            pause(3, "the time between is the fault")
        more, sent = copied(scene) - before, 2 * PER_SECOND * (time.monotonic() - begun_s)
        scene.wait_until_all_grow()
        assert more > sent / 2, f"{more} of {sent:.0f}"
        assert scene.evicted() == []
        assert scene.group.view().leader_epoch == 1
        scene.conclude()


def test_a_blocked_event_loop_costs_a_membership_and_no_record(pair: Pair, tmp_path: Path) -> None:
    """F10: for longer than a session. The worker does not know of its silence until it reads the control log."""
    failpoint = Failpoint(tmp_path)
    with SharedScene(pair, "blocked", workers=2) as scene:
        blocked = scene.group.start_another(environment=failpoint.environment)
        scene.wait_until_assigned()
        was = scene.group.member_of(blocked)
        failpoint.strike(blocked, f"block {LONGER_S}")
        scene.wait_until_assigned(among=2)
        scene.wait_until_all_grow()
        again(scene, blocked)
        assert scene.evicted() == [was]
        scene.conclude()


def test_a_machine_that_slept_for_seven_hours_wakes_without_a_lease(pair: Pair, tmp_path: Path) -> None:
    """F64: longer than the target keeps a fence against it. The leader sleeps; the boot-time clock runs on."""
    failpoint = Failpoint(tmp_path)
    with SharedScene(pair, "asleep", workers=0) as scene:
        sleeper = scene.group.start_another(environment=failpoint.environment)
        sleeper.wait_for_event("member.joined")
        scene.group.start_another()
        scene.wait_until_assigned()
        assert scene.group.leader is sleeper
        sleeper.signal(signal.SIGSTOP)
        failpoint.set_clocks(boot_s=7 * HOUR_S)  # its wall clock is right again when it wakes
        scene.wait_until_assigned(among=1)
        scene.wait_until_all_grow()
        sleeper.signal(signal.SIGCONT)
        again(scene, sleeper)
        assert scene.group.leader is not sleeper
        scene.conclude()


# Clocks


def test_clocks_that_jump_and_differ_evict_no_worker(pair: Pair, tmp_path: Path) -> None:
    """F62, F63: ten minutes ahead, ten minutes behind; one of them jumps by an hour, and back by two."""
    ahead, behind = Failpoint(tmp_path), Failpoint(tmp_path)
    ahead.set_clocks(wall_s=600)
    behind.set_clocks(wall_s=-600)
    with SharedScene(pair, "clocks", workers=1) as scene:
        for failpoint in (ahead, behind):
            scene.group.start_another(environment=failpoint.environment)
        scene.wait_until_assigned()
        for wall_s in (HOUR_S, -HOUR_S):
            ahead.set_clocks(wall_s=wall_s)
            pause(LONGER_S, "a session would expire meanwhile")
            scene.wait_until_all_grow()
        assert scene.evicted() == []
        assert scene.group.view().leader_epoch == 1
        assert not any(worker.events("group.rejoining") for worker in scene.workers)
        scene.conclude()


# Limits of the machine


def test_a_worker_with_a_twentieth_of_a_processor_is_slow_and_correct(pair: Pair) -> None:
    """F11: it keeps its membership or loses it once, but does not come and go."""
    with SharedScene(pair, "starved") as scene:
        starved = scene.follower
        with limited(starved, "cpu", {"cpu.cfs_period_us": 100_000, "cpu.cfs_quota_us": 5_000}):
            pause(20, "the time of the limit is the fault")
        scene.wait_until_assigned()
        scene.wait_until_all_grow()
        print(f"evicted {len(scene.evicted())} times")
        assert len(scene.evicted()) <= 2
        scene.conclude()


def test_a_worker_that_the_kernel_kills_for_its_memory_is_replaced_by_the_others(pair: Pair, tmp_path: Path) -> None:
    """F12."""
    failpoint = Failpoint(tmp_path)
    with SharedScene(pair, "memory", workers=2) as scene:
        greedy = scene.group.start_another(environment=failpoint.environment)
        scene.wait_until_assigned()
        with limited(greedy, "memory", {"memory.limit_in_bytes": 128 << 20}):
            failpoint.strike(greedy, f"fill {1 << 30}")
            assert greedy.wait() == -signal.SIGKILL
        scene.wait_until_assigned(among=2)
        scene.wait_until_all_grow()
        assert scene.evicted() == [scene.group.member_of(greedy)]
        scene.conclude()


def test_a_worker_that_may_open_no_socket_retries_slowly_and_returns(pair: Pair) -> None:
    """F13: its connections are reset, and there are no descriptors for new ones."""
    with (
        KafkaProxy(pair.source.bootstrap) as source,
        KafkaProxy(pair.target.bootstrap) as target,
        SharedScene(pair, "descriptors", workers=2) as scene,
    ):
        poor = scene.group.start_another(
            **{"A.bootstrap.servers": source.bootstrap, "B.bootstrap.servers": target.bootstrap}
        )
        scene.wait_until_assigned()
        _, most = resource.prlimit(poor.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(poor.pid, resource.RLIMIT_NOFILE, (3, most))
        source.reset_all()
        target.reset_all()
        scene.wait_until_assigned(among=2)
        scene.wait_until_all_grow()
        used_s, begun_s = cpu_s(poor), time.monotonic()
        pause(5, "what it uses meanwhile is measured")
        passed_s, used_s = time.monotonic() - begun_s, cpu_s(poor) - used_s
        assert poor.alive
        resource.prlimit(poor.pid, resource.RLIMIT_NOFILE, (most, most))
        scene.wait_until_assigned()
        scene.wait_until_all_grow()
        print(f"{used_s / passed_s:.0%} of a processor without descriptors")
        assert passed_s > 2 * used_s
        assert "Too many open files" in poor.text()
        scene.conclude()


def test_a_worker_that_can_write_no_log_and_no_file_copies_its_partitions(pair: Pair) -> None:
    """F61: its standard error is on a full disk, and it has no place for files."""
    with SharedScene(pair, "full-disk", workers=2) as scene, open("/dev/full", "wb") as full:
        environment = {"TMPDIR": "/proc", "HOME": "/proc"}
        silent = scene.group.start_another(environment=environment, popen={"stderr": full})
        scene.wait_until_assigned(among=3)
        scene.wait_until_all_grow()
        assert silent.alive
        assert silent.terminate() == 0
        scene.wait_until_assigned(among=2)
        assert scene.evicted() == []
        scene.conclude()


# Versions and defects


def other_version(folder: Path, *, format_version: int) -> dict[str, str]:
    """Return the environment of a newer mm2py, whose control records have more fields than ours knows."""
    for package in ("mm2py", "connectors", "rest"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    codec = folder / "mm2py" / "records" / "control_codec.py"
    text = codec.read_text()
    changes = {
        "FORMAT_VERSION: Final = 1": f"FORMAT_VERSION: Final = {format_version}",
        '"version": __version__,': '"version": "99.0", "mood": "bright",',
    }
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    codec.write_text(text)
    return {"PYTHONPATH": python_path(folder)}


def test_a_rolling_upgrade_and_back_costs_no_record_and_no_fence(pair: Pair, tmp_path: Path) -> None:
    """F79: one by one to a newer version, whose records have fields that we do not know, and back again."""
    younger = other_version(tmp_path, format_version=1)
    with SharedScene(pair, "upgraded", workers=2) as scene:
        for environment in (younger, {"PYTHONPATH": python_path(ROOT)}):
            for leaving in [worker for worker in scene.workers if worker.alive]:
                scene.group.start_another(environment=environment)
                assert leaving.terminate() == 0
                scene.wait_until_assigned()
                scene.wait_until_all_grow()
        assert scene.evicted() == scene.group.records(Fenced) == []
        scene.conclude()


def test_workers_that_meet_a_mandatory_unknown_record_drain_and_name_the_version(pair: Pair, tmp_path: Path) -> None:
    """F79: the newer version copies all partitions that they release; none needs a fence."""
    younger = other_version(tmp_path, format_version=2)
    with SharedScene(pair, "too-old", workers=2) as scene:
        old = list(scene.workers)
        new = scene.group.start_another(environment=younger)
        for worker in old:
            worker.wait_until(lambda one=worker: "99.0" in one.text(), "it names the version")  # type: ignore[misc]
        new.wait_for_event("topics.copying", deadline_s=BEGIN_S)
        scene.wait_until_all_grow()
        for worker in old:
            if worker.alive:
                worker.terminate()
        scene.judge_copies(new)
        assert new.alive
    # The group has the flow, and nobody can read whether it still runs: the groups of the next tests would be refused.
    delete_topic(pair.target, scene.group.log)


def test_a_defect_in_one_worker_ends_only_its_flow_which_restarts(pair: Pair, tmp_path: Path) -> None:
    """F80: the log has the cause and the place; the others keep their partitions."""
    failpoint = Failpoint(tmp_path)
    with SharedScene(pair, "defect", workers=2) as scene:
        struck = scene.group.start_another(environment=failpoint.environment)
        scene.wait_until_assigned()
        failpoint.strike(struck, "raise")
        crashed = wait_until(lambda: planted(struck), "it tells of the defect")
        scene.wait_until_assigned()
        scene.wait_until_all_grow()
        assert crashed
        for worker in scene.workers:
            if worker is not struck:
                assert not worker.events("flow.crashed") + worker.events("flow.failed"), worker.tail()
        scene.conclude(crashes=True)


def planted(run: Mm2py) -> list[str]:
    return [line for line in run.text().splitlines() if "a defect that a test has planted" in line]
