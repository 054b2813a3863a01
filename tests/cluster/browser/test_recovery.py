"""The view of recoveries: what it says without credentials, and a fence that is raised and lifted by its buttons."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from deploy.local.kafka import KafkaCluster
from tests.cluster.browser.scene import TOKENS, Scene
from tests.cluster.browser.tabs import Tab, port_of
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import new_name, values, write
from tests.cluster.rest.serving import LISTENERS
from tests.cluster.running import Mm2py, one_way_properties, wait_until

HOOK = '#!/bin/sh\ncat > "$1/$2"\n'


def test_without_credentials_of_its_own_the_view_says_why_there_are_no_verbs(
    scene: Scene, open_tab: Callable[[str], Tab]
) -> None:
    tab = open_tab(scene.address)
    tab.log_in(TOKENS["alice"])
    tab.go("recovery", flow=scene.flow)
    tab.see("No recovery has run.")
    tab.see(f"The file of this worker has no {scene.alias}.dr.* and B.dr.*, the credentials of recoveries there.")
    tab.see("Ready for cutover: no.")
    tab.see("[no-way-back]")
    assert tab.verbs() == set()


def test_a_fence_is_planned_confirmed_and_taken_back_on_the_page(
    open_tab: Callable[[str], Tab], source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    alias = new_name("D").replace("-", "")
    topic, flow = new_topic(source_cluster, "orders"), f"{alias}->B"
    hook = tmp_path / "hook"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(alias, "B"),
        **{
            f"{flow}.topics": topic,
            "config.storage.replication.factor": 1,
            "listeners": LISTENERS,
            f"{alias}.dr.security.protocol": "PLAINTEXT",
            "B.dr.security.protocol": "PLAINTEXT",
            "dr.hook.gate": f"{hook} {tmp_path}",
        },
    )
    with Mm2py(properties) as run:
        address = str(run.wait_for_event("rest.listening")["at"])
        write(source_cluster, topic, [b"first"])
        run.wait_until(lambda: values(target_cluster, f"{alias}.{topic}") == [b"first"], "it copies")
        tab = open_tab(f"http://{urlsplit(address).netloc}")
        tab.go("recovery", flow=flow)
        tab.see("A recovery takes a user with the role recover.")
        tab.page.goto(run.ordered("open", "--port", str(port_of(address))).strip())
        tab.page.get_by_role("banner").get_by_text("mm2py (admin)").wait_for()
        tab.go("recovery", flow=flow)
        tab.button("fence …").wait_for()
        assert tab.verbs() >= {"cutover", "rollback", "complete", "fence", "unfence"}

        tab.press("fence …")
        tab.window.get_by_label("Hook that stops producers").select_option("gate")
        tab.press_in_window("show the plan")
        plan = tab.window.get_by_label("The plan")
        plan.get_by_text(f"{flow}: a fence of 1 topic(s) on {alias}, by hook:").wait_for()
        plan.get_by_text(f"connects to {alias} as User:ANONYMOUS ({alias}.dr.*)").wait_for()
        assert not (tmp_path / "fence").exists(), "a plan changes nothing"
        tab.window.get_by_label("Reason").fill("drill")
        shown = tab.window.inner_text()
        assert f"mm2py dr fence FILE '{flow}' --hook-fence gate --reason 'drill'" in shown
        assert f"/v1/flows/{flow.replace('>', '%3E')}/dr/fence" in shown and '"hook_fence":"gate"' in shown
        tab.press_in_window("fence")
        tab.see_no_window()
        tab.see(f"fence of {alias} → B: done")
        tab.see("verified: no partition of 1 has taken a record for 10 s.")
        assert (tmp_path / "fence").exists()

        tab.press("unfence …")
        tab.window.get_by_label("Hook that stops producers").select_option("gate")
        tab.press_in_window("show the plan")
        tab.window.get_by_label("The plan").get_by_text("the fence is standing").wait_for()
        tab.press_in_window("unfence")
        tab.see_no_window()
        wait_until((tmp_path / "unfence").exists, "the hook lets producers go on")
        tab.see(f"unfence of {alias} → B: done")
        assert run.terminate() == 0
