"""Whether a new topic among 1,000 delays the others: ``python -m bench.new_topic``; see docs/benchmarks.md.

Three workers share 1,000 topics of one partition; a sample of them gets records all the time. Ten new topics are
created, one after the other. For each partition of the sample the longest time without a newer record on the target is
measured twice: in a window that starts with the creation, and in an equally long quiet window before it.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.arrivals import ANSWER_S, Arrivals, Place, longest_gap_s
from bench.campaign import add_arguments, carry_out
from bench.light_load import EVERY_S, light_load
from bench.pages import Facts, first_lines, table
from bench.runs import Run, RunLog
from bench.sides import Side
from deploy.local.kafka import KafkaCluster
from tests.cluster.groups import Group
from tests.cluster.running import Value, one_way_properties

TOPICS: Final = 1_000
SAMPLE: Final = 100
NEW: Final = 10
WORKERS: Final = 3
WINDOW_S: Final = 10.0
WATCH_INTERVAL_MS: Final = 2_000
"""``topics.watch.interval.ms``, its default: how soon a new topic is seen."""
SHARED_S: Final = 300.0
AT_ONCE: Final = 100
LOOK_EVERY_S: Final = 0.02
STEM: Final = "topic-"
ROWS: Final[Mapping[str, str]] = {
    "quiet_s": "longest gap of any partition, quiet window before",
    "around_s": "longest gap of any partition, from the creation on",
    "more_s": "difference of the two",
    "quiet_median_s": "median of each partition's longest gap, quiet window before",
    "around_median_s": "the same, from the creation on",
    "quiet_writer_s": "longest pause of the writer itself, quiet window before",
    "around_writer_s": "the same, from the creation on",
    "created_s": "until the source cluster has made the new topic",
    "first_record_s": "from creation to the first record on the target",
}


def gap_measures(
    times_s: Mapping[Place, Sequence[float]], writer_s: Sequence[float], created_s: float, window_s: float
) -> dict[str, float]:
    """Return how a creation affected the others. Pure.

    Args:
        times_s: for each partition, when newer records arrived.
        writer_s: when the writer wrote to all of them.
    """
    windows = {"quiet": (created_s - window_s, created_s), "around": (created_s, created_s + window_s)}
    measures = {}
    for name, window in windows.items():
        gaps_s = [longest_gap_s(times, *window) for times in times_s.values()]
        measures[f"{name}_s"] = max(gaps_s)
        measures[f"{name}_median_s"] = statistics.median(gaps_s)
        measures[f"{name}_writer_s"] = longest_gap_s(writer_s, *window)
    measures["more_s"] = measures["around_s"] - measures["quiet_s"]
    return measures


def report(runs: Sequence[Run], topics: int, sample: int, window_s: float, facts: Facts) -> str:
    """Return the page of results. Pure."""
    good = [run.measures for run in runs if run.measures]
    lines = first_lines(f"A new topic among {topics:,}", facts)
    lines += [
        f"{len(good)} topics, created one after the other beside {topics:,} topics of one partition that {WORKERS}"
        f" workers share. {sample} of these get {1 / EVERY_S:g} records a second each; a gap is the time between two"
        f" newer records of one partition at a consumer of the target. Windows of {window_s:g} s;"
        f" `topics.watch.interval.ms` is {WATCH_INTERVAL_MS}, its default.",
        "",
    ]
    rows = []
    for name, title in ROWS.items():
        if found := [measures[name] for measures in good if name in measures]:
            rows.append([title, f"{statistics.median(found):.3f} s", f"{max(found):.3f} s"])
    lines += table(["", "median of the creations", "longest"], rows)
    lines += ["", *(f"Creation {run.round + 1} failed: {run.failed}" for run in runs if run.failed)]
    return "\n".join(lines).rstrip() + "\n"


def create(cluster: KafkaCluster, topics: Sequence[str]) -> None:
    """Create topics of one partition, many at once."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for at in range(0, len(topics), AT_ONCE):
        made = admin.create_topics([NewTopic(topic, 1, 1) for topic in topics[at : at + AT_ONCE]])
        for each in made.values():
            each.result(ANSWER_S)


async def create_and_wait(
    source: KafkaCluster, target: KafkaCluster, topic: str, deadline_s: float
) -> tuple[float, float, float]:
    """Create a topic with one record, and wait until the record is on the target.

    Returns:
        When (``time.monotonic``) the topic was requested, when it existed, when its record was on the target.
    Raises:
        TimeoutError: it took longer than ``deadline_s``.
    """
    side = Side(target)
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 0, "log_level": 0})
    try:
        await side.ends(f"A.{topic}", [0])  # connects
        asked_s = time.monotonic()
        await asyncio.to_thread(create, source, [topic])
        created_s = time.monotonic()
        producer.produce(topic, b"first", partition=0)
        async with asyncio.timeout(deadline_s):
            while not (await side.ends(f"A.{topic}", [0]))[0]:
                producer.poll(0)
                await asyncio.sleep(LOOK_EVERY_S)
        return asked_s, created_s, time.monotonic()
    finally:
        await side.brokers.close()


def create_one(
    create_it: Callable[[], Coroutine[None, None, tuple[float, float, float]]],
    arrivals: Arrivals,
    rounds_s: Sequence[float],
    window_s: float,
) -> dict[str, float]:
    """Let a quiet window pass, create a topic, let another window pass, and return the measures of both.

    Args:
        create_it: see ``create_and_wait``.
    Raises:
        TimeoutError: the new topic's record was not copied within the window.
    """
    time.sleep(window_s)
    asked_s, created_s, first_s = asyncio.run(create_it())
    time.sleep(max(0.0, asked_s + window_s - time.monotonic()))
    measures = gap_measures(arrivals.times_s(), list(rounds_s), asked_s, window_s)
    return {**measures, "created_s": created_s - asked_s, "first_record_s": first_s - created_s}


def sampled(topics: int, sample: int) -> list[str]:
    """Return the topics that get records, spread evenly over all. Pure."""
    return [f"{STEM}{at * topics // sample:04}" for at in range(sample)]


def run_all(source: KafkaCluster, target: KafkaCluster, options: argparse.Namespace, log: RunLog) -> None:
    """Create topics until the log has all results; each is stored as soon as it is known."""
    create(source, [f"{STEM}{number:04}" for number in range(options.topics)])
    properties: dict[str, Value] = one_way_properties(source, target)
    properties |= {"A->B.topics": f"{STEM}.*", "topics.watch.interval.ms": WATCH_INTERVAL_MS}
    sample = sampled(options.topics, options.sample)
    with Group(target, properties, workers=WORKERS) as group:
        group.wait_until_assigned(options.topics, among=WORKERS, deadline_s=SHARED_S)
        arrivals = Arrivals(target, [(f"A.{topic}", 0) for topic in sample])
        try:
            with light_load(source, [(topic, 0) for topic in sample]) as rounds_s:
                arrivals.wait_for_all()
                for number in _left(options.new, options.topics, log):
                    creation = partial(create_and_wait, source, target, f"{STEM}new-{number}", options.window)
                    try:
                        measures = create_one(creation, arrivals, rounds_s, options.window)
                        run = Run("new topic", "mm2py", number, options.topics, measures)
                    except TimeoutError:
                        failed = f"its record was not copied within {options.window:g} s"
                        run = Run("new topic", "mm2py", number, options.topics, failed=failed)
                    log.add(run)
                    said = ", ".join(f"{name} {value:.3f}" for name, value in sorted(run.measures.items()))
                    print(f"creation {number + 1}: {said or run.failed}", flush=True)
        finally:
            arrivals.close()
        group.assert_steady()


def _left(count: int, topics: int, log: RunLog) -> Iterator[int]:
    return (number for number in range(count) if not log.has(("new topic", "mm2py", number), topics))


def main(arguments: Sequence[str] | None = None) -> int:
    """Create topics and print how this affected the others. The exit code is 1 if one was not copied in time."""
    parser = argparse.ArgumentParser(prog="python -m bench.new_topic", description="A new topic among many.")
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many of them get records")
    parser.add_argument("--new", type=int, default=NEW, help="how many are created")
    parser.add_argument("--window", type=float, default=WINDOW_S, metavar="S")
    add_arguments(parser, "new-topic")
    options = parser.parse_args(arguments)
    return carry_out(
        "new-topic",
        options,
        lambda source, target, log: run_all(source, target, options, log),
        lambda runs, facts: report(runs, options.topics, options.sample, options.window, facts),
        shape={name: str(getattr(options, name)) for name in ("topics", "sample", "window")},
    )


if __name__ == "__main__":
    sys.exit(main())
