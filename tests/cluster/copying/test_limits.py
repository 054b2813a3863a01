"""Limits that an operator sets hold: memory while the target hangs, and bytes a second for one flow."""

from __future__ import annotations

import re
import time
from itertools import islice
from pathlib import Path

from deploy.local.kafka import KafkaCluster
from tests.checker.traffic import Traffic
from tests.cluster.copies import assert_copied, new_topic, send
from tests.cluster.kafka_client import record_count
from tests.cluster.running import Mm2py, one_way_properties

MEMORY_MAX_BYTES = 16 << 20
PROCESS_BYTES = 80 << 20
"""What the process takes with nothing to copy, and to spare: interpreter, libraries, buffers of its sockets."""
RATE = 1_000_000


def _most_memory(run: Mm2py) -> int:
    """Return the largest resident size of the process since ``_forget_most_memory``, in bytes."""
    status = Path(f"/proc/{run.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def _forget_most_memory(run: Mm2py) -> None:
    """Begin anew from the present size: importing takes more than running."""
    Path(f"/proc/{run.pid}/clear_refs").write_text("5")


def _most_memory_once_it_rests(run: Mm2py) -> int:
    """Wait until the process has taken all it will take for now: nothing announces that, so until it grows no more."""
    seen: list[int] = []

    def rests() -> bool:
        seen.append(_most_memory(run))
        return len(seen) > 20 and len(set(seen[-20:])) == 1

    run.wait_until(rests, "memory grows no more")
    return seen[-1]


def test_memory_stays_within_its_limit_while_the_target_hangs(
    source_cluster: KafkaCluster, guarded_cluster: KafkaCluster
) -> None:
    """F23, B53: with a backlog of eight times the limit, passed by one flow and compressed anew by the other."""
    passed, rebuilt = (new_topic(source_cluster, f"backlog.{stem}", 20) for stem in ("passed", "rebuilt"))
    for seed, topic in enumerate((passed, rebuilt)):
        traffic = Traffic(seed=seed, partitions=20, plain=True, value_bytes=12_000)
        send(source_cluster, topic, islice(traffic.records(), 11_000), batch_size=200_000)
    properties = one_way_properties(source_cluster, guarded_cluster) | {
        "clusters": "A,Z,B",
        "Z.bootstrap.servers": source_cluster.bootstrap,
        "A->B.topics": passed,
        "Z->B.topics": rebuilt,
        "Z->B.enabled": True,
        "Z->B.producer.override.compression.type": "zstd",
        "memory.max.bytes": MEMORY_MAX_BYTES,
    }
    with Mm2py(properties) as run:
        run.wait_for_event("worker.starting")
        _forget_most_memory(run)
        for flow in ("A->B", "Z->B"):
            run.wait_for_event("topics.copying", flow=flow)
        run.wait_until(lambda: record_count(guarded_cluster, f"A.{passed}", range(20)) > 500, "the copy is under way")
        guarded_cluster.brokers[0].freeze()
        try:
            held = _most_memory_once_it_rests(run)
        finally:
            guarded_cluster.brokers[0].thaw()
        assert_copied(source_cluster, guarded_cluster, passed, f"A.{passed}", run=run)
        assert_copied(source_cluster, guarded_cluster, rebuilt, f"Z.{rebuilt}", run=run)
        most = _most_memory(run)
        print(f"{most >> 20} MiB at most, {held >> 20} MiB while the target hung")
        assert most < PROCESS_BYTES + 2 * MEMORY_MAX_BYTES, f"{most >> 20} MiB, {held >> 20} MiB while it hung"
        assert run.terminate() == 0


def test_bytes_per_second_hold_for_one_flow_and_not_for_the_other(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_topic(source_cluster, "rate", 6)
    traffic = Traffic(seed=31, partitions=6, plain=True, value_bytes=4_000)
    send(source_cluster, topic, islice(traffic.records(), 3_000))
    properties = one_way_properties(source_cluster, target_cluster) | {
        "clusters": "A,F,B",
        "F.bootstrap.servers": source_cluster.bootstrap,
        "topics": topic,
        "F->B.enabled": True,
        "A->B.bytes.per.second.max": RATE,
    }
    counts: list[tuple[float, int]] = []

    def slow_one_is_done() -> bool:
        counts.append((time.monotonic() - begun_s, record_count(target_cluster, f"A.{topic}", range(6))))
        return counts[-1][1] >= 3_000

    with Mm2py(properties) as run:
        begun_s = time.monotonic()
        run.wait_for_event("topics.copying", flow="A->B")
        started_s = time.monotonic() - begun_s
        run.wait_until(lambda: record_count(target_cluster, f"F.{topic}", range(6)) >= 3_000, "the free one is done")
        assert record_count(target_cluster, f"A.{topic}", range(6)) < 3_000, "the limited flow is not behind"
        run.wait_until(slow_one_is_done, "the limited one is done")
        took_s = counts[-1][0] - started_s
        size = sum(file.stat().st_size for file in _segments(source_cluster, topic))
        assert took_s > size / (2 * RATE), f"{size / took_s:,.0f} bytes a second"
        assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)
        assert run.terminate() == 0


def _segments(cluster: KafkaCluster, topic: str) -> list[Path]:
    assert cluster.directory is not None
    return [*cluster.directory.glob(f"data-1/{topic}-*/*.log")]
