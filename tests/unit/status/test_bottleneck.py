"""What limits a flow, by what its workers tell: the cause, the numbers, and what would help."""

from __future__ import annotations

import pytest

from mm2py.copying.link_tuning import Limit
from mm2py.flow import parse_flow
from mm2py.records.flow_waits import FlowWaits, Wait
from mm2py.records.link_use import LinkUse
from mm2py.status.bottleneck import BITES, BUSY, Bottleneck, LimitedWorker, bottleneck_of, cause_of

A_TO_B = parse_flow("A->B")
KEEPS_UP = FlowWaits()
SLOW_TARGET = FlowWaits(4, {Wait.TARGET: 93, Wait.SOURCE: 7}, bytes_per_s=3_100_000, target_ms=412)


@pytest.mark.parametrize(
    ("waits", "cause"),
    [
        (None, Bottleneck.UNKNOWN),
        (KEEPS_UP, Bottleneck.NOTHING_WAITS),
        (FlowWaits(0, cpu=99), Bottleneck.NOTHING_WAITS),
        (FlowWaits(1, {Wait.SOURCE: 60, Wait.TARGET: 40}), Bottleneck.SOURCE_READ),
        (FlowWaits(1, {Wait.SOURCE_LINK: 100}), Bottleneck.LINK),
        (FlowWaits(1, {Wait.TARGET_LINK: 100}), Bottleneck.LINK),
        (SLOW_TARGET, Bottleneck.TARGET_WRITE),
        (FlowWaits(1, {Wait.MEMORY: 51, Wait.TARGET: 49}), Bottleneck.MEMORY),
        (FlowWaits(1, {Wait.PLANNING: 70, Wait.SOURCE: 30}, cpu=50), Bottleneck.PLANNING),
        # A busy core answers late, so that all seems to wait for brokers.
        (FlowWaits(1, {Wait.SOURCE: 100}, cpu=BUSY), Bottleneck.PLANNING),
        (FlowWaits(1, {Wait.SOURCE: 100}, cpu=BUSY - 1), Bottleneck.SOURCE_READ),
        (FlowWaits(1, {Wait.TARGET: 100}, cpu=40, cpu_waited=50), Bottleneck.PLANNING),
        # What brokers and operators limit is what limits it, although it waits for other things most of the time.
        (FlowWaits(1, {Wait.RATE: BITES, Wait.SOURCE: 100 - BITES}, cpu=99), Bottleneck.RATE_LIMIT),
        (FlowWaits(1, {Wait.RATE: BITES - 1, Wait.SOURCE: 95}), Bottleneck.SOURCE_READ),
        (FlowWaits(1, {Wait.TARGET: 90, Wait.RATE: 10}, target_throttled=BITES, cpu=99), Bottleneck.QUOTA),
        (FlowWaits(1, {Wait.TARGET: 100}, target_throttled=BITES - 1), Bottleneck.TARGET_WRITE),
        (FlowWaits(1, source_throttled=100), Bottleneck.QUOTA),
        # Nothing of it is being copied, or a later version has another word.
        (FlowWaits(1), Bottleneck.UNKNOWN),
        (FlowWaits(1, {"the moon": 80, Wait.SOURCE: 20}), Bottleneck.UNKNOWN),
    ],
)
def test_what_limits_a_worker_follows_from_what_it_measures(waits: FlowWaits | None, cause: Bottleneck) -> None:
    assert cause_of(waits) is cause


def told(waits: FlowWaits, *, link: LinkUse | None = None, core: str = "with the compiled core") -> str:
    found = bottleneck_of(A_TO_B, [LimitedWorker("west-1", waits, link, core)])
    assert (found.worker, found.bytes_per_s) == ("west-1", waits.bytes_per_s)
    return f"{found.text}. {found.remedy}"


@pytest.mark.parametrize(
    ("waits", "text"),
    [
        (
            SLOW_TARGET,
            "west-1 waits for acknowledgements of B 93 % of the time, 412 ms for a write, 3.1 MB/s. Look at the brokers"
            " of B, their slowest replica above all, and at the network to them.",
        ),
        (
            FlowWaits(1, {Wait.SOURCE: 90}, source_ms=250, bytes_per_s=99_000),
            "west-1 waits for answers of A 90 % of the time, 250 ms for a read, 99.0 KB/s. Look at the disks and"
            " request threads of A's brokers, and at the network to them.",
        ),
        (
            FlowWaits(9, {Wait.SOURCE: 90}, cpu=98, bytes_per_s=31_000_000, rebuilds="repack"),
            "one core of west-1 is busy with repacking (98 %), 31.0 MB/s. Start it with --workers 2, or start another"
            " worker.",
        ),
        (
            FlowWaits(9, {Wait.SOURCE: 90}, cpu=99, rebuilds="compression"),
            "one core of west-1 is busy with rebuilding batches (compression) (99 %), 0.0 KB/s. Start it with --workers"
            " 2, or start another worker.",
        ),
        (
            FlowWaits(1, {Wait.SOURCE: 90}, cpu=99, rebuilds="repack"),
            "one core of west-1 is busy with repacking (99 %), 0.0 KB/s. One core copies a partition, and only one is"
            " behind: more partitions are copied by more cores. With copy.mode=pass it does less.",
        ),
        (
            FlowWaits(9, {Wait.SOURCE: 90}, cpu=20, cpu_waited=75),
            "the machine of west-1 has no free core: it runs 20 % of the time, and waits for a core 75 %, 0.0 KB/s."
            " Give west-1 more CPU, or start a worker on another machine.",
        ),
        (
            FlowWaits(9, {Wait.PLANNING: 80}, cpu=70),
            "west-1 is busy 80 % of the time, 0.0 KB/s. Start it with --workers 2, or start another worker.",
        ),
        (
            FlowWaits(1, {Wait.SOURCE: 90}, source_throttled=87),
            "a quota of A delays west-1 87 % of the time, 0.0 KB/s. Raise consumer_byte_rate, or request_percentage, of"
            " the consumer's user or client id on A.",
        ),
        (
            FlowWaits(1, {Wait.SOURCE: 90}, target_throttled=87),
            "a quota of B delays west-1 87 % of the time, 0.0 KB/s. Raise producer_byte_rate, or request_percentage, of"
            " the producer's user or client id on B.",
        ),
        (
            FlowWaits(1, {Wait.MEMORY: 88}, memory_bytes=4_000_000),
            "memory.max.bytes (4 MB) delays reads of west-1 88 % of the time, 0.0 KB/s. Raise memory.max.bytes.",
        ),
        (
            FlowWaits(1, {Wait.RATE: 88}),
            "bytes.per.second.max delays reads of west-1 88 % of the time, 0.0 KB/s. Raise bytes.per.second.max of A->B"
            ", or leave it out.",
        ),
        (
            FlowWaits(1, {Wait.TARGET_LINK: 95}, round_trip_ms=98),
            "west-1 waits for the link to B, whose brokers are 98 ms away, 95 % of the time, 0.0 KB/s. Run the workers"
            " beside B: docs/long-links.md.",
        ),
        (
            FlowWaits(1, {Wait.SOURCE_LINK: 95}, round_trip_ms=98),
            "west-1 waits for the link to A, whose brokers are 98 ms away, 95 % of the time, 0.0 KB/s. See"
            " docs/long-links.md for what fills a link. A link that is full needs more bandwidth.",
        ),
        (FlowWaits(1), "not known: what is behind on west-1 is not being copied now. "),
        (FlowWaits(1, {"the moon": 80}), "not known: west-1 tells of the moon, which this version does not know. "),
    ],
)
def test_the_sentence_has_the_numbers_and_what_would_help(waits: FlowWaits, text: str) -> None:
    assert told(waits) == text


def test_what_helps_depends_on_the_core_the_connections_and_the_most_tasks() -> None:
    busy = FlowWaits(9, cpu=99)
    assert told(busy, core="without the compiled core: MM2PY_NATIVE=0").endswith(
        "Install the compiled core (mm2py-native), or start it with --workers 2."
    )
    found = bottleneck_of(A_TO_B, [LimitedWorker("west-1", busy)], tasks_max=1)
    assert found.remedy == "Raise tasks.max, and start it with --workers 2 or another worker."
    link = LinkUse(64, 23_000_000, 99, str(Limit.CONNECTIONS))
    far = told(FlowWaits(2, {Wait.SOURCE_LINK: 95}, round_trip_ms=98), link=link)
    assert "98 ms away over 64 connections, 95 %" in far and far.endswith("Raise connections.per.broker.max.")


def test_of_several_workers_what_limits_most_of_what_is_behind_counts() -> None:
    memory = FlowWaits(3, {Wait.MEMORY: 90})
    slow = [LimitedWorker("west-1", SLOW_TARGET), LimitedWorker("west-2", memory), LimitedWorker("west-3", KEEPS_UP)]
    found = bottleneck_of(A_TO_B, slow)
    assert (found.cause, found.worker, found.percent) == (Bottleneck.TARGET_WRITE, "west-1", 93)
    found = bottleneck_of(A_TO_B, [*slow, LimitedWorker("west-4", memory), LimitedWorker("west-5", None)])
    assert (found.cause, found.worker) == (Bottleneck.MEMORY, "west-2")
    assert found.text.endswith("; likewise 1 other of its 5 workers")


def test_nothing_waits_only_if_every_worker_has_told_so() -> None:
    keeps_up = LimitedWorker("west-1", KEEPS_UP)
    found = bottleneck_of(A_TO_B, [keeps_up, keeps_up])
    assert (found.cause, found.text, found.remedy) == (Bottleneck.NOTHING_WAITS, "nothing waits", "")
    found = bottleneck_of(A_TO_B, [keeps_up, LimitedWorker("west-2", None)])
    assert found.cause is Bottleneck.UNKNOWN and found.text.startswith("not known: west-2 has not told")
    found = bottleneck_of(A_TO_B, [keeps_up], why_unknown="it is paused")
    assert (found.cause, found.text) == (Bottleneck.UNKNOWN, "not known: it is paused")
    assert found.worker == "" and found.percent is found.bytes_per_s is None
