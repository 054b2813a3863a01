"""A group of two versions: its workers are replaced one at a time under load, to the later version and back again.

The earlier version is a wheel built from git. It runs without the compiled core, which belongs to this checkout.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest

from deploy.local.kafka import KafkaCluster
from mm2py.records.control_record import Joined
from tests.cluster.group.test_group import SHARED, UNHURRIED, Copies
from tests.cluster.groups import Group
from tests.cluster.installed_versions import BEFORE_PACKAGES, installed_of, installed_of_checkout
from tests.cluster.kafka_client import new_name
from tests.cluster.running import COMMAND_S, Mm2py

pytestmark = pytest.mark.slow  # two wheels are built
OLD, NEW = "old", "new"


class Versions:
    """Both versions, and how a worker of each is started."""

    def __init__(self, earlier: Path, later: Path) -> None:
        self.pythons: Final = {OLD: earlier, NEW: later}

    def start(self, group: Group, version: str) -> Mm2py:
        core = {"MM2PY_NATIVE": "0" if version == OLD else "require"}
        return group.start_another(python=self.pythons[version], environment=core)


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Versions:
    return Versions(
        installed_of(BEFORE_PACKAGES, tmp_path_factory.mktemp(OLD)), installed_of_checkout(tmp_path_factory.mktemp(NEW))
    )


def place_of_mm2py(python: Path) -> Path:
    """Return where an environment has its mm2py."""
    code = "import json, mm2py, mm2py_connectors; print(json.dumps([mm2py.__file__, mm2py_connectors.__file__]))"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, timeout=COMMAND_S, check=True)
    first, second = map(Path, json.loads(done.stdout))
    assert first.parents[1] == second.parents[1]
    return first.parents[1]


def test_each_environment_has_an_mm2py_of_its_own(versions: Versions) -> None:
    places = {name: place_of_mm2py(python) for name, python in versions.pythons.items()}
    for name, python in versions.pythons.items():
        assert places[name].is_relative_to(python.parents[1])
    assert not (places[OLD] / "mm2py" / "cli" / "completion.py").exists(), "the command came with the packages"
    assert (places[NEW] / "mm2py" / "cli" / "completion.py").exists()


def test_a_group_is_rolled_forth_and_back_under_load_and_nothing_is_lost_or_repeated(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, versions: Versions
) -> None:
    """Each step: one worker of one version stops, and one of the other joins; on the way one of each is killed."""
    copies = Copies(source_cluster, target_cluster, new_name("rolled"))
    with Group(target_cluster, copies.properties() | UNHURRIED, workers=0) as group:
        running = [versions.start(group, OLD), versions.start(group, OLD)]
        with copies:
            group.wait_until_assigned(SHARED)
            copies.wait_until_all_grow()
            for version in (NEW, NEW, OLD, OLD):
                stopped = running.pop(0)
                assert stopped.terminate() == 0
                running.append(versions.start(group, version))
                group.wait_until_assigned(SHARED)
                copies.wait_until_all_grow()
            assert len({record.member for record in group.records(Joined)}) == 6
        copies.assert_exact(running[0])
        assert copies.markers() == {}, "nobody was fenced: each partition was handed over in order"
        assert [one.terminate() for one in running] == [0, 0]
        group.assert_steady()


@pytest.mark.parametrize(("killed", "takes_over"), [(OLD, NEW), (NEW, OLD)], ids=["upgrade", "downgrade"])
def test_each_version_takes_over_from_a_killed_worker_of_the_other(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, versions: Versions, killed: str, takes_over: str
) -> None:
    copies = Copies(source_cluster, target_cluster, new_name("taken"))
    with Group(target_cluster, copies.properties(), workers=0) as group:
        dies, stays = versions.start(group, killed), versions.start(group, takes_over)
        with copies:
            group.wait_until_assigned(SHARED)
            copies.wait_until_all_grow()
            dies.signal(signal.SIGKILL)
            group.wait_until_assigned(SHARED, among=1)
            copies.wait_until_all_grow()
        copies.assert_exact(stays)
        assert copies.markers(), "the dead worker was fenced"
        assert stays.terminate() == 0
        group.assert_steady(but=(dies,))
