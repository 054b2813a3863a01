"""Each view of the page shows what ``/v1`` tells at the same time, to screen readers as well, and as text alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.cluster.browser.scene import RECORDS, SCRIPT, TOKENS, WORDS, Scene, count, figures_of, points_of
from tests.cluster.browser.tabs import Tab
from tests.cluster.running import wait_until

OpenTab = Callable[[str], Tab]


@pytest.fixture
def tab(scene: Scene, open_tab: OpenTab) -> Tab:
    """A tab in which a reader has logged in."""
    found = open_tab(scene.address)
    found.log_in(TOKENS["victor"])
    return found


def is_shown(shown: Callable[[], Any], told: Callable[[], Any]) -> None:
    """Wait until both are the same: the page asks every few seconds, and what is told changes."""
    last: list[Any] = []

    def is_same() -> bool:
        last[:] = [shown(), told()]
        return bool(last[0] == last[1])

    try:
        wait_until(is_same, "the page shows what REST tells")
    except AssertionError as error:
        raise AssertionError(f"the page shows\n{last[0]}\nand REST tells\n{last[1]}") from error


def flow_card(tab: Tab, flow: str) -> str:
    return tab.page.get_by_role("article", name=f"Flow {flow}").inner_text()


def test_the_first_view_says_of_each_flow_what_v1_tells(scene: Scene, tab: Tab) -> None:
    def what_is_missing() -> list[str]:
        flow, card = scene.flow_told(), flow_card(tab, scene.flow)
        lines = card.splitlines()
        wanted = [WORDS[flow["verdict"]["readiness"]], *points_of(flow), *figures_of(flow)]
        return [one for one in wanted if not any(one in line for line in lines)]

    wait_until(lambda: not what_is_missing(), "the card says the same")
    readiness = scene.flow_told()["verdict"]["readiness"]
    assert readiness != "safe", "a topic is refused, so this is not the easy case"
    map_of_clusters = tab.page.get_by_role("group", name="Clusters and the flows between them")
    map_of_clusters.get_by_role("link", name=f"{scene.flow}: {WORDS[readiness]}", exact=True).wait_for()
    assert tab.page.title() == "(1) mm2py"


def test_topics_and_their_partitions_are_those_of_v1_with_reason_lag_and_worker(scene: Scene, tab: Tab) -> None:
    workers = {
        one["member"]["member"]: one["member"]["name"] for one in scene.ask("GET", "/v1/workers?limit=1000")["items"]
    }

    def told() -> set[tuple[str, ...]]:
        return {
            (
                one["topic"],
                one["reason"] or "",
                count(one["lag_records"]),
                count(one["copy"] and one["copy"]["partitions"]),
                ", ".join(workers[owner] for owner in (one["copy"] or {}).get("owners", {})),
            )
            for one in scene.items("topics?limit=1000")
        }

    def shown() -> set[tuple[str, ...]]:
        columns = ("Topic", "Not copied, because", "Records behind", "Partitions", "Workers")
        rows = [[row[name] for name in columns] for row in tab.table(f"Topics of {scene.flow}")]
        return {(topic, re.split(" since |: ", reason)[0], *others) for topic, reason, *others in rows}

    tab.go("topics", flow=scene.flow, show="all")
    is_shown(shown, told)
    assert {reason for _, reason, *_ in shown()} >= {"", "refused", "excluded"}

    tab.go("topics", flow=scene.flow, topic=scene.orders)
    numbers = {"Next to copy": "position", "Source ends": "end", "Next in the copy": "target_position"}
    is_shown(
        lambda: [
            {name: row[name] for name in ("Partition", "Worker", *numbers)}
            for row in tab.table(f"Partitions of {scene.orders}")
        ],
        lambda: [
            {
                "Partition": str(one["partition"]),
                "Worker": one["owner_name"],
                **{name: count(one[field]) for name, field in numbers.items()},
            }
            for one in scene.items(f"topics/{scene.orders}/partitions")
        ],
    )
    (row,) = tab.table(f"Partitions of {scene.orders}")
    assert int(row["Next to copy"]) >= RECORDS
    tab.page.get_by_role("img", name="records behind, as this page has seen them").first.wait_for()

    tab.go("topics", flow=scene.flow, topic=scene.filled)
    told_of = scene.topic_told(scene.filled)["not_copied"]
    for one in told_of:
        tab.see(one["why"])
        tab.see(one["remedy"])
    assert [one["reason"] for one in told_of] == ["refused"]


def test_groups_are_those_of_v1_with_the_place_where_they_go_on(scene: Scene, tab: Tab) -> None:
    def group() -> dict[str, Any]:
        (found,) = scene.told("groups?limit=1000")["groups"]
        return dict(found)

    wait_until(lambda: group()["ready"], "its checkpoint is written")
    tab.go("groups", flow=scene.flow)

    def told() -> list[tuple[str, ...]]:
        one = group()
        again = one["reads_again_at_most"]
        return [
            (
                one["group"],
                "ready" if not one["left_out"] else "ready in part",
                "none" if again == 0 else f"up to {count(again)}",
                "yes" if one["is_exact"] else "no",
                count(one["lag"]),
            )
        ]

    columns = ("Group", "Can move to the target", "Records it reads again", "At the exact record", "Lag on the source")
    is_shown(
        lambda: [tuple(row[name] for name in columns) for row in tab.table(f"Consumer groups of {scene.flow}")], told
    )
    tab.go("groups", flow=scene.flow, group=scene.group)
    (partition,) = group()["partitions"]
    wait_until(lambda: tab.table(f"Partitions of group {scene.group}"), "its partitions are shown")
    (row,) = tab.table(f"Partitions of group {scene.group}")
    assert (row["Topic"], row["Committed"], row["Goes on at"]) == (
        f"{scene.orders}-0",
        count(partition["committed"]),
        count(partition["goes_on_at"]),
    )


def test_workers_settings_and_gaps_are_those_of_v1(scene: Scene, tab: Tab) -> None:
    (worker,) = scene.ask("GET", "/v1/workers")["items"]
    label = f"Workers of group {worker['group']} into {worker['target']}"
    tab.go("workers")
    is_shown(
        lambda: [(row["Worker"], row["State"], row["Tasks"], row["Member"]) for row in tab.table(label)],
        lambda: [
            (f"{one['name']} leader", one["state"], count(one["tasks"]), one["member"])
            for one in [scene.ask("GET", "/v1/workers")["items"][0]["member"]]
        ],
    )

    def origin(one: dict[str, Any]) -> str:
        return f"file, line {one['file']['line']}" if one["origin"] == "file" and one["file"] else str(one["origin"])

    tab.go("settings", flow=scene.flow, show="all")
    is_shown(
        lambda: {(row["Setting"], row["Value"], row["Comes from"]) for row in tab.table(f"Settings of {scene.flow}")},
        lambda: {(one["name"], one["value"] or "", origin(one)) for one in scene.told("config")["settings"]},
    )

    tab.go("gaps", flow=scene.flow, show="all")
    wait_until(lambda: "Asking for gaps" not in tab.text(), "the gaps are shown")
    is_shown(
        lambda: [(row["Partition"], row["Kind"], row["Offsets"]) for row in tab.table(f"Gaps of {scene.flow}")],
        lambda: [
            (f"{one['topic']}-{one['partition']}", one["kind"], f"{one['first_offset']} to {one['last_offset']}")
            for one in scene.items("gaps?all=true")
        ],
    )


def test_the_search_reaches_topics_groups_settings_and_views(scene: Scene, tab: Tab) -> None:
    places = {scene.orders: scene.orders, SCRIPT: scene.group, "offset.lag.max": "settings", "workers": "Workers"}
    for wanted, heading in places.items():
        tab.page.get_by_role("combobox", name="Search").fill(wanted)
        tab.page.get_by_role("option").filter(has_text=wanted).first.click()
        wait_until(
            lambda heading=heading: tab.page.get_by_role("heading", level=1).inner_text().endswith(heading),
            f"{heading} is shown",
        )


# Names that are scripts


def test_names_that_are_scripts_are_shown_as_text(scene: Scene, tab: Tab) -> None:
    """The tab is judged by what it has asked for and by what has run in it: see ``Tab.check``."""
    tab.go("settings", flow=scene.flow)
    tab.see(SCRIPT)
    tab.go("groups", flow=scene.flow)
    tab.see(scene.group)
    tab.go("groups", flow=scene.flow, group=scene.group)
    tab.see(scene.group)
    for view in ("topics", "groups", "gaps", "settings", "events"):
        tab.go(view, flow=SCRIPT, topic=SCRIPT, group=SCRIPT, q=SCRIPT, show=SCRIPT, sort=SCRIPT, range=SCRIPT)
        wait_until(lambda: tab.page.evaluate("document.readyState") == "complete", "all of it is loaded")
    tab.go("topics", flow=scene.flow, topic=SCRIPT)
    tab.see(f"The source shows no topic {SCRIPT}")
    tab.page.get_by_role("combobox", name="Search").fill(SCRIPT)
    tab.page.get_by_role("option").first.wait_for()


@pytest.mark.parametrize("field", ["topic", "remote_topic", "reason", "why", "remedy"])
def test_a_topic_that_is_a_script_is_shown_as_text(scene: Scene, tab: Tab, field: str) -> None:
    """No broker has topics of such names; but the page must not depend on that."""

    body = scene.told("topics?limit=1000")
    for one in body["items"]:
        one[field] = SCRIPT
        for why in one["not_copied"]:
            why.update({field: SCRIPT} if field in why else {})
    tab.page.route(f"**/v1/flows/{quote(scene.flow, safe='')}/topics?*", lambda route: route.fulfill(json=body))
    tab.go("topics", flow=scene.flow, show="all")
    if field in ("topic", "reason"):
        tab.see(SCRIPT)
    tab.go("topics", flow=scene.flow, topic=SCRIPT if field == "topic" else scene.filled)
    tab.see(SCRIPT)
