"""The first file of the README works as it is printed, on clusters of one broker."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from deploy.local.kafka import KafkaCluster, start_clusters
from tests.checker.traffic import Planned
from tests.cluster.copies import bounds_of, make_topic, now_ms, send
from tests.cluster.kafka_client import admin
from tests.cluster.running import ANSWER_S, Mm2py

README = Path(__file__).parents[3] / "README.md"


def first_file() -> str:
    """Return the file as it is printed."""
    found = re.search(r"^## A first file\n\n((?:    .*\n)+)", README.read_text(), re.MULTILINE)
    assert found is not None
    return textwrap.dedent(found[1])


def test_the_first_file_copies_between_clusters_of_one_broker_each(tmp_path: Path) -> None:
    """Only the addresses are other ones, and REST is off: its port may be taken on this machine."""
    with start_clusters([KafkaCluster("first-a"), KafkaCluster("first-b")]) as (source, target):
        text = first_file().replace("a1:9092, a2:9092", source.bootstrap).replace("b1:9092", target.bootstrap)
        file = tmp_path / "mm2.properties"
        file.write_text(f"{text}listeners =\n")
        make_topic(source, "orders.new", 3)
        send(source, "orders.new", [Planned(at % 3, now_ms(), b"key", b"%d" % at, ()) for at in range(30)])
        with Mm2py(file) as run:
            run.wait_until(
                lambda: "A.orders.new" in admin(target).list_topics(timeout=ANSWER_S).topics,
                "the remote topic is there",
            )
            run.wait_until(
                lambda: sum(one.end for one in bounds_of(target, "A.orders.new", range(3)).values()) == 30,
                "all records are copied",
            )
            wanted = {"heartbeats", "A.checkpoints.internal", "mm2-ledger.A.internal", "mm2-status.A.internal"}
            run.wait_until(
                lambda: wanted <= set(admin(target).list_topics(timeout=ANSWER_S).topics), "its own topics are there"
            )
            run.wait_until(
                lambda: "mm2-offset-syncs.B.internal" in admin(source).list_topics(timeout=ANSWER_S).topics,
                "the topic of offset syncs is there",
            )
            assert run.terminate() == 0
            assert not [line for line in run.events() if line.get("level") == "error"], run.tail()
