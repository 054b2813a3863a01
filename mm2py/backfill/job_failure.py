"""A job that Spark gave up, and the one line of Spark's long message that says why."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from mm2py.errors import Mm2Error

T = TypeVar("T")


class JobFailed(Mm2Error):
    """Spark gave a job up: a task failed too often, or the job was cancelled."""


def answer_of(action: Callable[[], T]) -> T:
    """Return what an action of Spark returns.

    Raises:
        JobFailed: Spark has given up.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415  (comes with the extra)
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        return action()
    except (PySparkException, Py4JError) as error:
        raise JobFailed(
            f"Spark gave the job up: {told(str(error)).rstrip('.')}.",
            remedy="Its log has more. The settings file must be readable at its path on every executor.",
        ) from error


def told(text: str) -> str:
    """Return the last line of a Python worker's traceback from a message of Spark; without one, the first line."""
    _, found, traceback = text.rpartition("Traceback (most recent call last):\n")
    lines = []
    for line in (traceback if found else text).splitlines():
        if line.lstrip().startswith("at ") or (found and not line.strip()):
            break  # the frames of the JVM follow
        if line.strip() and not (found and line.startswith(" ")):
            lines.append(line.strip())
    told_last = (lines or ["it gives no reason"])[-1 if found else 0]
    return re.sub(r"^(\w+\.)+\w+: ", "", told_last)[:1000]
