"""The buttons of the quarantine: what the target refused is taken out again, a record alone and all of a topic."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from deploy.local.kafka import KafkaCluster
from tests.checker.traffic import Planned
from tests.cluster.browser.tabs import Tab, port_of
from tests.cluster.copies import make_topic, new_topic, send
from tests.cluster.copying.test_quarantine import properties_of
from tests.cluster.kafka_client import new_name, values, write
from tests.cluster.rest.serving import LISTENERS
from tests.cluster.running import Mm2py, wait_until
from tests.cluster.topics.test_topic_sync import set_by_hand

LARGE = bytes(100_000)


def test_records_are_taken_out_of_quarantine_by_the_buttons_of_the_page(
    open_tab: Callable[[str], Tab],
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
) -> None:
    alias = new_name("Q").replace("-", "")
    topic = new_topic(source_cluster, "large", configs={"max.message.bytes": "200000"})
    remote, flow = f"{alias}.{topic}", f"{alias}->B"
    make_topic(target_cluster, remote, configs={"max.message.bytes": "30000"})
    properties = properties_of(
        source_cluster,
        target_cluster,
        alias,
        topic,
        **{"config.storage.replication.factor": 1, "listeners": LISTENERS},
    )
    with Mm2py(properties) as run:
        address = str(run.wait_for_event("rest.listening")["at"])
        write(source_cluster, topic, [b"first"])
        run.wait_until(lambda: values(target_cluster, remote) == [b"first"], "it copies")
        for number in range(2):
            send(source_cluster, topic, [Planned(0, 1_000 + number, b"large", LARGE, ())])
        write(source_cluster, topic, [b"last"])
        run.wait_until(lambda: b"last" in values(target_cluster, remote), "copying goes on behind what was refused")

        tab = open_tab(f"http://{urlsplit(address).netloc}")
        tab.page.goto(run.ordered("open", "--port", str(port_of(address))).strip())
        tab.page.get_by_role("banner").get_by_text("mm2py (admin)").wait_for()
        tab.go("gaps", flow=flow)
        alone, both = f"{topic}-0 at 1 of {flow}", f"2 records of {topic} of {flow}"
        tab.button(f"replay {both}").wait_for()
        tab.press(f"replay {alone}")
        tab.window.get_by_text("their order among the others is given up for good").wait_for()
        assert "until then" not in tab.window.inner_text(), "it is this record alone"
        tab.press_in_window("replay")
        tab.window.get_by_role("alert").get_by_text(f"{remote} still refuses {topic}-0 at offset 1").wait_for()
        tab.press_in_window("cancel")
        tab.see_no_window()
        assert values(target_cluster, remote) == [b"first", b"last"]

        set_by_hand(target_cluster, remote, max_message_bytes="200000")
        tab.press(f"replay {alone}")
        tab.press_in_window("replay")
        wait_until(lambda: any("1 record(s) were appended" in one for one in tab.spoken()), "it says what was done")
        tab.see_no_window()
        assert values(target_cluster, remote) == [b"first", b"last", LARGE]
        left = f"1 record of {topic} of {flow}"
        tab.go("gaps", flow=flow)
        tab.button(f"replay {left}").wait_for()
        tab.press(f"replay {left}")
        tab.window.get_by_text("So do others of it that are put in quarantine until then.").wait_for()
        tab.press_in_window("replay")
        wait_until(lambda: any("1 record(s) were appended" in one for one in tab.spoken()), "it says what was done")
        tab.see_no_window()
        assert values(target_cluster, remote) == [b"first", b"last", LARGE, LARGE]
        tab.go("gaps", flow=flow)
        tab.see("All records of the quarantine were taken out.")
        assert run.terminate() == 0
