"""The checker's own proof: of real copies by mm2py, in each copy mode, every illegal variation is caught.

The copies are made once: topics are loaded, one run of the command mirrors them all until the checker sees everything,
and ends in order. What lies on the target then must pass exactly; what mutants make of its dump must not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

import pytest

from deploy.local.kafka import KafkaCluster
from tests.checker.check import check_copy
from tests.checker.dump import Reader
from tests.checker.dumped import Dumped
from tests.checker.judge import judge_partition
from tests.checker.ledger import Ledger
from tests.checker.load import Load, create_topic
from tests.checker.mutants import AGAIN, CHANGES, CUTS, REORDERINGS, Copy, Mutant, runs_of
from tests.checker.traffic import Traffic
from tests.cluster.kafka_client import new_name
from tests.cluster.raw_batches import stored_batches
from tests.cluster.running import PATIENCE, Mm2py, one_way_properties, wait_until
from tests.fakes.broker.record_batch import HEADER_BYTES

PARTITIONS = 2
RECORDS = 1_000
COPIED_S = 60.0
SEEDS = range(3)
FAMILIES: Mapping[str, list[Mutant]] = {"I1": CUTS, "I2": REORDERINGS, "I3": AGAIN, "I5": CHANGES}


@dataclass(frozen=True, slots=True)
class Mode:
    """A way for batches to come over. All aliases name the source cluster: Z wants zstd, C reads committed data."""

    alias: str
    configs: Mapping[str, str]
    passes: bool
    transactions: bool = False
    compacted: bool = False


MODES = {
    "passed": Mode("A", {}, passes=True),
    "passed, aborted dropped": Mode("C", {}, passes=True, transactions=True),
    "rebuilt for another codec": Mode("Z", {}, passes=False),
    "rebuilt for log append time": Mode("A", {"message.timestamp.type": "LogAppendTime"}, passes=False),
    "rebuilt for the holes of a cleaner": Mode(
        "A",
        {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"},
        passes=False,
        compacted=True,
    ),
}


@dataclass(frozen=True, slots=True)
class RealCopy:
    """A topic that mm2py has copied: both sides, a ``Copy`` for each partition."""

    mode: Mode
    topic: str
    remote: str
    ledger: Ledger
    partitions: list[Copy]

    def judge(self, number: int, target: list[Dumped], *, max_rewinds: int | None = 0) -> set[str]:
        """Return the invariants that the judge finds broken."""
        ledger = self.ledger.of(self.topic, number)
        copy = self.partitions[number]
        verdict = judge_partition(
            copy.source, target, compacted=self.mode.compacted, ledger=ledger, max_rewinds=max_rewinds
        )
        return set(verdict.breaches)


@pytest.fixture(scope="module")
def real_copies(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[dict[str, RealCopy]]:
    """A real copy for each mode; the process that made them has ended."""
    names = {name: new_name(f"mutants.{mode.alias}") for name, mode in MODES.items()}
    ledger = Ledger()
    for name, mode in MODES.items():
        _load(source_cluster, names[name], mode, ledger)
        if mode.compacted:
            # One open segment, which no cleaner touches: that would leave less to tell mutants by. Unit tests have it.
            # It would have the source's segment.ms if topic settings were copied.
            remote = f"{mode.alias}.{names[name]}"
            open_segment = {"cleanup.policy": "compact", "segment.ms": str(2**62)}
            create_topic(target_cluster.bootstrap, remote, PARTITIONS, open_segment)
    properties = one_way_properties(source_cluster, target_cluster) | {"clusters": "A,C,Z,B"}
    for alias in ("A", "C", "Z"):
        properties |= {
            f"{alias}.bootstrap.servers": source_cluster.bootstrap,
            f"{alias}->B.enabled": True,
            f"{alias}->B.topics": rf"mutants\.{alias}-.*",
        }
    properties["copy.mode"] = "pass"
    properties["sync.topic.configs.enabled"] = "false"
    properties["C.consumer.isolation.level"] = "read_committed"
    properties["Z->B.producer.override.compression.type"] = "zstd"

    def check(wait_s: float) -> None:
        for name, mode in MODES.items():
            report = check_copy(
                source_cluster.bootstrap,
                target_cluster.bootstrap,
                {names[name]: f"{mode.alias}.{names[name]}"},
                read_committed=mode.transactions,
                ledger=ledger,
                wait_s=wait_s,
            )
            assert report.ok, f"{name}: {report}"

    with Mm2py(properties) as run:
        check(COPIED_S)
        assert run.terminate() == 0
    check(0)
    yield {name: _copy(source_cluster, target_cluster, names[name], mode, ledger) for name, mode in MODES.items()}


def _load(cluster: KafkaCluster, topic: str, mode: Mode, ledger: Ledger) -> None:
    create_topic(cluster.bootstrap, topic, PARTITIONS, mode.configs)

    def send(count: int, seed: int) -> None:
        traffic = Traffic(
            seed, PARTITIONS, first_timestamp_ms=int(time.time() * 1000), compacted=mode.compacted, keys=150
        )
        ids = topic if mode.transactions else None
        Load(cluster.bootstrap, topic, traffic, ledger, transactional_id=ids).run(records=count)

    send(RECORDS, seed=1)
    if mode.compacted:

        def cleaned() -> bool:
            send(20, seed=time.monotonic_ns())  # begins a new segment: the one before may be cleaned
            return all(
                any(0 < batch.count <= batch.last_offset_delta for batch in stored_batches(cluster, topic, number))
                for number in range(PARTITIONS)
            )

        wait_until(cleaned, "the cleaner left holes", deadline_s=60 * PATIENCE)


def _copy(source: KafkaCluster, target: KafkaCluster, topic: str, mode: Mode, ledger: Ledger) -> RealCopy:
    remote = f"{mode.alias}.{topic}"

    def dump(cluster: KafkaCluster, name: str, *, read_committed: bool) -> list[list[Dumped]]:
        with Reader(cluster.bootstrap, read_committed=read_committed) as reader:
            bounds = reader.bounds(name, range(PARTITIONS))
            return [list(reader.records(name, number, *bounds[number])) for number in range(PARTITIONS)]

    sources, targets = dump(source, topic, read_committed=mode.transactions), dump(target, remote, read_committed=True)
    everything = dump(source, topic, read_committed=False)
    copies = []
    for number in range(PARTITIONS):
        in_scope = {record.offset for record in sources[number]}
        aborted = [record for record in everything[number] if record.offset not in in_scope]
        elsewhere = aborted or sources[1 - number]
        history = ledger.of(topic, number) if mode.compacted else ()
        copies.append(Copy(sources[number], targets[number], elsewhere, history))
    return RealCopy(mode, topic, remote, ledger, copies)


@pytest.fixture(params=MODES)
def real_copy(request: pytest.FixtureRequest, real_copies: dict[str, RealCopy]) -> RealCopy:
    return real_copies[request.param]


def test_the_copies_came_over_as_their_modes_say(
    real_copy: RealCopy, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    for number in range(PARTITIONS):
        source = stored_batches(source_cluster, real_copy.topic, number)
        target = stored_batches(target_cluster, real_copy.remote, number)
        there_before = {batch.raw[HEADER_BYTES:] for batch in source}
        copied = [batch for batch in target if not batch.control]
        passed = [batch for batch in copied if batch.raw[HEADER_BYTES:] in there_before]
        assert copied
        assert passed == copied if real_copy.mode.passes else len(passed) < len(copied)


def test_a_real_copy_is_exact(real_copy: RealCopy) -> None:
    for number, copy in enumerate(real_copy.partitions):
        assert len(copy.target) > 100
        if not real_copy.mode.compacted:  # a cleaner may have gone on at the source, and at the target
            assert [record.offset for record in copy.target] == list(range(len(copy.target)))
            assert [record.content for record in copy.source] == [record.content for record in copy.target]
        assert real_copy.judge(number, list(copy.target)) == set()


def _each_mutant(
    real_copy: RealCopy, invariant: str, judge: Callable[[Mutant, int, int, list[Dumped]], None]
) -> set[str]:
    """Let ``judge`` (mutant, partition, seed, target) judge all that apply; return their names."""
    applied = set()
    for mutant in FAMILIES[invariant]:
        for number, copy in enumerate(real_copy.partitions):
            for seed in SEEDS:
                target = mutant.apply(copy, Random(seed))
                if target is not None:
                    applied.add(mutant.name)
                    judge(mutant, number, seed, target)
    return applied


@pytest.mark.parametrize("invariant", FAMILIES)
def test_every_mutant_of_a_real_copy_is_caught(real_copy: RealCopy, invariant: str) -> None:
    """Also by its name, as a rule: of two equal records nobody can say whether they changed places or one is lost."""
    named = set()

    def judge(mutant: Mutant, number: int, seed: int, target: list[Dumped]) -> None:
        broken = real_copy.judge(number, target)
        assert broken, f"{mutant}, seed {seed}"
        if invariant in broken:
            named.add(mutant.name)

    assert len(_each_mutant(real_copy, invariant, judge)) >= 10
    assert len(named) >= 10, named


@pytest.mark.parametrize("invariant", ["I1", "I2", "I5"])
def test_rewinds_excuse_no_mutant_but_repeats(real_copy: RealCopy, invariant: str) -> None:
    """But that a record which a cleaner has superseded changed places, as ``tests/checker/compacted.py`` says: what the
    cleaner leaves differs from run to run, and rarely hides one."""
    missed = []

    def judge(mutant: Mutant, number: int, seed: int, target: list[Dumped]) -> None:
        if not real_copy.judge(number, target, max_rewinds=None):
            missed.append(f"{mutant}, seed {seed}")

    assert len(_each_mutant(real_copy, invariant, judge)) >= 10
    assert len(missed) <= (2 if real_copy.mode.compacted and invariant == "I2" else 0), missed


def test_a_repeat_is_caught_where_one_rewind_fewer_is_allowed(real_copies: dict[str, RealCopy]) -> None:
    """Where no two records are equal: then nobody could explain the repeats with fewer runs."""
    for copied in real_copies.values():
        if copied.mode.compacted:
            continue
        for number, copy in enumerate(copied.partitions):
            unique = [record for record in copy.source if copy.is_unique(record)]
            for mutant in AGAIN:
                of_unique = Copy(unique, unique)
                target = mutant.apply(of_unique, Random(number))
                assert target is not None
                rewinds = len(runs_of(mutant.name, of_unique, Random(number))) - 1
                assert judge_partition(unique, target, max_rewinds=rewinds).ok, str(mutant)
                assert judge_partition(unique, target, max_rewinds=rewinds - 1).breaches == {"I3": 1}, str(mutant)
