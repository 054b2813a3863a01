"""What a task of a backfill does before it copies: is the file here, is it the driver's, at which rate may it read."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from mm2py.backfill.copy_job import TaskOrder
from mm2py.cli.backfill_task import check, digest_of, settings_of
from mm2py.errors import ConfigError

FILE = """
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
bytes.per.second.max = 5000
security.protocol = PLAINTEXT
B.sasl.jaas.config = a secret
"""


def order(folder: Path) -> TaskOrder:
    file = folder / "mm2.properties"
    file.write_text(FILE)
    return TaskOrder(str(file), digest_of(file), "A->B", None, "0badcafe", 0, 0, {}, None)


def test_an_executor_without_the_file_or_with_another_one_copies_nothing(tmp_path: Path) -> None:
    """The file is named, and its content is not: what a task says may be shown by Spark's page."""
    here = order(tmp_path)
    check(here)
    Path(here.file).write_text(FILE + "tasks.max = 2\n")
    for look in (check, settings_of):
        with pytest.raises(ConfigError, match=f"{here.file} on .* is not the file of the driver") as refused:
            look(here)
        assert "a secret" not in str(refused.value)
    Path(here.file).unlink()
    with pytest.raises(ConfigError, match="Put the settings file at the same path on the driver and on every executor"):
        check(here)


def test_a_task_reads_at_its_own_part_of_the_rate(tmp_path: Path) -> None:
    assert settings_of(order(tmp_path)).bytes_per_second_max == 5000
    assert settings_of(replace(order(tmp_path), max_bytes_per_second=700)).bytes_per_second_max == 700


def test_an_order_tells_no_secret(tmp_path: Path) -> None:
    """S31: orders are what Spark sends to executors, and may keep."""
    assert b"a secret" not in pickle.dumps(order(tmp_path))
