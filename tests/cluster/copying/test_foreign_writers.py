"""Somebody who writes to remote topics beside mm2py, between real brokers and under load.

The checker judges each copy as ever: all that it may find are the foreign records themselves, each where its writer put
it. The next copied batch shows that somebody was there, so mm2py names partition and offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from deploy.local.kafka import KafkaCluster
from tests.checker.check import Report, check_copy
from tests.checker.ledger import Ledger
from tests.checker.load import Load
from tests.checker.traffic import Planned, Traffic
from tests.cluster.copies import COPY_DEADLINE_S, answered, new_topic, now_ms, send
from tests.cluster.copying.test_gaps import flow_of
from tests.cluster.kafka_client import record_count
from tests.cluster.running import Event, Mm2py, Value

PARTITIONS = 2
PER_SECOND = 200
SEVERAL = 3
"""Records that the other one writes at a time, in one batch."""
EXACTLY_ONCE: dict[str, Value] = {"B.exactly.once.source.support": "enabled"}


class Copying:
    """A topic under load, a flow that copies it, and somebody else who writes to the copy."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, stem: str, **extra: Value) -> None:
        self._source, self._target = source, target
        self.topic = new_topic(source, stem, PARTITIONS)
        self.alias, properties = flow_of(source, target, self.topic, **extra)
        self.remote = f"{self.alias}.{self.topic}"
        self.run = Mm2py(properties)
        self._foreign = Ledger()
        traffic = Traffic(seed=len(stem), partitions=PARTITIONS, first_timestamp_ms=now_ms())
        self.load = Load(source.internal_bootstrap, self.topic, traffic, codecs=["lz4"], per_second=PER_SECOND)

    def copied(self, partition: int) -> int:
        return record_count(self._target, self.remote, [partition])

    def copy_more(self, partition: int, more: int = PER_SECOND) -> None:
        """Wait until a partition of the copy has grown by so many records."""
        goal = self.copied(partition) + more
        what = f"{more} more records of partition {partition} are copied"
        self.run.wait_until(lambda: self.copied(partition) >= goal, what, deadline_s=COPY_DEADLINE_S)

    def write_foreign(self, partition: int, *, idempotent: bool = False) -> tuple[int, int]:
        """Write records of somebody else to the copy, and return the first and the last of their offsets."""
        records = [
            Planned(partition, now_ms(), b"foreign", b"%d" % number, (("from", b"elsewhere"),))
            for number in range(SEVERAL)
        ]
        send(self._target, self.remote, records, ledger=self._foreign, linger_ms=1_000, enable_idempotence=idempotent)
        offsets = [one.offset for one in self._foreign.of(self.remote, partition)][-SEVERAL:]
        return offsets[0], offsets[-1]

    def assert_named(self, met: Event, offsets: Sequence[int]) -> None:
        """The event tells of these foreign records: which, and where."""
        where = f"{SEVERAL} records to {self.remote}-{met['partition']}, at offsets {offsets[0]} to {offsets[1]};"
        assert met["level"] == "error"
        assert where in met["why"], f"{where} is not in: {met['why']}"

    def assert_right(self) -> None:
        """Let the checker judge: each source record is there once and in order, among the foreign ones that we know."""
        report = self.run.wait_until(self._complete_report, "all is copied", deadline_s=COPY_DEADLINE_S)
        found = {(one.invariant, one.partition, one.target_offset, one.what) for one in report.findings}
        assert found == {
            ("I5", number, one.offset, "the source has no such record")
            for number in range(PARTITIONS)
            for one in self._foreign.of(self.remote, number)
        }, report
        assert sum(sum(verdict.breaches.values()) for verdict in report.verdicts) == len(found), report

    def _complete_report(self) -> Report | None:
        def check() -> Report:
            return check_copy(
                self._source.internal_bootstrap, self._target.internal_bootstrap, {self.topic: self.remote}
            )

        report = answered(check)
        return None if any(verdict.unreached_records for verdict in report.verdicts) else report


def test_copied_records_stay_in_order_once_each_with_foreign_ones_between_them_which_are_named(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """Once for each partition: what comes there later is only copied past."""
    copying = Copying(source_cluster, target_cluster, "beside")
    with copying.run as run:
        with copying.load.in_background():
            for partition, idempotent in ((0, False), (1, True)):
                copying.copy_more(partition)
                offsets = copying.write_foreign(partition, idempotent=idempotent)
                met = run.wait_for_event("foreign.writer", topic=copying.topic, partition=partition)
                copying.assert_named(met, offsets)
                assert met["done"] == "continued"
            copying.write_foreign(0)
            copying.copy_more(0)
            copying.copy_more(1)
        copying.assert_right()
        assert len(run.events("foreign.writer")) == PARTITIONS
        code, found = run.gaps("--all")
        assert code == 0, "it waits for nobody"
        assert {(gap["kind"], gap["partition"], gap["done"], gap["open"]) for gap in found} == {
            ("foreign-records", number, "continued", False) for number in range(PARTITIONS)
        }
        assert run.terminate() == 0
        assert not run.events("flow.crashed"), run.tail()


@pytest.mark.parametrize(
    "ended_by",
    [
        None,
        pytest.param(Mm2py.terminate, marks=pytest.mark.slow),
        pytest.param(Mm2py.kill, marks=pytest.mark.slow),
    ],
    ids=["beside an incarnation", "behind a stopped one", "behind a killed one"],
)
def test_under_exactly_once_a_foreign_writer_stops_the_partition_until_an_operator_accepts(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, ended_by: Callable[[Mm2py], object] | None
) -> None:
    copying = Copying(source_cluster, target_cluster, "exact", **EXACTLY_ONCE)
    at = f"{copying.alias}->B:{copying.topic}:0"
    with copying.run as run:
        with copying.load.in_background():
            copying.copy_more(0)
            if ended_by is not None:
                ended_by(run)
            offsets = copying.write_foreign(0)
            if ended_by is not None:
                run.start()
            met = run.wait_for_event("foreign.writer", topic=copying.topic, partition=0)
            copying.assert_named(met, offsets)
            assert met["done"] == "stopped"
            assert "let only mm2py write there, or set B.exactly.once.source.support=disabled" in met["why"]
            assert f"mm2py gaps {run.file} accept '{at}'." in met["remedy"]
            stood_at = copying.copied(0)
            copying.copy_more(1)
            assert copying.copied(0) == stood_at, "it goes on by itself"
            code, (gap,) = run.gaps()
            assert (code, gap["kind"], gap["partition"], gap["done"]) == (3, "foreign-records", 0, "stopped")
            code, (answer,) = run.gaps("accept", at)
            assert (code, answer["accepted"]) == (0, True), answer
            copying.copy_more(0)
        copying.assert_right()
        assert run.gaps() == (0, [])
        assert len(run.events("foreign.writer")) == 1, "what was accepted stops it again"
        assert run.terminate() == 0
        assert not run.events("flow.crashed"), run.tail()
