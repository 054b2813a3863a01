"""Both images in podman, beside two brokers: little in them, and flows that stay exact. ``make test-images``.

What is run is what ``make images`` has built. Where podman or the image is missing, these tests fail and say so.
"""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from deploy.local.ports import lease_ports
from tests.cluster.copies import make_topic
from tests.cluster.kafka_client import new_name, values, write
from tests.cluster.running import COMMAND_S, DEADLINE_S, one_way_properties, wait_until

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = os.environ.get("MM2PY_IMAGE", f"localhost/mm2py:{VERSION}")
FOR_BACKFILLS = os.environ.get("MM2PY_SPARK_IMAGE", f"localhost/mm2py-spark:{VERSION}")
SIZE_MOST = 200e6
SIZE_MOST_FOR_BACKFILLS = 1200e6
STOP_S = 60
LOCKED_DOWN = ["--pull=never", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--memory=256m"]
ROOM = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"]
"""No more than a shell in a sandbox may give."""


def podman(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    """Run podman, and return what it printed. It needs no systemd, and complains of that on standard error."""
    command = ["podman", "--runtime=runc", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except FileNotFoundError:
        pytest.fail("podman is not here. Install it: apt-get install podman runc buildah debootstrap")
    assert done.returncode in codes, done.stdout + done.stderr
    return done.stdout


def in_image(program: str) -> str:
    """Run a text of Python in the image, alone, and return what it printed."""
    python = ["--entrypoint=/opt/mm2py/bin/python3", "--no-healthcheck", "--network=none"]
    return podman("run", "--rm", *LOCKED_DOWN, *ROOM, *python, IMAGE, "-c", program)


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    there = podman("images", "--format={{.Repository}}:{{.Tag}}").split()
    if missing := {IMAGE, FOR_BACKFILLS} - set(there):
        pytest.fail(f"{', '.join(missing)}: not here. make images builds it, as root.")


@contextmanager
def container(file: Path) -> Iterator[str]:
    """A worker with this file. It reaches the brokers on loopback."""
    name = new_name("mm2py-test").lower()
    mounted = f"--volume={file}:/etc/mm2py/mm2.properties:ro"
    podman("run", "--detach", f"--name={name}", "--network=host", mounted, *LOCKED_DOWN, *ROOM, IMAGE)
    try:
        yield name
    finally:
        podman("rm", "--force", "--time=0", name)


def test_the_image_says_what_it_is_and_is_small() -> None:
    (found,) = json.loads(podman("image", "inspect", IMAGE))
    assert found["Config"]["User"] == "65532:65532"
    assert found["Config"]["Labels"]["org.opencontainers.image.version"] == VERSION
    assert found["Size"] < SIZE_MOST
    healthy = found.get("Healthcheck") or found["Config"]["Healthcheck"]  # by the version of podman
    assert healthy["Test"][1:3] == ["mm2py", "health"]


def test_the_image_has_the_core_and_no_shell_no_package_manager_no_compiler_and_no_secret() -> None:
    assert "with the compiled core" in podman(
        "run", "--rm", "--no-healthcheck", "--network=none", *LOCKED_DOWN, *ROOM, IMAGE, "--version"
    )
    found = in_image(
        "import os, stat\n"
        "for folder, _, names in os.walk('/'):\n"
        "    if not folder.startswith(('/proc', '/sys', '/dev')):\n"
        "        for name in names:\n"
        "            mode = os.lstat(os.path.join(folder, name)).st_mode\n"
        "            print(name, 'setuid' if mode & (stat.S_ISUID | stat.S_ISGID) else '', os.path.join(folder, name))"
    ).splitlines()
    names = {line.split(" ")[0] for line in found}
    assert "mm2py" in names and "python3" in names
    assert not names & {"sh", "dash", "bash", "busybox", "apt", "dpkg", "pip", "pip3", "gcc", "cc", "ld", "su", "mount"}
    assert not [line for line in found if " setuid " in line]
    keys = [line for line in found if line.split(" ")[0].endswith((".key", ".p12", ".jks", ".properties"))]
    assert keys == []


def test_only_tmp_can_be_written_to() -> None:
    told = in_image(
        "import os\n"
        "for folder in ('/', '/opt/mm2py', '/usr/lib', '/etc', '/tmp'):\n"
        "    try:\n"
        "        open(os.path.join(folder, 'x'), 'w').close()\n"
        "        print('written', folder)\n"
        "    except OSError:\n"
        "        pass\n"
        "print(os.getuid(), os.getgid())"
    )
    assert told.split("\n")[:2] == ["written /tmp", "65532 65532"]


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_a_container_copies_is_healthy_and_another_one_goes_on_exactly(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path, ends: str
) -> None:
    a, topic = new_name("A"), new_name("orders")
    make_topic(source_cluster, topic, 1)
    lines = one_way_properties(source_cluster, target_cluster, names=(a, "B"), **{f"{a}->B.topics": topic})
    file = tmp_path / "mm2.properties"
    file.write_text(render_properties({**lines, "listeners": "http://127.0.0.1:0"}))
    write(source_cluster, topic, [str(number) for number in range(1000)])

    def copied() -> list[bytes]:
        return values(target_cluster, f"{a}.{topic}")

    with container(file) as name:
        wait_until(lambda: len(copied()) == 1000, "all is copied", deadline_s=DEADLINE_S)
        if ends == "stop":
            podman("stop", f"--time={STOP_S}", name)
            (found,) = json.loads(podman("container", "inspect", name))
            assert found["State"]["ExitCode"] == 0
            logs = ["podman", "logs", name]
            logged = subprocess.run(logs, capture_output=True, text=True, timeout=COMMAND_S, check=True).stderr
            assert '"worker.drained"' in logged
        else:
            podman("kill", "--signal=KILL", name)
    write(source_cluster, topic, [str(number) for number in range(1000, 1100)])
    with container(file):
        wait_until(lambda: len(copied()) >= 1100, "another one goes on", deadline_s=DEADLINE_S)
        assert copied() == [str(number).encode() for number in range(1100)]


def test_the_health_check_of_the_image_is_the_program_itself(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    (lease,) = lease_ports(1)
    lines = one_way_properties(source_cluster, target_cluster, names=(new_name("A"), "B"))
    file = tmp_path / "mm2.properties"
    file.write_text(render_properties({**lines, "listeners": f"http://127.0.0.1:{lease.port}"}))
    with container(file) as name:

        def is_healthy() -> bool:
            command = ["podman", "--runtime=runc", "healthcheck", "run", name]
            return subprocess.run(command, capture_output=True, timeout=COMMAND_S, check=False).returncode == 0

        wait_until(is_healthy, "the health check of the image succeeds", deadline_s=DEADLINE_S)
        assert podman("exec", name, "mm2py", "health", "/etc/mm2py/mm2.properties").startswith("ready: ")
    lease.release()


def test_the_image_for_backfills_copies_history_with_a_local_master_and_a_worker_goes_on(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    (found,) = json.loads(podman("image", "inspect", FOR_BACKFILLS))
    assert found["Config"]["User"] == "65532:65532"
    assert found["Config"]["Labels"]["org.opencontainers.image.version"] == VERSION
    assert found["Size"] < SIZE_MOST_FOR_BACKFILLS
    a, topic = new_name("A"), new_name("history")
    make_topic(source_cluster, topic, 1)
    lines = one_way_properties(source_cluster, target_cluster, names=(a, "B"), **{f"{a}->B.topics": topic})
    lines["config.storage.replication.factor"] = 1  # a backfill tells workers there that it copies
    file = tmp_path / "mm2.properties"
    file.write_text(render_properties({**lines, "listeners": "http://127.0.0.1:0"}))
    write(source_cluster, topic, [str(number) for number in range(1000)])
    mounted = ["--network=host", f"--volume={file}:/etc/mm2py/mm2.properties:ro"]
    locked_down = [*LOCKED_DOWN[:-1], "--memory=2g"]
    command = ["backfill", "/etc/mm2py/mm2.properties", f"{a}->B", "--topics", topic, "--master", "local[*]"]
    print(podman("run", "--rm", *mounted, *locked_down, *ROOM, FOR_BACKFILLS, *command))
    assert values(target_cluster, f"{a}.{topic}") == [str(number).encode() for number in range(1000)]
    write(source_cluster, topic, [str(number) for number in range(1000, 1100)])
    with container(file):
        wait_until(lambda: len(values(target_cluster, f"{a}.{topic}")) >= 1100, "a worker goes on")
        assert values(target_cluster, f"{a}.{topic}") == [str(number).encode() for number in range(1100)]


def test_the_image_for_backfills_starts_an_executor_as_kubernetes_asks_for_it() -> None:
    """There is no driver here: the executor begins, and says that it cannot reach the one that it is given."""
    asked = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:9",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": "app-1",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "pod-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_JAVA_OPT_0": "-Dasked.by=the test",
    }
    variables = [f"--env={name}={value}" for name, value in asked.items()]
    arguments = [*LOCKED_DOWN[:-1], "--memory=1g", *ROOM, "--network=none", *variables, FOR_BACKFILLS, "executor"]
    done = subprocess.run(
        ["podman", "--runtime=runc", "run", "--rm", *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode != 0
    assert "KubernetesExecutorBackend" in done.stdout + done.stderr, done.stderr
    assert "127.0.0.1:9" in done.stdout + done.stderr, done.stderr
