"""What a cutover waits for, what is refused meanwhile, what is told while it can be undone, and ``dr complete``."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.dr.test_cutover import IDENTITY, RUN_S, CutoverScene, scene_of
from tests.cluster.running import ANSWER_S, OWN_PATH, PATIENCE, wait_until
from tests.cluster.switched_load import PREFIXED, switched_load

pytestmark = pytest.mark.timeout(900 * PATIENCE)

AHEAD_S: Final = 40.0 * PATIENCE
"""The process takes its time to start on a busy machine, and refuses a time that is past."""


def command(scene: CutoverScene, words: str, *arguments: str) -> tuple[int, str]:
    """Run a command with the scene's file; return its exit code and all that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "mm2py", *words.split(), str(scene.run.file), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_S,
        check=False,
        env={**os.environ, "PYTHONPATH": OWN_PATH},
    )
    return done.returncode, done.stdout


def problems(scene: CutoverScene) -> list[tuple[str, str]]:
    """Return what ``mm2py status`` says is wrong with the flow back."""
    _, found = scene.run.status()
    return [(one["kind"], one["text"]) for one in found["problems"] if one["where"] == scene.back]


def test_a_cutover_begins_at_its_time_waits_for_the_word_and_is_kept(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    with scene_of(source_cluster, target_cluster, tmp_path, IDENTITY) as scene:
        word = tmp_path / "wait"
        word.touch()
        begins = datetime.now(UTC) + timedelta(seconds=AHEAD_S)
        at = ["--at", begins.isoformat(timespec="seconds"), "--postpone", str(word), "--reverse-window", "1s"]
        process = scene.started("cutover", *at)
        lines: list[str] = []
        assert process.stdout is not None
        reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()), daemon=True)
        reader.start()

        def is_ready() -> bool:
            assert process.poll() is None, "".join(lines)
            return any("everything is ready" in line for line in lines)

        wait_until(is_ready, "it is ready", deadline_s=RUN_S)
        assert any(line.startswith("begins at ") for line in lines)
        fenced = next(line for line in lines if "Z  Fencing" in line)
        assert fenced[:20] >= f"{begins - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}", fenced
        assert (scene.at, scene.is_fenced(scene.a)) == (scene.a, True)

        # By hand nothing of it is changed meanwhile
        code, text = command(scene, "dr turn", scene.back, "--yes")
        assert code == 1 and "is not turned by hand while the cutover" in text, text
        code, text = command(scene, "dr fence", scene.flow, "--yes", "--hook-fence", f"{scene.hook} {scene.folder}")
        assert code == 1 and "are not fenced by hand while the cutover" in text, text
        code, text = command(scene, "groups", scene.flow, "--move", scene.group, "--yes")
        assert code == 1 and "is not moved by hand while the cutover" in text, text

        word.unlink()
        assert process.wait(RUN_S) == 0, "".join(lines)
        assert scene.at == scene.b
        scene.wait_for_more()

        # The window of a second is over
        code, text = scene.call("rollback")
        assert code == 1 and "could be undone ended at" in text and "dr complete" in text, text
        assert "it can be undone no more since" in command(scene, "dr history", scene.flow)[1]
        assert "It can be undone no more since" in command(scene, "dr check", scene.flow)[1]
        assert (scene.at, scene.is_fenced(scene.a)) == (scene.b, True), "only the rollback is withdrawn"

        # A flow back that does not copy is named
        assert not problems(scene)
        assert command(scene, "pause", scene.back)[0] == 0
        dead = [text for kind, text in problems(scene) if kind == "return-flow"]
        assert dead and "must copy while the cutover" in dead[0], problems(scene)
        assert "[return-flow]" in command(scene, "dr check", scene.back)[1]
        assert command(scene, "resume", scene.back)[0] == 0
        wait_until(lambda: not problems(scene), "the flow back copies", deadline_s=ANSWER_S)

        code, text = command(scene, "dr complete", scene.flow, "--yes")
        assert code == 0 and "No difference" in text, text
        assert command(scene, "dr turn", scene.back, "--plan")[0] == 0, "no run is open any more"


@pytest.mark.parametrize("policy", [IDENTITY, pytest.param(PREFIXED, marks=pytest.mark.slow)])
def test_producers_of_each_kind_and_groups_of_both_protocols_go_there_and_back(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path, policy: str
) -> None:
    """One round of ``make cutovers``, with fewer groups."""
    with switched_load((source_cluster, target_cluster), tmp_path, policy, groups=4) as load:
        measures = load.round()
        assert (measures["lost"], measures["again"], measures["differs"]) == (0, 0, 0), measures
        assert len(load.pauses_s()) == 4 * len(load.topics)
