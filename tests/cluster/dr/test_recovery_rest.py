"""The verbs of a recovery over REST, on real brokers, under load: planned, confirmed, told, and gone on with.

The clients are those of ``test_cutover``: nothing is lost and nothing is read again. The hooks are names of the file.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from deploy.local.certificates import write_private
from deploy.local.kafka import KafkaCluster
from mm2py.secret import Secret
from mm2py_rest.access.hashes import hash_token
from tests.cluster.dr.test_cutover import IDENTITY, RUN_S, CutoverScene, running_scene
from tests.cluster.rest.serving import LISTENERS
from tests.cluster.rest.test_rest_process import rest_processes
from tests.cluster.running import ANSWER_S, PATIENCE, wait_until

pytestmark = pytest.mark.timeout(600 * PATIENCE)

TOKENS: Final = {name: f"canary-{name}-" + "7" * 40 for name in ("rita", "olga")}


CLIENT: Final = httpx2.Client(limits=httpx2.Limits(max_keepalive_connections=0))
"""One for all requests: each new one reads all certificates of the machine, and to ask in a loop would take a core. A
connection is not used again, because processes of REST are killed here."""


class RestScene(CutoverScene):
    """A worker whose file has credentials of recoveries and names the hooks; rita may recover, olga may operate."""

    asked_flow = ""
    """The flow that is asked about, if it is another one."""

    def more_properties(self) -> dict[str, Any]:
        users = self.folder / "users"
        roles = {"rita": "recover", "olga": "admin"}
        lines = [f"{name}:{hash_token(Secret(token))}:{roles[name]}" for name, token in TOKENS.items()]
        write_private(users, "\n".join(lines).encode())
        return {
            "listeners": LISTENERS,
            "rest.users.file": users,
            f"{self.a}.dr.security.protocol": "PLAINTEXT",
            f"{self.b}.dr.security.protocol": "PLAINTEXT",
            "dr.hook.ours": f"{self.hook} {self.folder}",
        }

    @property
    def options(self) -> dict[str, Any]:  # type: ignore[override]
        """Of the moving verbs, as REST takes them."""
        return {"hook_fence": "ours", "hook_switch": "ours", "timeout": int(120 * PATIENCE)}

    def ask(self, method: str, path: str, status: int, user: str = "rita", **body: Any) -> Any:
        answer = CLIENT.request(
            method,
            f"{self.run.wait_for_event('rest.listening')['at']}/v1/flows/{self.asked_flow or self.flow}/dr{path}",
            headers={"Authorization": f"Bearer {TOKENS[user]}"},
            timeout=RUN_S,
            json=body or None,
        )
        assert answer.status_code == status, answer.text
        return answer.json()

    def plan(self, verb: str, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("POST", f"/{verb}", 200, plan=True, options=options)["plan"]
        return found

    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", "", 200, user="olga")
        return found

    def wait_for_end(self) -> dict[str, Any]:
        """Wait until the job has ended; return it."""
        wait_until(lambda: self.told()["job"]["ended_at_ms"] is not None, "the job has ended", deadline_s=RUN_S)
        found: dict[str, Any] = self.told()["job"]
        return found


def test_a_cutover_over_rest_is_planned_confirmed_and_told_and_goes_on_when_its_process_was_killed(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    with running_scene(RestScene(source_cluster, target_cluster, tmp_path, IDENTITY)) as scene:
        assert scene.told()["why_not"] == "" and scene.told()["hooks"] == ["ours"]
        scene.ask("POST", "/cutover", 403, user="olga", plan=True)
        scene.ask("POST", "/cutover", 400, plan=True, options={"hook_switch": "/bin/sh"})
        plan = scene.plan("cutover", **scene.options)
        assert plan["may_begin"], plan
        assert f"connects to {scene.a} as User:ANONYMOUS ({scene.a}.dr.*)" in plan["lines"]
        assert scene.told()["standing"]["run"] == "" and not scene.is_fenced(scene.a), "a plan changes nothing"
        scene.ask("POST", "/cutover", 409, confirm="0" * 16, options=scene.options)
        scene.ask("POST", "/cutover", 409, confirm=plan["hash"], options={**scene.options, "timeout": 7})
        begun = scene.ask("POST", "/cutover", 202, confirm=plan["hash"], options=scene.options, reason="drill 1")
        scene.ask("POST", "/fence", 409, confirm=plan["hash"])
        job = scene.wait_for_end()
        assert (job["id"], job["exit_code"], job["user"]) == (begun["job"]["id"], 0, "rita"), job
        assert (scene.at, scene.is_fenced(scene.a), scene.is_fenced(scene.b)) == (scene.b, True, False)
        wait_until(lambda: scene.told()["runs"][0]["state"] == "Reversed", "it is told", deadline_s=ANSWER_S)
        (run,) = scene.told()["runs"]
        assert (run["state"], run["steps"][0]["user"], run["steps"][0]["reason"]) == ("Reversed", "rita", "drill 1")
        scene.run.wait_for_event("recovery.ended", verb="cutover", exit_code=0, user="rita")
        scene.run.wait_for_event("rest.audit", user="rita", status=202)
        scene.wait_for_more()
        scene.judge()

        plan = scene.plan("rollback", **scene.options)
        call = {"confirm": plan["hash"], "options": scene.options}
        scene.ask("POST", "/rollback", 202, **call)
        wait_until(lambda: scene.is_fenced(scene.b), "producers are fenced", deadline_s=ANSWER_S)
        (process,) = rest_processes(scene.run.pid)
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: _is_served(scene), "REST is served again", deadline_s=ANSWER_S)
        assert scene.told()["job"] is None and scene.told()["standing"]["verb"] == "rollback"
        scene.ask("POST", "/rollback", 202, **call)
        assert scene.wait_for_end()["exit_code"] == 0, scene.told()
        assert (scene.at, scene.is_fenced(scene.a), scene.is_fenced(scene.b)) == (scene.a, False, True)
        scene.wait_for_more()
        scene.judge()

        assert scene.ask("POST", "/rollback", 200, **call)["job"] is None, "it is reached already"
        scene.asked_flow = scene.back  # the rollback is a run of its own
        plan = scene.plan("complete")
        scene.ask("POST", "/complete", 202, confirm=plan["hash"])
        job = scene.wait_for_end()
        assert job["exit_code"] == 0, job
        assert any(line.startswith("No difference: ") for line in job["lines"]), job
        wait_until(lambda: scene.told()["standing"]["state"] == "Complete", "it is told", deadline_s=ANSWER_S)


def _is_served(scene: RestScene) -> bool:
    try:
        scene.told()
    except (httpx2.HTTPError, AssertionError):
        return False
    return True
