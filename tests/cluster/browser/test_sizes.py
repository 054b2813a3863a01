"""The page with very many rows, and on the screen of a phone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests.cluster.browser.scene import TOKENS, Scene
from tests.cluster.browser.tabs import Tab
from tests.cluster.browser.test_accessibility import LOADED, VIEWS
from tests.cluster.running import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Route

OpenTab = Callable[[str], Tab]
PARTITIONS = 10_000
OF_A_PAGE = 1_000
ROWS_MOST = 200
"""How many rows may be in the document, however many the list has."""
PHONE = {"width": 390, "height": 844}


@pytest.fixture
def tab(scene: Scene, open_tab: OpenTab) -> Tab:
    """A tab in which a reader has logged in."""
    found = open_tab(scene.address)
    found.log_in(TOKENS["victor"])
    return found


def test_of_ten_thousand_partitions_the_first_are_shown_while_the_others_come_and_few_rows_are_drawn(
    scene: Scene, tab: Tab
) -> None:
    (one,) = scene.items(f"topics/{scene.orders}/partitions")
    every = [{**one, "partition": number, "lag_records": number} for number in range(PARTITIONS)]
    late: list[Route] = []

    def told(first: int) -> dict[str, Any]:
        end = first + OF_A_PAGE
        return {"items": every[first:end], "next": str(end) if end < PARTITIONS else None, "total": PARTITIONS}

    def serve(route: Route) -> None:
        """Answer the first page at once, and the second as if it were a long way away."""
        after = int(parse_qs(urlsplit(route.request.url).query).get("after", ["0"])[0])
        if after == OF_A_PAGE and not late:
            late.append(route)
        else:
            route.fulfill(json=told(after))

    path = f"/v1/flows/{quote(scene.flow, safe='')}/topics/{scene.orders}/partitions"
    tab.page.route(lambda url: urlsplit(url).path == path, serve)
    tab.go("topics", flow=scene.flow, topic=scene.orders)
    tab.see("1,000 of 10,000 partitions are here, the others are coming")
    label = f"Partitions of {scene.orders}"
    assert tab.table(label)[0]["Partition"] == "0"
    wait_until(lambda: late, "the second page is asked for")
    late[0].fulfill(json=told(OF_A_PAGE))
    tab.see("10,000 of 10,000 partitions")

    region = tab.page.get_by_role("region", name=label, exact=True)
    assert 0 < region.locator("tbody tr").count() < ROWS_MOST
    region.evaluate("one => { one.scrollTop = one.scrollHeight; }")
    region.get_by_role("cell", name=str(PARTITIONS - 1), exact=True).first.wait_for()
    assert region.locator("tbody tr").count() < ROWS_MOST
    region.get_by_role("button", name="Records behind").click()
    region.evaluate("one => { one.scrollTop = 0; }")
    wait_until(
        lambda: region.get_by_role("row").nth(1).get_by_role("cell").first.inner_text() == str(PARTITIONS - 1),
        "what is furthest behind comes first",
    )


def test_on_a_phone_no_view_is_wider_than_the_screen(scene: Scene, tab: Tab) -> None:
    tab.page.set_viewport_size(PHONE)
    of_flow = {"flow": scene.flow}
    places: list[dict[str, str]] = [{"view": view} for view in VIEWS]
    places += [
        {"view": "topics", "topic": scene.orders, **of_flow},
        {"view": "topics", "topic": scene.filled, **of_flow},
        {"view": "groups", "group": scene.group, **of_flow},
        {"view": "groups", "group": "g" * 500, **of_flow},
    ]
    too_wide = []
    for place in places:
        tab.go(**place)
        wait_until(lambda: LOADED not in tab.text(), "all is loaded")
        width = tab.page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            too_wide.append((place, width))
    assert not too_wide
