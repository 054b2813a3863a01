"""The page while workers, their REST and the source are gone: it says so, calls nothing good, and comes back by itself.

Two workers, without a users' file: the page is opened with the address that ``mm2py open`` prints.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.browser.scene import WORDS, points_of
from tests.cluster.browser.tabs import Tab, port_of
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import new_name, record_count, write
from tests.cluster.rest.test_rest_process import rest_processes
from tests.cluster.running import ANSWER_S, Mm2py, one_way_properties, wait_until

OpenTab = Callable[[str], Tab]
PARTITIONS = 4


@dataclass
class Pair:
    """Two workers of one group. The page is that of the first."""

    source: KafkaCluster
    target: KafkaCluster
    alias: str
    topic: str
    first: Mm2py
    second: Mm2py
    address: str

    @property
    def flow(self) -> str:
        return f"{self.alias}->B"

    def items(self, path: str) -> list[dict[str, Any]]:
        answer = httpx2.get(f"{self.address}/v1/{path}", timeout=ANSWER_S)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["items"]
        return found

    def is_healthy(self) -> bool:
        """Whether the first worker answers that all is well. Its REST may not be there."""
        try:
            return httpx2.get(f"{self.address}/health", timeout=ANSWER_S).status_code == 200
        except httpx2.TransportError:
            return False

    def flow_told(self) -> dict[str, Any]:
        (found,) = self.items("flows")
        return found

    def owners(self) -> set[str]:
        return {one["owner_name"] for one in self.items(f"flows/{self.flow}/topics/{self.topic}/partitions")}

    def states(self) -> set[tuple[str, str]]:
        """Return the state of each worker, by its process id, as ``/v1`` tells it."""
        return {(one["member"]["name"], one["member"]["state"]) for one in self.items("workers")}

    def once(self) -> str:
        """Return an address that logs a browser in."""
        return self.first.ordered("open", "--port", str(port_of(self.address))).strip()


@pytest.fixture(scope="module")
def pair(browser: Any, target_cluster: KafkaCluster) -> Iterator[Pair]:
    alias = new_name("O").replace("-", "")
    with KafkaCluster("own") as source:
        topic = new_topic(source, "orders", partitions=PARTITIONS)
        properties = one_way_properties(
            source,
            target_cluster,
            names=(alias, "B"),
            **{
                "listeners": "http://127.0.0.1:0",
                f"{alias}->B.topics": topic,
                "config.storage.replication.factor": 1,
            },
        )
        with Mm2py(properties) as first, Mm2py(properties) as second:
            address = first.wait_for_event("rest.listening")["at"]
            found = Pair(source, target_cluster, alias, topic, first, second, address)
            wait_until(found.is_healthy, "it is healthy")
            wait_until(lambda: len(found.owners() - {""}) == 2, "both workers copy")
            yield found


def card(tab: Tab, flow: str) -> str:
    found: str = tab.page.get_by_role("article", name=f"Flow {flow}").inner_text()
    return found


def wait_for_card(tab: Tab, pair: Pair, readiness: str) -> None:
    """Wait until ``/v1`` tells this readiness, and the page shows it with the same sentence."""

    def is_same() -> bool:
        told, shown = pair.flow_told(), card(tab, pair.flow)
        verdict = told["verdict"]
        wanted = [WORDS[readiness], *points_of(told)]
        return bool(verdict["readiness"] == readiness and all(one in shown for one in wanted))

    wait_until(is_same, f"the flow is {readiness}, and the page says so")


def test_an_address_of_mm2py_open_logs_in_once(pair: Pair, open_tab: OpenTab) -> None:
    once = pair.once()
    tab = open_tab(pair.address)
    tab.page.goto(once)
    tab.page.get_by_role("banner").get_by_text("mm2py (admin)").wait_for()
    wait_until(lambda: tab.verbs() >= {"pause", "restart"}, "there are buttons")
    assert tab.page.url == f"{pair.address}/", "the code is not in the address any more"
    thief = open_tab(pair.address)
    thief.page.goto(once)
    thief.page.get_by_role("alert").wait_for()
    wait_until(lambda: pair.flow in thief.text(), "all users of the machine may read")
    assert thief.verbs() == set()
    thief.page.get_by_text("to change anything: mm2py open FILE").wait_for()


def test_the_source_is_gone_and_comes_back(pair: Pair, open_tab: OpenTab) -> None:
    tab = open_tab(pair.address)
    tab.go("flows")
    wait_for_card(tab, pair, "safe")
    assert tab.page.title() == "mm2py"
    broker = pair.source.broker(1)
    broker.stop()
    try:
        wait_for_card(tab, pair, "unknown")
        (told,) = (one for one in pair.items("clusters") if one["cluster"] == pair.alias)
        assert not told["is_reachable"]
        map_of_clusters = tab.page.get_by_role("group", name="Clusters and the flows between them")
        map_of_clusters.get_by_text("no answer").wait_for()
        tab.see(told["why"] or f"{pair.alias} does not answer.")
        wait_until(lambda: tab.page.title() == "(1) mm2py", "the title counts it")
    finally:
        broker.start()
    write(pair.source, pair.topic, [b"x"] * 10)
    wait_until(lambda: record_count(pair.target, f"{pair.alias}.{pair.topic}", range(PARTITIONS)) == 10, "it copies")
    wait_for_card(tab, pair, "safe")
    wait_until(lambda: "no answer" not in (map_of_clusters.text_content() or ""), "the source answers")
    wait_until(lambda: tab.page.title() == "mm2py", "the title counts nothing")


def test_a_worker_is_killed_and_the_other_one_copies_its_partitions(pair: Pair, open_tab: OpenTab) -> None:
    tab, topic_tab = open_tab(pair.address), open_tab(pair.address)
    tab.go("workers")
    topic_tab.go("topics", flow=pair.flow, topic=pair.topic)

    def shown() -> set[tuple[str, str]]:
        region = tab.page.get_by_role("region", name="Workers of group").first.get_attribute("aria-label")
        return {(row["Worker"].removesuffix(" leader"), row["State"]) for row in tab.table(region or "")}

    def shown_owners() -> set[str]:
        return {row["Worker"] for row in topic_tab.table(f"Partitions of {pair.topic}")}

    wait_until(lambda: shown() == pair.states() and len(pair.states()) == 2, "both are shown")
    wait_until(lambda: shown_owners() == pair.owners() and len(pair.owners()) == 2, "each copies partitions")
    pair.second.kill()
    wait_until(lambda: {state for _, state in pair.states()} != {"alive"} or len(pair.states()) == 1, "it is missed")
    wait_until(lambda: shown() == pair.states(), "the page says the same")
    wait_until(lambda: shown_owners() == pair.owners() and len(pair.owners() - {"", "none"}) == 1, "one copies all")
    tab.go("events")
    tab.see("was evicted")
    pair.second.start()
    wait_until(lambda: len(pair.owners()) == 2 and shown_owners() == pair.owners(), "both copy again")


def test_a_broken_stream_and_a_lost_session_are_told_and_mended(pair: Pair, open_tab: OpenTab) -> None:
    """What serves REST is killed: the stream breaks, and the session, which was in its memory, is gone."""
    tab = open_tab(pair.address)
    tab.page.goto(pair.once())
    tab.page.get_by_role("banner").get_by_text("mm2py (admin)").wait_for()
    tab.page.get_by_role("navigation", name="Views").get_by_role("link", name="events").click()
    tab.see("new ones appear by themselves")
    (process,) = rest_processes(pair.first.pid)
    os.kill(process, signal.SIGSTOP)  # so that it is seen: it is started again within a second or two
    os.kill(process, signal.SIGKILL)
    tab.see("New events are not shown at the moment.")
    tab.see("new ones appear by themselves")
    assert "not shown at the moment" not in tab.text()
    tab.page.get_by_role("navigation", name="Views").get_by_role("link", name="flows").click()
    tab.press(f"pause {pair.flow}")
    tab.press_in_window("pause")
    tab.window.get_by_role("alert").get_by_text("Open the address that mm2py open FILE prints.").wait_for()
    tab.press_in_window("cancel")
    tab.see_no_window()
    tab.page.get_by_text("to change anything: mm2py open FILE").wait_for()
    assert tab.verbs() == set()
    assert pair.flow_told()["state"] == "running", "nothing was done without a session"
    tab.page.goto(pair.once())
    wait_until(lambda: tab.verbs() >= {"pause", "restart"}, "a new address logs in again, in the same tab")


def test_a_page_without_its_worker_calls_nothing_good(pair: Pair, open_tab: OpenTab) -> None:
    """The last test of this module: the worker is killed and started again at the same port."""
    tab = open_tab(pair.address)
    tab.go("flows")
    wait_for_card(tab, pair, "safe")
    pair.first.kill()
    tab.see("The worker cannot be reached. The page asks again by itself.")
    wait_until(lambda: "was safe" in card(tab, pair.flow), "what was good is not called good any more")
    wait_until(lambda: tab.page.title() == "mm2py (not watched)", "the title says so")
    text = pair.first.file.read_text()
    pair.first.file.write_text(text.replace("http://127.0.0.1:0", pair.address))
    pair.first.start()
    wait_until(pair.is_healthy, "it is there again")
    wait_for_card(tab, pair, "safe")
    wait_until(lambda: tab.page.title() == "mm2py", "the title is that of a flow that is well")
