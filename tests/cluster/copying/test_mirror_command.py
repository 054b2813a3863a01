"""``mm2py mirror``: one command without a file, on real brokers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import make_topic, producer
from tests.cluster.group_offsets import member, take
from tests.cluster.kafka_client import new_name, values
from tests.cluster.running import ANSWER_S, OWN_PATH, PATIENCE

pytestmark = pytest.mark.timeout(300 * PATIENCE)
RUN_S = 90.0 * PATIENCE


def fill(cluster: KafkaCluster, topic: str, records: list[bytes]) -> None:
    client = producer(cluster)
    for value in records:
        client.produce(topic, value, partition=0)
    assert client.flush(ANSWER_S) == 0


def mirror(*options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mm2py", "mirror", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_S,
        env={**os.environ, "PYTHONPATH": OWN_PATH},
        check=False,
    )
    return done.returncode, done.stdout


def test_it_mirrors_what_is_there_and_ends_and_goes_on_where_it_ended(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_name("orders")
    make_topic(source_cluster, topic, 1)
    fill(source_cluster, topic, [b"%d" % at for at in range(1000)])
    options = ["--from", source_cluster.bootstrap, "--to", target_cluster.bootstrap, "--topics", topic]
    options += ["--prefix", new_name("dc").replace("-", "") + "_", "--until-caught-up"]
    copy = options[options.index("--prefix") + 1] + topic
    code, text = mirror(*options)
    assert code == 0, text
    assert "caught up" in text and "1 topic(s)" in text, text
    assert values(target_cluster, copy, [0]) == [b"%d" % at for at in range(1000)]
    fill(source_cluster, topic, [b"more"])
    code, text = mirror(*options)
    assert code == 0, text
    assert values(target_cluster, copy, [0]) == [*(b"%d" % at for at in range(1000)), b"more"]


def test_it_goes_on_where_an_older_mirror_has_stopped(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """With the files and the options of the older one: its group has read 60 records, which are on the target."""
    topic, group = new_name("orders"), new_name("old-mirror")
    for cluster in (source_cluster, target_cluster):
        make_topic(cluster, topic, 1)
    fill(source_cluster, topic, [b"%d" % at for at in range(100)])
    reader = member(source_cluster, group)
    fill(target_cluster, topic, take(reader, topic, 60))
    reader.close()
    consumer, target = tmp_path / "consumer.properties", tmp_path / "producer.properties"
    consumer.write_text(f"bootstrap.servers={source_cluster.bootstrap}\ngroup.id={group}\nauto.offset.reset=earliest\n")
    target.write_text(f"bootstrap.servers={target_cluster.bootstrap}\nacks=all\n")
    options = ["--consumer.config", str(consumer), "--producer.config", str(target), "--whitelist", topic]
    code, text = mirror(*options, "--num.streams", "4", "--abort.on.send.failure", "true", "--until-caught-up")
    assert code == 0, text
    assert f"begins where group {group} has committed" in text, text
    assert "--num.streams means nothing here" in text, text
    assert values(target_cluster, topic, [0]) == [b"%d" % at for at in range(100)]


def test_a_topic_that_waits_for_somebody_is_named_and_the_others_are_mirrored(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """The copy of one topic holds records of nobody knows whom."""
    good, filled = new_name("good"), new_name("filled")
    for topic in (good, filled):
        make_topic(source_cluster, topic, 1)
        fill(source_cluster, topic, [b"1", b"2"])
    make_topic(target_cluster, filled, 1)
    fill(target_cluster, filled, [b"foreign"])
    code, text = mirror(
        *("--from", source_cluster.bootstrap, "--to", target_cluster.bootstrap),
        *("--topics", f"{good},{filled}", "--until-caught-up", "--from-group", ""),
    )
    assert code == 3, text
    assert f"Topic {filled} of" in text and "is not empty there" in text, text
    assert values(target_cluster, good, [0]) == [b"1", b"2"]
    assert values(target_cluster, filled, [0]) == [b"foreign"]


def test_the_file_that_it_writes_is_one_that_mm2py_reads(tmp_path: Path) -> None:
    path = tmp_path / "made.properties"
    options = ["--from", "127.0.0.1:1", "--to", "127.0.0.1:2", "--topics", "orders.*", "--write-file", str(path)]
    assert mirror(*options)[0] == 0
    assert path.stat().st_mode & 0o777 == 0o600
    code, text = mirror(*options)
    assert (code, "is there already" in text) == (2, True), text
    done = subprocess.run(
        [sys.executable, "-m", "mm2py", "config", str(path)], capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "127-0-0-1-1->target" in done.stdout
