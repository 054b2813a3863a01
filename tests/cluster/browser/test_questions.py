"""What an operator asks at night is answered: what would be lost, what is furthest behind, what has changed.

Some answers of the worker are changed on their way to the browser, see ``answers.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.browser.answers import answer, flow_as, flow_path, page_of
from tests.cluster.browser.scene import TOKENS, Scene, count
from tests.cluster.browser.tabs import Tab
from tests.cluster.running import wait_until

OpenTab = Callable[[str], Tab]
MINUTE_MS = 60_000
UNREAD = "reading mm2-status.P.internal took more than 5 s."


@pytest.fixture
def tab(scene: Scene, open_tab: OpenTab) -> Tab:
    """A tab in which an operator has logged in."""
    found = open_tab(scene.address)
    found.log_in(TOKENS["olga"])
    return found


def link(tab: Tab, name: str) -> Any:
    return tab.page.get_by_role("main").get_by_role("link", name=name, exact=True)


def heading(tab: Tab) -> str:
    found: str = tab.page.get_by_role("heading", level=1).inner_text()
    return found


def names(tab: Tab, label: str) -> list[str]:
    return [row["Topic"] for row in tab.table(label)]


# What would I lose, and what is furthest behind?


def test_the_card_says_what_would_be_lost_with_a_link_to_each_topic_that_it_names(scene: Scene, tab: Tab) -> None:
    told = scene.flow_told()
    assert scene.filled in told["verdict"]["text"] and scene.filled in told["loss"]
    loss = f"If S were lost now: 1,200 records of {scene.filled} (paused) + 30 records of the rest, the last 0.4 s."
    oldest = f"{scene.orders}-0"
    answer(tab, "/v1/flows", flow_as(scene, loss=loss, verdict={**told["verdict"], "oldest": oldest, "behind_s": 480}))
    tab.go("flows")
    tab.see(loss)
    tab.see(f"Furthest behind of what is copied: {oldest}, 8 min")
    link(tab, oldest).click()
    wait_until(lambda: heading(tab).endswith(scene.orders), "the topic is shown")
    tab.go("flows")
    link(tab, scene.filled).first.click()
    wait_until(lambda: heading(tab).endswith(scene.filled), "the topic is shown")


def test_topics_that_are_behind_are_listed_by_their_lag_without_those_that_keep_up(scene: Scene, tab: Tab) -> None:
    topics = [one for one in scene.items("topics?limit=1000") if one["copy"]]
    lags = {scene.orders: (7, "growing"), scene.payments: (9_000, "shrinking"), scene.filled: (3, "keeps-up")}
    for one in topics:
        lag, trend = lags.get(one["topic"], (0, "keeps-up"))
        one |= {"lag_records": lag, "lag_bytes": 2_000_000, "lag_as_of_ms": None}
        one["copy"]["movement"] = {"per_s": 1.0, "trend": trend, "expiry": "keeps-up", "catch_up_s": None}
    answer(tab, f"{flow_path(scene)}/topics", page_of(*topics))
    tab.go("topics", flow=scene.flow, show="behind")
    label = f"Topics of {scene.flow}"
    wait_until(lambda: names(tab, label) == [scene.payments, scene.orders], "the worst comes first")
    assert {row["About"] for row in tab.table(label)} == {"2.0 MB"}


def test_why_a_topic_is_paused_stands_in_the_list_and_the_button_beside_what_to_do(scene: Scene, tab: Tab) -> None:
    topic = scene.topic_told(scene.orders)
    why = {"reason": "paused", "why": "Paused by ann: ticket 4711", "remedy": "mm2py resume FILE", "partitions": ""}
    topic |= {**why, "is_copied": False, "not_copied": [{**why, "since_ms": None}]}
    answer(tab, f"{flow_path(scene)}/topics", page_of(topic))
    tab.go("topics", flow=scene.flow)
    label = f"Topics of {scene.flow}"
    wait_until(lambda: tab.table(label), "it is shown")
    (row,) = tab.table(label)
    assert row["Not copied, because"] == "paused by ann: ticket 4711"
    tab.go("topics", flow=scene.flow, topic=scene.orders)
    tab.see("What to do: press")
    tab.see("By a command: mm2py resume FILE")
    tab.press(f"resume {scene.orders} of {scene.flow}")
    tab.press_in_window("cancel")
    tab.see_no_window()


# What changed at noon, and in the last hour?


def minute_of(at_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M", time.gmtime(at_ms / 1000))


def lines(tab: Tab) -> list[str]:
    found = tab.page.get_by_role("list", name="Events, the newest first").get_by_role("listitem")
    return [one.splitlines()[-1] if one else "" for one in found.all_inner_texts()]


def with_events(scene: Scene, tab: Tab, *events: tuple[int, str, str]) -> None:
    """Let the history tell these events, and the stream none."""
    told = [{"at_ms": at_ms, "kind": kind, "text": text} for at_ms, kind, text in events]
    answer(tab, f"{flow_path(scene)}/history", {**scene.told("history"), "events": told})
    answer(tab, "/v1/events", {"message": "It serves 30 streams."}, 503)


def test_events_of_an_hour_a_day_or_a_stretch_are_in_the_address(scene: Scene, tab: Tab) -> None:
    now_ms = int(time.time() * 1000)
    noon_ms = now_ms - 180 * MINUTE_MS
    with_events(
        scene,
        tab,
        (noon_ms, "verdict", "incomplete (was safe): not copied: orders (paused)"),
        (noon_ms + 30 * MINUTE_MS, "lag", "orders-0 is more than 10 min behind"),
        (now_ms - 5 * MINUTE_MS, "verdict", "safe (was incomplete): 0.4 s and 2 records behind"),
    )
    tab.go("events")
    wait_until(lambda: lines(tab) == ["safe (was incomplete): 0.4 s and 2 records behind"], "the last hour is shown")
    times = tab.page.get_by_role("navigation", name="Time of the events")
    assert [one.split() for one in times.get_by_role("link").all_inner_texts()] == [
        ["1h", "1"],
        ["6h", "3"],
        ["24h", "3"],
    ]
    times.get_by_role("link", name="6h").click()
    wait_until(lambda: len(lines(tab)) == 3, "six hours are shown")
    assert "range=6h" in tab.page.url
    tab.page.get_by_label("From", exact=True).fill(minute_of(noon_ms - 5 * MINUTE_MS))
    tab.page.get_by_label("to", exact=True).fill(minute_of(noon_ms + 5 * MINUTE_MS))
    wait_until(lambda: lines(tab) == ["incomplete (was safe): not copied: orders (paused)"], "the stretch is shown")
    tab.page.reload()
    wait_until(lambda: lines(tab) == ["incomplete (was safe): not copied: orders (paused)"], "it is in the address")
    tab.page.get_by_label("From", exact=True).fill(minute_of(now_ms - MINUTE_MS))
    tab.page.get_by_label("to", exact=True).fill("")
    wait_until(lambda: lines(tab) == ["No event is kept that fits."], "nothing happened then")


def test_the_chart_marks_events_names_them_and_leads_to_them(scene: Scene, tab: Tab) -> None:
    told = scene.told("history")
    begin_ms, end_ms = told["times_ms"][0], told["times_ms"][-1]
    middle_ms = (begin_ms + end_ms) // 2
    with_events(scene, tab, (middle_ms, "verdict", "behind (was safe): orders-0 is behind the others"))
    tab.go("flows")
    chart = tab.page.get_by_role("article", name=f"Flow {scene.flow}").get_by_role("figure")
    chart.get_by_role("link", name="1 event", exact=True).wait_for()
    for unit in ("behind (left)", "records behind (right)", "not copied", "not known"):
        assert unit in chart.inner_text(), unit
    over = chart.locator(".u-over")
    over.hover()  # its middle
    tab.see("behind (was safe): orders-0 is behind the others")
    over.click()
    wait_until(lambda: heading(tab) == "Events", "the events around it are shown")
    assert "from=" in tab.page.url and "to=" in tab.page.url
    wait_until(lambda: lines(tab) == ["behind (was safe): orders-0 is behind the others"], "it is among them")


def test_a_change_is_one_line_with_the_call_that_asked_for_it_and_sessions_are_not_on_the_first_view(
    scene: Scene, tab: Tab
) -> None:
    now_ms = int(time.time() * 1000)
    call = f"olga asked for PUT {flow_path(scene)}/topics/orders/pause: done, 200."
    others = f"olga asked for PUT {flow_path(scene)}/topics/payments/pause: not done, 503."
    with_events(
        scene,
        tab,
        (now_ms - 9_000, "topic.state", "orders is to be paused, by olga."),
        (now_ms - 8_900, "audit", call),
        (now_ms - 8_800, "not-copied", "orders: paused since 2026-11-29T07:00:00Z: Paused by olga"),
        (now_ms - 8_700, "not-copied", "orders-old: gone since 2026-11-29T07:00:00Z: it is gone"),
        (now_ms - 7_000, "audit", others),
        (now_ms - 6_000, "audit", "olga asked for POST /session: done, 201."),
        (now_ms - 5_000, "audit", "olga asked for DELETE /session: done, 204."),
    )
    tab.go("events")
    wait_until(
        lambda: (
            [one for one in lines(tab) if not one.endswith(" of it")]
            == [others, "orders-old: gone since 2026-11-29T07:00:00Z: it is gone"]
        ),
        "what belongs together is folded, and a call that failed is not",
    )
    text = tab.text()
    assert "1 more record of it" in text and "2 more records of it" in text and call not in text
    tab.page.get_by_text("2 more records of it").click()
    tab.see(call)
    tab.go("flows")
    tab.see("orders is to be paused, by olga.")
    assert "/session" not in tab.text() and others in tab.text()


# Which group reads again?


def test_a_group_that_runs_is_shown_the_same_whether_its_newest_commit_is_in_a_checkpoint_or_not(
    scene: Scene, tab: Tab
) -> None:
    (group,) = scene.told("groups?limit=1000")["groups"]
    late = f"{scene.orders}-0: its next checkpoint is not emitted yet"
    label = f"Consumer groups of {scene.flow}"

    def shown(**changed: Any) -> tuple[str, ...]:
        body = {**scene.told("groups"), "groups": [{**group, "state": "Stable", "follows": True, **changed}]}
        answer(tab, f"{flow_path(scene)}/groups", body)
        tab.go("groups", flow=scene.flow)
        wait_until(lambda: tab.table(label), "it is shown")
        (row,) = tab.table(label)
        return row["Can move to the target"], row["Because"], row["On the source"]

    wanted = ("at its last checkpoint", "it runs, and each checkpoint takes it along", "runs")
    assert shown(ready=True, why="") == wanted
    assert shown(ready=False, why=late) == wanted
    assert shown(ready=False, why=late, follows=False)[:2] == ("not ready", late)


def test_a_group_that_has_read_what_is_not_copied_says_that_these_records_are_not_there(scene: Scene, tab: Tab) -> None:
    (group,) = scene.told("groups?limit=1000")["groups"]
    note = "its last records are not on the target: it has read further than what is copied"
    group["partitions"] = [{**group["partitions"][0], "topic": scene.filled, "note": note, "waits_for": ""}]
    group |= {"state": "Stable", "follows": True, "note": f"{scene.filled}-0: {note}"}
    answer(tab, f"{flow_path(scene)}/groups", {**scene.told("groups"), "groups": [group]})
    assert scene.filled in {one["topic"] for one in scene.flow_told()["verdict"]["left_out"]}
    tab.go("groups", flow=scene.flow, show="problems")
    label = f"Consumer groups of {scene.flow}"
    wait_until(lambda: tab.table(label), "it is shown")
    (row,) = tab.table(label)
    assert row["Can move to the target"] == "lacks records"
    assert row["Because"] == f"{scene.filled}-0: these records are not on the target"


# What is not known


def test_lists_that_were_read_in_part_say_so(scene: Scene, tab: Tab) -> None:
    (worker,) = scene.ask("GET", "/v1/workers")["items"]
    assert "unread" in scene.ask("GET", "/v1/workers")
    answer(tab, "/v1/workers", page_of(worker, unread=("A does not answer.",)))
    tab.go("workers")
    tab.see("This list may lack workers: A does not answer.")
    answer(tab, f"{flow_path(scene)}/gaps", page_of(unread=(UNREAD,)))
    answer(tab, "/v1/backfills", page_of(unread=("reading mm2-configs.P.internal failed",)))
    tab.go("gaps", flow=scene.flow)
    tab.see(f"This list may lack gaps: {UNREAD}")
    tab.see("This list may lack backfills: reading mm2-configs.P.internal failed")
    assert "No gap waits for you" not in tab.text() and "There was none" not in tab.text()


def test_the_search_says_how_many_it_does_not_show(scene: Scene, tab: Tab) -> None:
    one = scene.topic_told(scene.orders)
    topics = [{**one, "topic": f"many-{number}"} for number in range(40)]
    answer(tab, f"{flow_path(scene)}/topics", page_of(*topics))
    tab.page.reload()
    tab.page.get_by_role("combobox", name="Search").fill("many-")
    tab.page.get_by_role("option").filter(has_text=f"12 of {count(40)} that fit: type more of the name.").wait_for()
