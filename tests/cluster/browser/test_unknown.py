"""What the page says where it does not know: no list is called empty, no flow good, and no number current without that.

Answers of the worker are changed on their way to the browser, since most of these cases last for seconds in a real
cluster. What the worker itself tells of them is tested beside real brokers in ``test_outages.py``, and in
``tests/unit/rest``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy

import pytest

from tests.cluster.browser.answers import answer, flow_as, flow_path, page_of
from tests.cluster.browser.scene import TOKENS, Scene
from tests.cluster.browser.tabs import Tab
from tests.cluster.running import wait_until

OpenTab = Callable[[str], Tab]
UNREAD = "reading mm2-status.P.internal took more than 5 s."


@pytest.fixture
def tab(scene: Scene, open_tab: OpenTab) -> Tab:
    """A tab in which an operator has logged in."""
    found = open_tab(scene.address)
    found.log_in(TOKENS["olga"])
    return found


def test_a_list_of_what_is_not_copied_is_called_empty_only_if_all_is_known(scene: Scene, tab: Tab) -> None:
    good = "Every topic that is selected is copied."
    copied = [one for one in scene.items("topics?limit=1000") if one["is_copied"]]
    assert copied
    tab.go("topics", flow=scene.flow, show="problems", q="nothing is called so")
    tab.see("No topic fits.")
    assert good not in tab.text(), "the filter leaves out topics that are refused"

    answer(tab, f"{flow_path(scene)}/topics", page_of(*copied))
    tab.go("topics", flow=scene.flow, show="problems")
    tab.see(good)

    answer(tab, "/v1/flows", flow_as(scene, unread=[UNREAD]))
    tab.go("topics", flow=scene.flow, show="problems")
    tab.see(f"Only part is known: {UNREAD}")
    tab.see("None is known, but not everything could be read of this flow.")
    assert good not in tab.text()
    tab.go("topics", flow=scene.flow, topic="hidden")
    tab.see("Nothing is known of a topic hidden")
    tab.go("gaps", flow=scene.flow)
    tab.see(f"Only part is known: {UNREAD}")


def test_a_flow_says_what_limits_it(scene: Scene, tab: Tab) -> None:
    limit = {"cause": "source-read", "text": "w1 waits for answers of S 90 % of the time", "remedy": "Look at S."}
    answer(tab, "/v1/flows", flow_as(scene, bottleneck=limit))
    tab.go("flows")
    tab.see("What limits it: w1 waits for answers of S 90 % of the time. Look at S.")
    answer(tab, "/v1/flows", flow_as(scene, bottleneck={"cause": "nothing-waits", "text": "nothing", "remedy": ""}))
    tab.page.reload()
    tab.see("records behind")
    assert "What limits it" not in tab.text()


def test_without_selected_topics_it_is_not_said_that_all_are_copied(scene: Scene, tab: Tab) -> None:
    (left_out,) = (one for one in scene.items("topics?limit=1000") if one["topic"] == scene.left_out)
    answer(tab, f"{flow_path(scene)}/topics", page_of(left_out))
    tab.go("topics", flow=scene.flow, show="problems")
    tab.see("No topic is selected.")


def test_a_topic_without_partitions_is_not_called_copied(scene: Scene, tab: Tab) -> None:
    """`topics` names it, and the source does not show it: it was said of it that every partition is copied."""
    one = deepcopy(scene.topic_told(scene.filled))
    one["copy"] |= {"partitions": 0, "owners": {}}
    one["not_copied"][0] |= {"reason": "missing", "partitions": ""}
    answer(tab, f"{flow_path(scene)}/topics", page_of(one))
    answer(tab, f"{flow_path(scene)}/topics/{scene.filled}/partitions", page_of())
    tab.go("topics", flow=scene.flow, topic=scene.filled)
    tab.see("missing")
    tab.see("No partition of it is known.")
    assert "Every partition is copied" not in tab.text()


def test_what_was_behind_before_the_source_fell_silent_is_not_told_as_of_now(scene: Scene, tab: Tab) -> None:
    silent = {"lag_records": 0, "lag_s": 0.0, "lag_as_of_ms": 1_764_000_000_000, "lag_note": "as of lag_as_of_ms"}
    topic = {**scene.topic_told(scene.orders), **silent}
    (partition,) = scene.items(f"topics/{scene.orders}/partitions")
    partition |= silent
    for one in (topic["copy"], partition):
        one["movement"] = {"bytes": 0, "per_s": 0.0, "trend": "keeps-up", "expiry": "none"}
    answer(tab, f"{flow_path(scene)}/topics", page_of(topic))
    answer(tab, f"{flow_path(scene)}/topics/{scene.orders}/partitions", page_of(partition))
    for place, label in (({}, f"Topics of {scene.flow}"), ({"topic": scene.orders}, f"Partitions of {scene.orders}")):
        tab.go("topics", flow=scene.flow, **place)
        wait_until(lambda label=label: tab.table(label), "it is shown")
        (row,) = tab.table(label)
        assert row["Records behind"].startswith("0 as of 2025-11-24"), row
        assert (row["Behind"], row["Moves"]) == ("–", ""), row
    assert "0 records behind as of 2025-11-24" in tab.text()
    tab.press(f"pause {scene.orders} of {scene.flow}")
    tab.window.get_by_text("How many records wait now is not known.").wait_for()
    tab.press_in_window("cancel")
    tab.see_no_window()


def test_workers_of_a_target_that_does_not_answer_are_not_known_and_the_stopped_lead_nobody(
    scene: Scene, tab: Tab
) -> None:
    (worker,) = scene.ask("GET", "/v1/workers")["items"]
    worker["member"] |= {"state": "stopped", "leads": True, "bytes_per_s": 5_000_000}
    answer(tab, "/v1/workers", page_of(worker))
    other = {**scene.flow_told(), "flow": "B->A", "state": "unknown", "why": "A does not answer."}
    answer(tab, "/v1/flows", page_of(other, scene.flow_told()))
    tab.go("workers")
    tab.see("Nothing is known of the workers that write to A. A does not answer.")
    tab.see("No worker leads")
    (row,) = tab.table(f"Workers of group {worker['group']} into {worker['target']}")
    assert (row["Worker"], row["Copies"]) == (worker["member"]["name"], "–")


def test_the_first_view_says_if_new_events_do_not_come(scene: Scene, tab: Tab) -> None:
    at_ms = int(time.time() * 1000) - 60_000
    history = {**scene.told("history"), "events": [{"at_ms": at_ms, "kind": "gap", "text": "of before"}]}
    answer(tab, f"{flow_path(scene)}/history", history)
    answer(tab, "/v1/events", {"message": "It serves 30 streams."}, 503)
    for view in ("flows", "events"):
        tab.go(view)
        tab.see("of before")
        tab.see("New events are not shown at the moment. It serves 30 streams.")


def test_a_list_of_events_that_was_cut_says_where_it_ends(scene: Scene, tab: Tab) -> None:
    begin_ms = int(time.time() * 1000) - 7_200_000
    events = [{"at_ms": begin_ms + 1000 * number, "kind": "gap", "text": f"gap [{number}]"} for number in range(1_100)]
    history = {**scene.told("history"), "events": events[:900]}
    answer(tab, f"{flow_path(scene)}/history", history)
    answer(tab, "/v1/events", {"message": "It serves 30 streams."}, 503)
    tab.go("events", q="[150]", range="6h")
    tab.see("gap [150]")
    assert "Only the newest" not in tab.text()
    history["events"] = events
    tab.go("events", q="[50]", range="6h")
    tab.see("Only the newest 1,000 are here, from")
    tab.see("No event is kept that fits, of the last 6h.")


def test_a_chart_says_since_when_nothing_was_written(scene: Scene, tab: Tab) -> None:
    told = scene.told("history")
    for newest_ms, wanted in (
        (told["to_ms"] - 600_000, "No worker has written anything since "),
        (None, "No worker has written a history of it yet."),
    ):
        answer(tab, f"{flow_path(scene)}/history", {**told, "newest_ms": newest_ms})
        tab.go("flows")
        tab.see(wanted)
    answer(tab, f"{flow_path(scene)}/history", {**told, "newest_ms": told["to_ms"]})
    wait_until(lambda: "No worker has written" not in tab.text(), "it is written again")


def test_a_flow_that_nobody_has_paused_cannot_be_resumed(scene: Scene, tab: Tab) -> None:
    """It stands still because the flow back is on as well: to resume it was offered, and did nothing."""
    why = f"both-on: B->{scene.alias} is on by ann as well"
    answer(tab, "/v1/flows", flow_as(scene, state="held", why=why))
    tab.go("flows")
    tab.see(why)
    assert tab.verbs() == set()
    answer(tab, "/v1/flows", flow_as(scene, state="held", why="paused by ann"))
    wait_until(lambda: tab.verbs() == {"resume", "stop"}, "one that was paused can be")


def test_an_answer_that_may_hide_what_was_done_says_so(scene: Scene, tab: Tab) -> None:
    answer(tab, f"{flow_path(scene)}/topics/{scene.orders}/restart", {"message": "B does not answer."}, 503)
    tab.go("topics", flow=scene.flow, topic=scene.orders)
    tab.press(f"restart {scene.orders} of {scene.flow}")
    tab.press_in_window("restart")
    tab.window.get_by_role("alert").get_by_text("It may have been done all the same: look at Events.").wait_for()
    tab.press_in_window("cancel")
    tab.see_no_window()


def test_the_title_of_a_page_that_asks_to_log_in_says_that_nothing_is_watched(scene: Scene, open_tab: OpenTab) -> None:
    tab = open_tab(scene.address)
    tab.log_in(TOKENS["guest"])
    tab.go("flows")
    wait_until(lambda: tab.page.title() == "(1) mm2py", "a topic is refused")
    tab.press("log out")
    tab.button("Log in").wait_for()
    assert tab.page.title() == "mm2py (not watched)"
