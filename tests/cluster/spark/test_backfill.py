"""``mm2py backfill`` beside a live worker, on real brokers with Spark: each record once, in order, across the seam."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deploy.local.kafka import KafkaCluster
from deploy.local.spark import SparkCluster
from mm2py.backfill.copy_job import ATTEMPTS_A_RUN
from mm2py.cli import verify
from tests.checker.committed import judge_transactions
from tests.checker.ledger import Ledger
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.cleaned_topics import NEVER_CLEANED, cleaned_topic
from tests.cluster.copies import add_partitions, assert_copied, make_topic, new_topic, now_ms
from tests.cluster.judged_offsets import Flow
from tests.cluster.kafka_client import new_name, values, write
from tests.cluster.loads import PARTITIONS, Loads
from tests.cluster.running import Mm2py, wait_until
from tests.cluster.spark.backfills import (
    EXECUTORS,
    FLOW,
    JOB_S,
    assert_results,
    backfill,
    finished,
    held,
    python_tasks,
    worker,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATE_PART = 0.7
"""The first reads of a task wait for nothing."""
GROUPS_FOLLOW = {
    "emit.checkpoints.enabled": True,
    "emit.checkpoints.interval.seconds": 1,
    "sync.group.offsets.enabled": True,
    "sync.group.offsets.interval.seconds": 1,
}


def test_history_is_backfilled_while_records_come_and_the_live_flow_goes_on_at_the_seam(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """The live flow waits with the topics, says so, and goes on at the exact next record; the ledgers are exact.

    So are the checkpoints and the commits of two groups, one that stands in the history and one behind the seam.
    """
    loads = Loads(source_cluster, new_name("history"), per_second=500)  # for as long as Spark takes
    groups = [new_name("before"), new_name("behind")]
    run = worker(source_cluster, target_cluster, loads.topics, **GROUPS_FOLLOW, groups=",".join(groups))
    with loads:
        loads.wait_for(3_000)
        loads.commit(groups[0], 0.5)
        with backfill(run.file, "--topics", *loads.topics, "--master", "local[2]") as process:
            held(process)
            run.start()
            run.wait_until(lambda: len(run.events("topic.held")) == 2, "the worker waits with both topics")
            output = finished(process)
        assert {row["attempt"] for row in assert_results(output, loads.topics)} == {0}
        run.wait_for_event("topics.copying")
        loads.wait_for_copies(target_cluster, run, 2_000)
    loads.commit(groups[1], 0.99)
    judge(loads, target_cluster, run, groups)


def judge(loads: Loads, target: KafkaCluster, run: Mm2py, groups: Collection[str] = ()) -> None:
    loads.assert_copied(target, run, max_rewinds=0)
    loads.assert_ledgers(target, run, groups=groups)
    assert run.terminate() == 0
    run.kill()


@pytest.mark.slow
def test_a_stopped_backfill_leaves_the_rest_to_the_workers_and_a_begun_topic_is_refused(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """Ctrl-C releases the topics; the workers fence what was copying, and repeat nothing. B88: a begun topic."""
    loads = Loads(source_cluster, new_name("stopped"))
    run = worker(source_cluster, target_cluster, loads.topics)
    with loads:
        loads.wait_for(6_000)
        with backfill(
            run.file, "--master", "local[2]", "--max-mb-per-second", "1", "--topics", *loads.topics
        ) as process:
            held(process)
            run.start()
            loads.wait_for_copies(target_cluster, run, 500)
            process.send_signal(signal.SIGINT)
            assert "is stopped" in finished(process, 130)
        run.wait_for_event("topics.copying")
        loads.wait_for_copies(target_cluster, run, 2_000)
        with backfill(run.file, "--topics", loads.topics[0]) as process:
            assert "so it copies it already" in finished(process, 1)
    judge(loads, target_cluster, run)


@pytest.mark.slow
def test_compaction_transactions_and_new_partitions_at_the_seam_cost_nothing(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """One backfill of three topics under load. A topic gets more partitions while it is copied."""
    sends = Ledger()
    cleaned = cleaned_topic(source_cluster, sends)
    transactions, grown = (new_topic(source_cluster, name, 2) for name in ("transactions", "grown"))
    make_topic(target_cluster, f"A.{cleaned}", 1, {"cleanup.policy": "compact", **NEVER_CLEANED})
    topics = [cleaned, transactions, grown]
    run = worker(
        source_cluster,
        target_cluster,
        topics,
        **{"A.consumer.isolation.level": "read_committed", "sync.topic.configs.enabled": False},
    )

    def load(topic: str, partitions: int, per_second: int, *, producer: int = 0) -> Load:
        is_cleaned, is_transactional = topic == cleaned, topic == transactions
        return Load(
            source_cluster.internal_bootstrap,
            topic,
            Traffic(
                seed=partitions,
                partitions=partitions,
                producer=producer,
                first_timestamp_ms=now_ms(),
                compacted=is_cleaned,
                keys=60,
                twins=not is_cleaned,
            ),
            sends,
            codecs=["none", "lz4"],
            per_second=per_second,
            transactional_id=topic if is_transactional else None,
        )

    loads = [load(cleaned, 1, 100, producer=1), load(transactions, 2, 300), load(grown, 2, 1_000)]

    def wait_for_more() -> None:
        goals = [one.acknowledged + 300 for one in loads]
        wait_until(
            lambda: all(one.acknowledged >= goal for one, goal in zip(loads, goals, strict=True)), "more is sent"
        )

    with ExitStack() as running:
        for one in loads:
            running.enter_context(one.in_background())
        wait_for_more()
        with backfill(run.file, "--master", "local[2]", "--max-mb-per-second", "1", "--topics", *topics) as process:
            held(process)
            run.start()
            add_partitions(source_cluster, grown, 4)
            loads.append(load(grown, 4, 500, producer=1))
            running.enter_context(loads[-1].in_background())
            run.wait_until(lambda: len(run.events("topic.held")) == len(topics), "the worker waits with all topics")
            assert process.poll() is None, "the partitions came too late"
            finished(process)
        run.wait_for_event("topics.copying")
        wait_for_more()
    for topic in topics:
        print(
            assert_copied(
                source_cluster, target_cluster, topic, f"A.{topic}", run=run, read_committed=True, ledger=sends
            )
        )
    flow = Flow(source_cluster, target_cluster, "A", "B", topics, sends, cleaned=[cleaned])
    flow.assert_exact(run)
    assert judge_transactions(target_cluster.internal_bootstrap, flow.remotes) == []
    assert run.terminate() == 0
    run.kill()


def once_dead(file: Path, *arguments: str) -> str:
    """Run the command until the driver of the backfill counts as dead; return what it prints then."""

    def done() -> str:
        with backfill(file, *arguments) as process:
            output, _ = process.communicate(timeout=JOB_S)
        assert process.returncode == 0 or "wrote" in output, output
        return output if process.returncode == 0 else ""

    return wait_until(done, f"{arguments[0]} is let through", deadline_s=JOB_S)


@pytest.mark.slow
def test_a_dead_driver_is_resumed(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    """F82: kill -9 of the driver and its Spark; the topics stay held, and --resume goes on where it stood."""
    loads = Loads(source_cluster, new_name("dead"))
    run = worker(source_cluster, target_cluster, loads.topics)
    with loads:
        loads.wait_for(6_000)
        with backfill(
            run.file, "--master", "local[2]", "--max-mb-per-second", "1", "--topics", *loads.topics
        ) as process:
            backfill_id = held(process)
            run.start()
            loads.wait_for_copies(target_cluster, run, 500)
            os.killpg(process.pid, signal.SIGKILL)
        with backfill(run.file, "--abandon", backfill_id) as process:
            assert "wrote" in finished(process, 1)  # it may be alive

        output = once_dead(run.file, "--resume", backfill_id, "--master", "local[2]")
        attempts = {row["attempt"] for row in assert_results(output, loads.topics)}
        assert None in attempts and attempts - {None} == {ATTEMPTS_A_RUN}, "the dead driver's results are lost"
        loads.wait_for_copies(target_cluster, run, 2_000)
    judge(loads, target_cluster, run)


@pytest.mark.slow
def test_a_backfill_whose_driver_has_died_is_abandoned_and_the_workers_copy_the_rest(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """The hold shows that its driver is dead; --abandon releases it, and the workers go on where the tasks stood."""
    loads = Loads(source_cluster, new_name("abandoned"), per_second=500)
    run = worker(source_cluster, target_cluster, loads.topics)
    with loads:
        loads.wait_for(3_000)
        arguments = ("--master", "local[2]", "--max-mb-per-second", "1", "--topics", *loads.topics)
        with backfill(run.file, *arguments) as process:
            backfill_id = held(process)
            run.start()
            loads.wait_for_copies(target_cluster, run, 500)
            os.killpg(process.pid, signal.SIGKILL)

        output = once_dead(run.file, "--abandon", backfill_id)
        assert output == f"Backfill {backfill_id} is abandoned: the workers of A->B copy the rest.\n"
        run.wait_for_event("topics.copying")
        loads.wait_for_copies(target_cluster, run, 2_000)
        with backfill(run.file, "--abandon", backfill_id) as process:
            assert "is over already" in finished(process)
    judge(loads, target_cluster, run)


@pytest.mark.slow
def test_a_task_that_is_killed_is_tried_again_on_a_local_master(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """F82 on ``local[2,4]``: the Python process of a task dies, and its next attempt goes on where it stood."""
    loads = Loads(source_cluster, new_name("task"))
    run = worker(source_cluster, target_cluster, loads.topics)
    with loads:
        loads.wait_for(6_000)
        arguments = ("--master", "local[2,4]", "--max-mb-per-second", "1", "--topics", *loads.topics)
        with backfill(run.file, *arguments) as process:
            held(process)
            run.start()
            loads.wait_for_copies(target_cluster, run, 500)
            os.kill(python_tasks(process.pid)[0], signal.SIGKILL)
            output = finished(process)
        assert {1, None} <= {row["attempt"] for row in assert_results(output, loads.topics)}
        run.wait_for_event("topics.copying")
        loads.wait_for_copies(target_cluster, run, 2_000)
    judge(loads, target_cluster, run)


@pytest.mark.slow
def test_a_backfill_and_its_verification_keep_to_their_rate(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    """Two tasks, or both sides, divide one megabyte a second. Without it all of this takes a second or two."""
    topic = new_topic(source_cluster, "rate", PARTITIONS)
    for number in range(PARTITIONS):
        write(source_cluster, topic, [random.Random(at).randbytes(1_000) for at in range(2_000)], partition=number)
    run = worker(source_cluster, target_cluster, [topic])
    with backfill(run.file, "--master", "local[2]", "--max-mb-per-second", "1", "--topics", topic) as process:
        held(process)
        begun_s = time.monotonic()
        rows = assert_results(finished(process), [topic])
        assert time.monotonic() - begun_s > RATE_PART * sum(row["bytes"] for row in rows) / 1e6
    begun_s = time.monotonic()
    assert verify.run([str(run.file), FLOW, "--topics", topic, "--max-mb-per-second", "1", "--json"]) == 0
    assert time.monotonic() - begun_s > RATE_PART * 2 * sum(row["bytes"] for row in rows) / 1e6
    assert json.loads(capsys.readouterr().out)["exit_code"] == 0
    run.kill()


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "500ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "1s",
}


@pytest.mark.slow
def test_a_second_attempt_beside_one_that_hangs_takes_its_partitions_over(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """F82: Spark starts a second attempt of a task whose process stands still. When that runs on it is fenced."""
    loads = Loads(source_cluster, new_name("speculated"), per_second=500)
    run = worker(source_cluster, target_cluster, loads.topics)
    stopped: list[int] = []
    with SparkCluster(environment=EXECUTORS, apart=True) as spark, loads:
        loads.wait_for(3_000)
        arguments = ("--master", spark.master, "--max-mb-per-second", "1", "--topics", *loads.topics)
        with backfill(run.file, *arguments, settings=spark.client_settings | SPECULATION) as process:
            held(process)
            run.start()
            loads.wait_for_copies(target_cluster, run, 500)
            stopped = python_tasks(spark.workers[0].executors()[0])[:1]
            try:
                os.kill(stopped[0], signal.SIGSTOP)
                output = finished(process)
            finally:
                with suppress(ProcessLookupError):  # Spark may have ended it
                    os.kill(stopped[0], signal.SIGCONT)
        assert 1 in {row["attempt"] for row in assert_results(output, loads.topics)}, "there was no second attempt"
        run.wait_for_event("topics.copying")
        loads.wait_for_copies(target_cluster, run, 2_000)
    judge(loads, target_cluster, run)


@pytest.mark.slow
def test_an_executor_that_is_killed_and_a_second_attempt_beside_a_slow_one_repeat_nothing(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """F82, on a standalone cluster with speculation on."""
    loads = Loads(source_cluster, new_name("executor"))
    run = worker(source_cluster, target_cluster, loads.topics)
    with SparkCluster(environment=EXECUTORS) as spark, loads:
        loads.wait_for(6_000)
        arguments = ("--master", spark.master, "--max-mb-per-second", "1", "--topics", *loads.topics)
        with backfill(run.file, *arguments, settings=spark.client_settings | SPECULATION) as process:
            held(process)
            run.start()
            loads.wait_for_copies(target_cluster, run, 500)
            os.kill(spark.workers[0].executors()[0], signal.SIGKILL)
            output = finished(process)
        assert None in {row["attempt"] for row in assert_results(output, loads.topics)}
        run.wait_for_event("topics.copying")
        loads.wait_for_copies(target_cluster, run, 2_000)
    judge(loads, target_cluster, run)


def test_a_topic_that_only_the_file_selects_is_held_first_and_then_selected_alone(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Without a terminal nothing is stored before --yes. A worker that runs begins no record of it before the seam."""
    live, late = new_topic(source_cluster, new_name("live"), 1), new_topic(source_cluster, new_name("late"), 2)
    history = [b"%d" % number for number in range(500)]
    for number in range(2):
        write(source_cluster, late, history, partition=number)
    write(source_cluster, live, [b"1"])
    run = worker(source_cluster, target_cluster, [live])
    file = tmp_path / "mm2.properties"
    topics = f"A->B.topics={live}"
    with run:
        run.wait_for_event("topics.copying")
        assert topics in run.file.read_text().replace(" ", "")
        file.write_text(f"{run.file.read_text()}\nA->B.topics={live},{late}\nA->B.offset.lag.max=77\n")
        with backfill(file, "--topics", late, "--master", "local[2]") as process:
            output = finished(process, 2)
        assert f"  topics: '{live}' -> '{live},{late}'" in output
        assert "not stored, though the file says it:\n    offset.lag.max: (default) -> '77'" in output
        assert "Nothing was stored: " in output
        assert not run.events("config.changed")
        with backfill(file, "--topics", late, "--master", "local[2]", "--yes") as process:
            output = finished(process)
        assert_results(output, [late])
        run.wait_for_event("topic.held", topic=late)
        write(source_cluster, late, [b"behind"])
        run.wait_until(lambda: values(target_cluster, f"A.{late}")[-1:] == [b"behind"], "the worker goes on")
        assert values(target_cluster, f"A.{late}") == [*history, b"behind"]
        assert values(target_cluster, f"A.{late}", [1]) == history
        (found,) = run.events("config.changed")
        assert "offset.lag.max" not in str(found)
        assert run.terminate() == 0
