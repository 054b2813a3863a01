"""``mm2py dr failover`` when the cluster is lost to which a cutover has led: the way back is a failover as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.dr.test_cutover import IDENTITY, CutoverScene
from tests.cluster.kafka_client import record_count, values, write
from tests.cluster.running import ANSWER_S, OWN_PATH, PATIENCE

pytestmark = pytest.mark.timeout(600 * PATIENCE)


def test_the_cluster_to_which_a_cutover_led_is_lost(
    source_cluster: KafkaCluster, make_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    lost = make_cluster("lost-target")
    scene = CutoverScene(source_cluster, lost, tmp_path, IDENTITY)
    with scene.run:
        scene.run.wait_for_event("topics.copying", flow=scene.flow)
        write(source_cluster, scene.topic, [f"before {at}" for at in range(20)])
        code, text = scene.call("cutover")
        assert code == 0 and scene.is_fenced(scene.a), text
        write(lost, scene.topic, [f"behind {at}" for at in range(20)])
        scene.run.wait_until(lambda: record_count(source_cluster, scene.topic) >= 40, "A is exact", deadline_s=ANSWER_S)
        lost.broker(1).kill()
        hook = f"{scene.hook} {scene.folder}"
        command = ["failover", str(scene.run.file), scene.back, "--accept-loss", "--yes"]
        found = subprocess.run(
            [sys.executable, "-m", "mm2py", "dr", *command, "--hook-fence", hook, "--hook-switch", hook],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240 * PATIENCE,
            check=False,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
        )
        assert found.returncode == 0, found.stdout
        assert (scene.at, scene.is_fenced(scene.a)) == (scene.a, False), found.stdout
        assert len(values(source_cluster, scene.topic)) == 40
        text = scene.run.dr("history", scene.flow, "--json")[1]
        runs = json.loads(text[text.index("{") :])["runs"]
        assert [(one["verb"], one["flow"], one["state"]) for one in runs] == [
            ("cutover", scene.flow, "Reversed"),
            ("failover", scene.back, "FailedOver"),
        ]
