"""The command line of ``mm2py verify``: with Spark and without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.python_path import python_path
from mm2py.cli.command import CommandFailed
from mm2py.cli.verify import parse_arguments, run
from mm2py.errors import ConfigError

ROOT = Path(__file__).parents[3]
GOOD = """\
clusters = A, B
A.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
A->B.enabled = true
"""
LOADED = """
import sys
import mm2py.cli.verify
print(sorted(name for name in sys.modules if name.split(".")[0] in {"pyspark", "pyarrow", "py4j"}))
"""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--master", "local[2]"], "--master"),
        (["--parquet", "results"], "--parquet"),
        (["--master", "local[*]", "--parquet", "results"], "--master and no --parquet"),
    ],
)
def test_what_only_spark_does_is_refused_by_name_without_it(arguments: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=f"^--local works without Spark, so it takes no {named}\\. "):
        parse_arguments(["f", "A->B", "--local", *arguments])
    assert not parse_arguments(["f", "A->B", *arguments]).local


def test_all_other_arguments_are_taken_with_local_as_well() -> None:
    text = "--topics a b --sample 5 --seed 7 --since 24h --max-mb-per-second 20 --certificate c --json"
    others = text.split(" ")
    with_local, without = (parse_arguments(["f", "A->B", *local, *others]) for local in (["--local"], []))
    assert with_local.local
    assert {**vars(with_local), "local": False} == vars(without)


def without_pyspark(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "pyspark.py").write_text('raise ImportError("there is no pyspark here")\n')
    path = os.pathsep.join([str(folder), python_path(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


def test_without_pyspark_the_way_out_is_to_install_it_or_to_do_without(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(GOOD)
    ended = without_pyspark(tmp_path, "-m", "mm2py", "verify", str(file), "A->B")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "mm2py: This needs PySpark, which is not installed. Install mm2py[spark]."
        " Or use --local, which needs no Spark, for what can be read in an hour."
    )


def test_a_cluster_that_does_not_answer_ends_it_and_is_named(tmp_path: Path) -> None:
    """It asked again and again, and said for hours that it reads positions."""
    file = tmp_path / "mm2.properties"
    file.write_text(GOOD)
    with pytest.raises(CommandFailed, match=r"127\.0\.0\.1:\d cannot be reached"):
        run([str(file), "A->B", "--local"])


def test_the_module_of_the_command_loads_nothing_of_spark(tmp_path: Path) -> None:
    assert without_pyspark(tmp_path, "-c", LOADED).stdout == "[]\n"
