"""A drill, a turn, a failover and the return of the lost cluster over REST, on real brokers.

The clients rest before anything is done, so it is known exactly what B has. What A takes after A->B was turned off is
what B never got, until it is replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.dr.test_cutover import IDENTITY
from tests.cluster.dr.test_drill import groups_of
from tests.cluster.dr.test_recovery_rest import RestScene
from tests.cluster.dr.test_reinstate import COMMITTED, EXTRA, ReturnScene
from tests.cluster.running import ANSWER_S, PATIENCE, wait_until

pytestmark = pytest.mark.timeout(900 * PATIENCE)


class LostRestScene(RestScene, ReturnScene):
    """A worker that serves REST, and whose first cluster is lost."""

    def more_properties(self) -> dict[str, Any]:
        parts = ("emit.checkpoints", "sync.group.offsets")
        on = {f"{one}.enabled": True for one in parts} | {f"{one}.interval.seconds": 1 for one in parts}
        return super().more_properties() | on

    def carried_out(self, verb: str, **options: Any) -> dict[str, Any]:
        """Plan a verb, confirm it, and return its job when that has ended well."""
        plan = self.plan(verb, **options)
        assert plan["may_begin"], plan
        self.ask("POST", f"/{verb}", 202, confirm=plan["hash"], options=options, reason="A burns")
        job = self.wait_for_end()
        assert (job["verb"], job["exit_code"]) == (verb, 0), job
        return job

    def is_ready(self) -> bool:
        found: dict[str, Any] = self.ask("GET", "/check", 200, user="olga")
        return bool(found["failover"] == "yes")

    def answers(self) -> bool:
        """Whether A is back, and its extras can be listed."""
        try:
            self.plan("extras")
        except AssertionError:
            return False
        return True


def test_a_drill_a_turn_a_failover_and_the_return_over_rest(
    make_cluster: Callable[..., KafkaCluster], target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    source = make_cluster("lost-rest")
    scene = LostRestScene(source, target_cluster, tmp_path, IDENTITY)
    with scene.run:
        scene.run.wait_for_event("topics.copying", flow=scene.flow)
        with scene.load():
            scene.wait_for_more()
            scene.rest()
            wait_until(scene.is_ready, "it is ready for a failover", deadline_s=2 * ANSWER_S)

            # A drill proves it, and moves nothing
            drill = {"groups": [scene.group]}
            plan = scene.plan("drill", **drill)
            assert {one["group"] for one in plan["plan"]["partitions"]} == {scene.group}, plan
            scene.ask("POST", "/drill", 403, user="olga", plan=True)
            scene.ask("POST", "/drill", 409, confirm=plan["hash"], options={"groups": [scene.group], "to": "safe"})
            job = scene.carried_out("drill", **drill)
            assert job["lines"][-1].startswith("PROVEN: every group would go on at the exact record"), job
            assert not [name for name in groups_of(target_cluster) if name.startswith(f"mm2py-drill.{scene.a}.")]
            assert scene.at == scene.a and scene.told()["standing"]["run"] == ""

            # A flow is turned off for good, before A takes what B never gets
            job = scene.carried_out("turn", off=True)
            assert f"{scene.flow} is standby by rita" in job["lines"][-1], job
            assert scene.ask("POST", "/turn", 200, confirm="0", options={"off": True})["job"] is None, "it is off"
        scene._write_extras(source)
        source.broker(1).kill()

        # A is lost
        options = {"hook_switch": "ours", "hook_fence": "ours", "groups": [scene.group]}
        plan = scene.plan("failover", **options)
        assert not plan["may_begin"] and "--accept-loss" in plan["why_not"], plan
        scene.ask("POST", "/failover", 409, confirm=plan["hash"], options=options)
        scene.carried_out("failover", **options, accept_loss=True)
        assert scene.at == scene.b
        wait_until(lambda: scene.told()["standing"]["state"] == "FailedOver", "it is told", deadline_s=ANSWER_S)
        (run,) = scene.told()["runs"]
        (placed,) = [step for step in run["steps"] if step["event"] == "GroupsAtChosen"]
        assert placed["groups"][scene.group] == placed["target_ends"], "it had read everything"

        # A is back with records of its own
        source.brokers[0].restart()
        wait_until(scene.answers, "A answers", deadline_s=2 * ANSWER_S)
        plan = scene.plan("extras")
        assert (plan["plan"]["records"], plan["plan"]["open"]) == (2 * (EXTRA + COMMITTED), [scene.topic]), plan
        refused = scene.ask("POST", "/extras", 409, plan=True, options={"replay": True})
        assert "Fence it first: mm2py dr reinstate" in refused["message"], refused
        scene.carried_out("reinstate", replay=True, hook_fence="ours", timeout=int(120 * PATIENCE))
        assert scene.is_fenced(scene.a) and not scene.is_fenced(scene.b)
        assert scene.ask("POST", "/extras", 200, plan=True)["plan"]["plan"]["settled"] == {scene.topic: "replayed"}
        scene.check_order()
        everything = Counter(scene.acked) + scene.extras
        for alias, cluster in scene.clusters.items():
            scene.run.wait_until(
                lambda alias=alias, cluster=cluster: scene.held(alias, cluster) == everything,  # type: ignore[misc]
                f"{alias} has everything once",
                deadline_s=ANSWER_S,
            )
        assert scene.run.terminate() == 0
