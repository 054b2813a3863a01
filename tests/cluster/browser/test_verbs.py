"""Every button of the page that changes something is pressed, and ``/v1`` tells before and after what it did."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition

from tests.cluster.browser.scene import RECORDS, SCRIPT, TOKENS, Scene
from tests.cluster.browser.tabs import Tab
from tests.cluster.kafka_client import admin, delete_topic, offsets, write
from tests.cluster.running import ANSWER_S, COMMAND_S, OWN_PATH, wait_until

OpenTab = Callable[[str], Tab]


@pytest.fixture
def tab(scene: Scene, open_tab: OpenTab) -> Tab:
    """A tab in which an operator has logged in, who may change everything but settings."""
    found = open_tab(scene.address)
    found.log_in(TOKENS["olga"])
    return found


def confirm(tab: Tab, verb: str, of: str, reason: str = "") -> None:
    """Press a button of the view, and the one of the window that it opens; the window is gone then."""
    tab.press(f"{verb} {of}")
    tab.window.get_by_role("heading", name=f"{verb} {of}?", exact=True).wait_for()
    if reason:
        tab.window.get_by_label("Reason").fill(reason)
    tab.press_in_window(verb)
    wait_until(lambda: any(one.startswith(f"{verb} {of}: ") for one in tab.spoken()), "the page says what came of it")
    tab.see_no_window()


def test_a_topic_is_paused_misses_records_and_goes_on_behind_its_gap(scene: Scene, tab: Tab) -> None:
    topic, of = scene.payments, f"{scene.payments} of {scene.flow}"
    tab.go("topics", flow=scene.flow, topic=topic)
    tab.see(f"It is copied to {scene.remote(topic)}")
    tab.press(f"pause {of}")
    tab.press_in_window("cancel")
    tab.see_no_window()
    assert scene.topic_told(topic)["is_copied"], "a window that was cancelled has changed nothing"

    confirm(tab, "pause", of, reason=SCRIPT)
    scene.wait_for_reasons(topic, "paused")
    scene.run.wait_for_event("topic.paused", topic=topic)
    write(scene.source, topic, [b"late"] * 10)
    wait_until(lambda: scene.topic_told(topic)["lag_records"] == 10, "ten wait")
    tab.see("10 records behind")
    (told,) = scene.topic_told(topic)["not_copied"]
    tab.see(told["why"])
    assert SCRIPT in told["why"] or SCRIPT in tab.text(), "the reason of the operator is shown, as text"
    tab.go("topics", flow=scene.flow, show="problems")
    wait_until(
        lambda: any(
            row["Topic"] == topic and row["Not copied, because"].startswith("paused")
            for row in tab.table(f"Topics of {scene.flow}")
        ),
        "the list says so",
    )

    client, at = admin(scene.source), TopicPartition(topic, 0, RECORDS + 4)
    client.delete_records([at])[at].result(ANSWER_S)
    tab.go("topics", flow=scene.flow, topic=topic)
    confirm(tab, "resume", of)
    wait_until(lambda: scene.items("gaps"), "the gap is told")
    (gap,) = scene.items("gaps")
    assert (gap["topic"], gap["first_offset"], gap["last_offset"]) == (topic, RECORDS, RECORDS + 3)
    tab.see("gap 20–23")
    tab.go("gaps", flow=scene.flow)
    wait_until(lambda: tab.table(f"Gaps of {scene.flow}"), "the gap is shown")
    (row,) = tab.table(f"Gaps of {scene.flow}")
    assert (row["Partition"], row["Kind"], row["Offsets"]) == (f"{topic}-0", gap["kind"], "20 to 23")
    assert row["Done"].startswith("waits for you")
    tab.go("flows")
    tab.see("1 gap waits for you")
    assert scene.flow_told()["open_gaps"] == 1

    tab.go("gaps", flow=scene.flow)
    confirm(tab, "accept", f"the gap of {topic}-0 of {scene.flow}")
    tab.see("No gap waits for you")
    tab.go("flows")
    wait_until(lambda: scene.copied(topic) == RECORDS + 6, "the others are copied")
    wait_until(lambda: not scene.reasons(topic), "it is copied again")
    wait_until(lambda: "1 gap waits for you" not in tab.text(), "nothing waits any more")
    tab.go("topics", flow=scene.flow, topic=topic)
    tab.see(f"It is copied to {scene.remote(topic)}")


def test_a_flow_is_paused_resumed_and_restarted(scene: Scene, tab: Tab) -> None:
    state = f"/connectors/{scene.flow}.MirrorSourceConnector/status"
    tab.go("flows")
    confirm(tab, "pause", scene.flow, reason="moving a rack")
    wait_until(lambda: scene.ask("GET", state)["connector"]["state"] == "PAUSED", "it is paused")
    wait_until(lambda: "resume" in tab.verbs() and "pause" not in tab.verbs(), "resume is offered")
    wait_until(lambda: scene.flow_told()["state"] == "held", "REST tells it")
    tab.see("held")
    write(scene.source, scene.orders, [b"x"] * 5)
    tab.go("events")
    _, event = scene.event_told("moving a rack")
    tab.see(event["text"])
    tab.go("flows")
    confirm(tab, "resume", scene.flow)
    wait_until(lambda: scene.ask("GET", state)["connector"]["state"] == "RUNNING", "it runs")
    _, end = offsets(scene.source, scene.orders)
    wait_until(lambda: scene.copied(scene.orders) == end, "it goes on")
    wait_until(lambda: tab.verbs() >= {"pause", "stop", "restart"}, "the buttons are those of a flow that runs")
    confirm(tab, "stop", scene.flow)
    wait_until(lambda: scene.ask("GET", state)["connector"]["state"] == "STOPPED", "it is stopped")
    confirm(tab, "resume", scene.flow)
    wait_until(lambda: scene.ask("GET", state)["connector"]["state"] == "RUNNING", "it runs again")
    confirm(tab, "restart", scene.flow)
    scene.run.wait_for_event("connector.restarting", connector=f"{scene.flow}.MirrorSourceConnector")
    write(scene.source, scene.orders, [b"x"] * 5)
    wait_until(lambda: scene.copied(scene.orders) == end + 5, "it copies behind the restart, each record once")


def test_a_topic_is_restarted(scene: Scene, tab: Tab) -> None:
    tab.go("topics", flow=scene.flow, topic=scene.orders)
    confirm(tab, "restart", f"{scene.orders} of {scene.flow}")
    scene.run.wait_for_event("partitions.restarted", topic=scene.orders)
    wait_until(lambda: not scene.reasons(scene.orders), "it is copied")
    tab.see(f"It is copied to {scene.remote(scene.orders)}")


def test_a_partition_is_paused_and_resumed(scene: Scene, tab: Tab) -> None:
    of = f"{scene.orders}/0 of {scene.flow}"
    tab.go("topics", flow=scene.flow, topic=scene.orders)
    confirm(tab, "pause", of)
    scene.wait_for_reasons(scene.orders, "paused")
    tab.button(f"resume {of}").wait_for()
    confirm(tab, "resume", of)
    wait_until(lambda: not scene.reasons(scene.orders), "it is copied")


def test_a_refused_topic_is_copied_when_the_cause_is_gone(scene: Scene, tab: Tab) -> None:
    topic = scene.blocked
    tab.go("topics", flow=scene.flow, topic=topic)
    (told,) = scene.topic_told(topic)["not_copied"]
    assert told["reason"] == "refused"
    tab.see(told["why"])
    delete_topic(scene.target, scene.remote(topic))
    confirm(tab, "restart", f"{topic} of {scene.flow}")
    wait_until(lambda: scene.copied(topic) == RECORDS, "it is copied")
    wait_until(lambda: not scene.reasons(topic), "REST tells it")
    tab.see(f"It is copied to {scene.remote(topic)}")


def test_what_is_copied_out_of_the_window_does_the_same(scene: Scene, tab: Tab) -> None:
    topic, of = scene.orders, f"{scene.orders} of {scene.flow}"
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=scene.address)

    def copied(button: str) -> str:
        tab.press_in_window(button)
        tab.window.get_by_role("button", name="copied", exact=True).first.wait_for()
        text: str = tab.page.evaluate("navigator.clipboard.readText()")
        tab.press_in_window("cancel")
        tab.see_no_window()
        return text

    tab.go("topics", flow=scene.flow, topic=topic)
    tab.press(f"pause {of}")
    tab.window.get_by_label("Reason").fill("it's for the night")
    command = shlex.split(copied("copy as command"))
    assert command[:3] == ["mm2py", "pause", "FILE"]
    subprocess.run(
        [sys.executable, "-m", "mm2py", "pause", str(scene.run.file), *command[3:]],
        timeout=COMMAND_S,
        check=True,
        env={**os.environ, "PYTHONPATH": OWN_PATH},
    )
    scene.wait_for_reasons(topic, "paused")
    tab.see("it's for the night")
    tab.button(f"resume {of}").wait_for()
    tab.press(f"resume {of}")
    line = copied("copy as curl")
    user = f"-u 'olga' -X PUT '{scene.address}/"
    assert user in line, "curl asks for the password, or the token, itself"
    proven = line.replace("-u 'olga'", f"--oauth2-bearer {TOKENS['olga']} --silent --fail-with-body")
    subprocess.run(["sh", "-c", proven], timeout=COMMAND_S, check=True, capture_output=True)
    wait_until(lambda: not scene.reasons(topic), "it is copied again")


def test_an_admin_changes_a_setting_after_a_preview(scene: Scene, open_tab: OpenTab) -> None:
    name = "offset.lag.max"
    tab = open_tab(scene.address)
    tab.log_in(TOKENS["alice"])
    tab.go("settings", flow=scene.flow, q=name, show="all")
    for value in ("7", "8"):
        tab.press(f"Change {name}")
        tab.page.get_by_label(name, exact=True).fill(value)
        tab.press("preview")
        store = tab.page.get_by_role("button", name="store as version")
        store.wait_for()
        assert scene.setting(name)["value"] != value, "a preview stores nothing"
        if value == "7":
            tab.press("forget all")
            store.wait_for(state="detached")
        else:
            store.click()
    wait_until(lambda: scene.setting(name)["value"] == "8", "it is stored")
    wait_until(
        lambda: any(
            (row["Setting"], row["Value"], row["Comes from"]) == (name, "8", "stored")
            for row in tab.table(f"Settings of {scene.flow}")
        ),
        "the page shows it",
    )
    scene.run.wait_for_event("config.changed", by="rest")


def test_what_somebody_else_has_stored_meanwhile_is_not_overwritten(scene: Scene, open_tab: OpenTab) -> None:
    name = "offset.lag.max"
    before = scene.setting(name)["value"]
    tab = open_tab(scene.address)
    tab.log_in(TOKENS["alice"])
    tab.go("settings", flow=scene.flow, q=name, show="all")
    tab.press(f"Change {name}")
    tab.press("remove it")
    tab.see("is removed, and has its default")
    tab.press("keep it")
    tab.page.get_by_label(name, exact=True).fill("9")
    tab.press("preview")
    store = tab.page.get_by_role("button", name="store as version")
    store.wait_for()
    config = f"/connectors/{scene.flow}.MirrorSourceConnector/config"
    scene.ask("PATCH", config, json={name: "11"}, params={"reason": "ticket 12"})
    try:
        store.click()
        told = tab.page.get_by_role("alert").filter(has_text="somebody else has changed the settings meanwhile")
        told.wait_for()
        assert "Nothing was stored" in told.inner_text()
        assert "by alice" in told.inner_text() and "(ticket 12)" in told.inner_text()
        wait_until(lambda: scene.setting(name)["value"] == "11", "what the other one has stored counts")
        tab.see("11 → 9")
        tab.press(f"undo the change of {name}")
        store.wait_for(state="detached")
    finally:
        scene.ask("PATCH", config, json={name: before})


# Those who may not


def test_a_reader_has_no_buttons_and_a_request_by_hand_is_refused(scene: Scene, open_tab: OpenTab) -> None:
    tab = open_tab(scene.address)
    tab.log_in(TOKENS["victor"])
    for place in ({}, {"view": "topics", "flow": scene.flow, "topic": scene.orders}):
        tab.go(**place)
        tab.see("records behind")
        assert tab.verbs() == set()
    path = f"/v1/flows/{scene.flow}/topics/{scene.orders}"
    for method, asked in (
        ("PUT", f"{path}/pause"),
        ("POST", f"{path}/restart"),
        ("PUT", f"/connectors/{scene.flow}.MirrorSourceConnector/pause"),
        ("POST", f"/connectors/{scene.flow}.MirrorSourceConnector/restart?includeTasks=true"),
    ):
        status, text = tab.fetch(asked, method)
        assert status == 403, (asked, status, text)
    assert scene.topic_told(scene.orders)["is_copied"]


def test_a_refusal_is_told_in_the_window(scene: Scene, open_tab: OpenTab) -> None:
    """The role was taken away after the button was shown."""
    tab = open_tab(scene.address)
    tab.log_in(TOKENS["olga"])
    tab.go("topics", flow=scene.flow, topic=scene.orders)
    tab.press(f"restart {scene.orders} of {scene.flow}")
    scene.write_users(TOKENS, olga="reader")
    try:
        wait_until(lambda: tab.fetch("/session")[1].find('"reader"') > 0, "the worker has read the file")
        tab.press_in_window("restart")
        alert = tab.window.get_by_role("alert")
        alert.wait_for()
        assert "olga" in alert.inner_text()
        tab.press_in_window("cancel")
        tab.see_no_window()
    finally:
        scene.write_users(TOKENS)
