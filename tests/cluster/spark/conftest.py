"""The Spark session of all tests here: a process has one Spark context. It costs 4 s once.

A test that needs another master runs its driver in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

from mm2py.backfill.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}
"""Ports are free ones: Spark asks the kernel for them unless told otherwise."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session for the whole run, with two tasks at a time. As on a real master, a task that fails is tried once more.

    A test stops the queries that it starts.
    """
    pytest.importorskip("pyspark", reason="Run `make venv-spark`.")
    folder = str(tmp_path_factory.mktemp("spark"))
    places = {"spark.local.dir": folder, "spark.sql.warehouse.dir": folder}
    session = open_session("mm2py tests", master="local[2,2]", settings=SETTINGS | places)
    yield session
    session.stop()
