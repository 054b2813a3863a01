"""The page for those who use no mouse, or do not see it: axe finds nothing, and the keyboard alone is enough."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.browser.scene import TOKENS, Scene
from tests.cluster.browser.tabs import Tab
from tests.cluster.running import wait_until

OpenTab = Callable[[str], Tab]
AXE: Final = Path(__file__).parents[3] / "rest/page/node_modules/axe-core/axe.min.js"
"""Of npm: `make page` installs it beside what the page is built of."""
VIEWS: Final = ("flows", "topics", "groups", "gaps", "recovery", "workers", "events", "settings")
LOADED: Final = "Asking for"
RUN: Final = "async () => (await axe.run(document)).violations.map(one => [one.id, one.nodes.map(node => node.html)])"


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"There is no {AXE.name}: run `make page`.")
    return AXE.read_text()


def violations(tab: Tab, axe: str) -> list[Any]:
    """Return what axe finds in a tab, in light and in dark colours."""
    found = []
    for scheme in ("light", "dark"):
        tab.page.emulate_media(color_scheme=scheme)
        if not tab.page.evaluate("'axe' in window"):
            tab.page.evaluate(axe)
        found += [(scheme, *one) for one in tab.page.evaluate(RUN)]
    return found


def test_axe_finds_nothing_on_any_view(scene: Scene, open_tab: OpenTab, axe: str) -> None:
    tab = open_tab(scene.address)
    tab.page.goto(f"{scene.address}/")
    tab.button("Log in").wait_for()
    found = {"login": violations(tab, axe)}
    tab.log_in(TOKENS["alice"])
    places: dict[str, dict[str, str]] = {view: {"view": view} for view in VIEWS}
    of_flow = {"flow": scene.flow}
    places["topics that are left out"] = {"view": "topics", "show": "all", **of_flow}
    places["topic"] = {"view": "topics", "topic": scene.orders, **of_flow}
    places["refused topic"] = {"view": "topics", "topic": scene.filled, **of_flow}
    places["group"] = {"view": "groups", "group": scene.group, **of_flow}
    for name, place in places.items():
        tab.go(**place)
        wait_until(lambda: LOADED not in tab.text(), "all is loaded")
        found[name] = violations(tab, axe)
    tab.go("topics", flow=scene.flow, topic=scene.orders)
    tab.press(f"pause {scene.orders} of {scene.flow}")
    tab.window.wait_for()
    found["window"] = violations(tab, axe)
    tab.press_in_window("cancel")
    tab.go("settings", flow=scene.flow, q="offset.lag.max", show="all")
    tab.press("Change offset.lag.max")
    tab.page.get_by_label("offset.lag.max", exact=True).fill("7")
    tab.press("preview")
    tab.page.get_by_role("button", name="store as version").wait_for()
    found["editor"] = violations(tab, axe)
    assert {name: what for name, what in found.items() if what} == {}
    tab.page.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert {("light", "image-alt"), ("dark", "image-alt")} == {one[:2] for one in violations(tab, axe)}, "axe looks"


FOCUSED: Final = """() => {
    const one = document.activeElement;
    return one.getAttribute("aria-label") || one.innerText || one.name || "";
}"""


def focused(tab: Tab) -> str:
    """Return the name of what has the focus."""
    found: str = tab.page.evaluate(FOCUSED)
    return found.strip()


def press_until(tab: Tab, key: str, wanted: Callable[[str], bool], most: int = 200) -> None:
    """Press a key until what has the focus is the wanted thing."""
    seen = []
    for _ in range(most):
        seen.append(focused(tab))
        if wanted(seen[-1]):
            return
        tab.page.keyboard.press(key)
    raise AssertionError(f"{key} does not come to it, but to {seen[:60]}")


def test_the_keyboard_alone_comes_to_a_topic_by_search_and_to_a_verb_and_cancels_it(
    scene: Scene, open_tab: OpenTab
) -> None:
    tab = open_tab(scene.address)
    keyboard = tab.page.keyboard
    tab.page.goto(f"{scene.address}/")
    tab.page.get_by_label("User").wait_for()
    wait_until(lambda: focused(tab) == "user", "the form has the focus")
    keyboard.press("Tab")
    keyboard.type(TOKENS["olga"])
    keyboard.press("Enter")
    tab.page.get_by_role("navigation", name="Views").wait_for()
    keyboard.press("/")
    wait_until(lambda: focused(tab).startswith("Search"), "the search has the focus")
    keyboard.type(scene.orders)
    tab.page.get_by_role("option").filter(has_text=scene.orders).first.wait_for()
    keyboard.press("Enter")
    tab.see(f"It is copied to {scene.remote(scene.orders)}")
    pause = f"pause {scene.orders} of {scene.flow}"
    press_until(tab, "Tab", lambda name: name == pause)
    keyboard.press("Enter")
    tab.window.wait_for()
    press_until(tab, "Tab", lambda name: name == "cancel", most=10)
    keyboard.press("Enter")
    tab.see_no_window()
    wait_until(lambda: focused(tab) == pause, "the focus goes back to where it came from")
    keyboard.press("Enter")
    tab.window.wait_for()
    keyboard.press("Escape")
    tab.see_no_window()
    assert scene.topic_told(scene.orders)["is_copied"], "nothing was done"


def test_a_list_is_reached_from_the_first_link_and_sorted_by_the_keyboard(scene: Scene, open_tab: OpenTab) -> None:
    tab = open_tab(scene.address)
    tab.log_in(TOKENS["victor"])
    tab.go("topics", flow=scene.flow)
    wait_until(lambda: tab.table(f"Topics of {scene.flow}"), "topics are shown")
    press_until(tab, "Tab", lambda name: name == "To the content")
    tab.page.keyboard.press("Enter")
    wait_until(lambda: tab.page.evaluate("document.activeElement.id") == "content", "the content has the focus")
    press_until(tab, "Tab", lambda name: name.startswith("Topic"))
    tab.page.keyboard.press("Enter")
    names = sorted(one["topic"] for one in scene.items("topics?limit=1000") if one["not_copied"] or one["is_copied"])
    wait_until(lambda: [row["Topic"] for row in tab.table(f"Topics of {scene.flow}")] == names, "they are in order")
    press_until(tab, "Tab", lambda name: name == scene.orders)
    tab.page.keyboard.press("Enter")
    tab.see(f"It is copied to {scene.remote(scene.orders)}")
