"""What a job of Spark tells an operator when it fails."""

from __future__ import annotations

from mm2py.backfill.copy_job import TaskOrder
from mm2py.backfill.job_failure import told

SPARK_SAYS = """An error occurred while calling o52.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    raise error
mm2py.errors.ConfigError: /etc/mm2.properties cannot be read on host7. Put it there.

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:500)
"""


def test_the_error_of_the_worker_is_told_and_not_what_spark_says_around_it() -> None:
    assert told(SPARK_SAYS) == "/etc/mm2.properties cannot be read on host7. Put it there."


def test_without_a_traceback_the_first_line_istold() -> None:
    assert told("Job 3 cancelled\n\tat scala") == "Job 3 cancelled"
    assert told("") == "it gives no reason"


def test_attempts_of_a_later_run_are_higher() -> None:
    first, second = (TaskOrder("f", "", "A->B", None, "0badcafe", 0, run, {}, None) for run in (0, 1))
    assert first.attempt(0) < first.attempt(9) < second.attempt(0)
