"""Offset syncs and checkpoints on real brokers: soon, by one worker at a time, on the cluster that was asked for, and
true."""

from __future__ import annotations

import signal

import pytest

from deploy.local.kafka import KafkaCluster
from tests.checker.dumped import digest
from tests.checker.ledger import Ledger
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.cleaned_topics import NEVER_CLEANED, cleaned_topic, rolls
from tests.cluster.copies import assert_copied, dump, make_topic, new_topic, now_ms, send
from tests.cluster.group_offsets import checkpoints_in, commit, member, syncs_in, take
from tests.cluster.groups import Group
from tests.cluster.kafka_client import new_name, topic_names, write
from tests.cluster.running import PATIENCE, Mm2py, Value, one_way_properties, wait_until

SOON_S = 50.0 * PATIENCE
ARRIVAL_S = 60.0 * PATIENCE


class Scene:
    """One flow with aliases of its own, and the groups ``self.group + anything``."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, **extra: Value) -> None:
        self.source, self.target = source, target
        self.alias, self.other, self.group = new_name("A"), new_name("B"), new_name("reads")
        self.topic = new_topic(source, "orders")
        self.remote = f"{self.alias}.{self.topic}"
        self.checkpoints = f"{self.alias}.checkpoints.internal"
        self.syncs = f"mm2-offset-syncs.{self.other}.internal"
        self.properties = one_way_properties(source, target, names=(self.alias, self.other)) | {
            f"{self.alias}->{self.other}.topics": self.topic,
            "emit.checkpoints.enabled": True,
            "emit.checkpoints.interval.seconds": 1,
            "groups": f"{self.group}.*",
            **{name.replace("_", "."): value for name, value in extra.items()},
        }

    def offsets_of(self, name: str) -> tuple[int, int] | None:
        """Return upstream and downstream offset of a group's last checkpoint."""
        one = checkpoints_in(self.target, self.checkpoints).get(self.group + name)
        return None if one is None else (one.upstream_offset, one.downstream_offset)

    def wait_for(self, name: str, upstream: int, *, deadline_s: float = ARRIVAL_S) -> int:
        """Wait for a checkpoint of what the group has committed, and return its downstream offset."""

        def said() -> tuple[int, int] | None:
            found = self.offsets_of(name)
            return found if found is not None and found[0] == upstream else None

        found = wait_until(said, f"a checkpoint of {name} at {upstream}", deadline_s=deadline_s)
        assert found is not None
        return found[1]


def test_a_group_that_closes_gets_its_checkpoint_long_before_the_interval_is_over(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    scene = Scene(source_cluster, target_cluster, emit_checkpoints_interval_seconds=3600)
    write(source_cluster, scene.topic, [f"{number}" for number in range(100)])
    with Mm2py(scene.properties) as run:
        run.wait_until(lambda: syncs_in(source_cluster, scene.syncs), "an offset sync", deadline_s=ARRIVAL_S)
        commit(source_cluster, f"{scene.group} only commits", scene.topic, 50)
        assert 1 <= scene.wait_for(" only commits", 50, deadline_s=SOON_S) <= 50
        # The round of all groups has been: the next one is an hour away.
        client = member(source_cluster, f"{scene.group} closes")
        take(client, scene.topic, 80)
        client.close()
        assert 1 <= scene.wait_for(" closes", 80, deadline_s=SOON_S) <= 80
        assert run.terminate() == 0


def test_a_killed_worker_that_emitted_is_followed_by_the_other(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    scene = Scene(source_cluster, target_cluster)
    write(source_cluster, scene.topic, [f"{number}" for number in range(100)])
    commit(source_cluster, scene.group, scene.topic, 50)
    with Group(target_cluster, scene.properties, workers=2) as group:
        scene.wait_for("", 50)
        (emitter,) = wait_until(
            lambda: [worker for worker in group.workers if worker.events("checkpoints.emitting")],
            "one says that it emits",
        )
        (other,) = [worker for worker in group.workers if worker is not emitter]
        emitter.signal(signal.SIGKILL)
        commit(source_cluster, scene.group, scene.topic, 100)
        other.wait_for_event("checkpoints.emitting", deadline_s=ARRIVAL_S)
        scene.wait_for("", 100)
        wait_until(lambda: scene.offsets_of("") == (100, 100), "the exact end", deadline_s=ARRIVAL_S)


def test_with_syncs_on_the_target_nothing_is_written_to_the_source(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    scene = Scene(source_cluster, target_cluster, **{"offset-syncs.topic.location": "target"})
    write(source_cluster, scene.topic, [f"{number}" for number in range(100)])
    commit(source_cluster, scene.group, scene.topic, 100)
    before = topic_names(source_cluster)
    with Mm2py(scene.properties) as run:
        wait_until(lambda: scene.offsets_of("") == (100, 100), "the exact end", deadline_s=ARRIVAL_S)
        assert run.terminate() == 0
    assert topic_names(source_cluster) == before
    assert syncs_in(target_cluster, f"mm2-offset-syncs.{scene.alias}.internal")


@pytest.mark.parametrize("cleaned", [False, True], ids=["plain", "compacted"])
def test_every_sync_names_a_record_and_its_copy_also_across_a_killed_worker(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, cleaned: bool
) -> None:
    """The source's cleaner has left holes in the offsets. The copy is one open segment, which no cleaner touches."""
    scene = Scene(source_cluster, target_cluster, offset_lag_max=20, sync_topic_configs_enabled=False)
    ledger = Ledger()
    policy = {"cleanup.policy": "compact"} if cleaned else {}
    if cleaned:
        scene.topic = cleaned_topic(source_cluster, ledger)
        scene.remote = f"{scene.alias}.{scene.topic}"
        scene.properties[f"{scene.alias}->{scene.other}.topics"] = scene.topic
    make_topic(target_cluster, scene.remote, 1, {**policy, **NEVER_CLEANED})
    load = Load(
        source_cluster.internal_bootstrap,
        scene.topic,
        Traffic(seed=5, partitions=1, compacted=cleaned, keys=60, first_timestamp_ms=now_ms(), twins=not cleaned),
        ledger,
        codecs=["none", "lz4"],
        per_second=300,
    )
    with Mm2py(scene.properties) as run, load.in_background():
        run.wait_until(lambda: len(syncs_in(source_cluster, scene.syncs)) > 20, "syncs", deadline_s=ARRIVAL_S)
        run.kill()
    before = len(syncs_in(source_cluster, scene.syncs))
    with Mm2py(scene.properties) as run:
        send(source_cluster, scene.topic, rolls(40), ledger=ledger)
        assert_copied(source_cluster, target_cluster, scene.topic, scene.remote, run=run, ledger=ledger)
        sources = {entry.offset: entry.digest for entry in ledger.of(scene.topic, 0)}
        sources |= {record.offset: digest(record) for record in dump(source_cluster, scene.topic)[0]}
        run.wait_until(
            lambda: syncs_in(source_cluster, scene.syncs)[-1].upstream_offset == max(sources),
            "a sync of the last record",
            deadline_s=ARRIVAL_S,
        )
        assert run.terminate() == 0
    found = syncs_in(source_cluster, scene.syncs)
    assert len(found) > before, "it went on after the kill"
    copies = {record.offset: digest(record) for record in dump(target_cluster, scene.remote)[0]}
    for sync in found:
        assert (sync.topic, sync.partition) == (scene.topic, 0)
        assert sources[sync.upstream_offset] == copies[sync.downstream_offset], sync
