"""Functions of users run in a process of their own, and what goes wrong there stops one record."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2py.records.batch import Record
from mm2py.transforms.chain import TransformFailed, UserFunction
from mm2py.transforms.processes import FunctionProcesses

MODULE = """\
import os
import time

seen = []

def change(record):
    value = record.value
    if value == b"drop":
        return None
    if value == b"raise":
        raise ValueError("secret-content")
    if value == b"exit":
        os._exit(3)
    if value == b"hang":
        time.sleep(600)
    if value == b"memory":
        return record._replace(value=bytes(1 << 40))
    if value == b"text":
        return "no record"
    if value == b"offset":
        return record._replace(offset=record.offset + 1)
    if value == b"str":
        return record._replace(value="text")
    if value == b"print":
        print("printed")
    if value == b"env":
        return record._replace(value=repr(sorted(os.environ)).encode())
    return record._replace(value=b"x" + (value or b""), headers=[*record.headers, ("t", record.topic.encode())])
"""


@pytest.fixture
def processes() -> Iterator[FunctionProcesses]:
    made = FunctionProcesses()
    yield made
    made.close()


def function_in(folder: Path, *, name: str = "change", source: str = MODULE, timeout_s: float = 30.0) -> UserFunction:
    path = folder / "module.py"
    path.write_text(source)
    return UserFunction(str(path), name, hashlib.sha256(source.encode()).hexdigest(), timeout_s, 1 << 29)


def records(*values: bytes | None) -> list[Record]:
    return [Record(10 + at, 1000, b"k", value, [("h", None)]) for at, value in enumerate(values)]


def test_a_function_changes_and_drops_records(tmp_path: Path, processes: FunctionProcesses) -> None:
    given = records(b"a", b"drop", None, b"print")
    for _ in range(2):
        found = processes.call(function_in(tmp_path), "A.t", 3, given)
        assert found == [
            given[0]._replace(value=b"xa", headers=(("h", None), ("t", b"A.t"))),
            None,
            given[2]._replace(value=b"x", headers=(("h", None), ("t", b"A.t"))),
            given[3]._replace(value=b"xprint", headers=(("h", None), ("t", b"A.t"))),
        ]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"raise", "It raised ValueError at line 11 of "),
        (b"exit", "its process ended"),
        (b"hang", "It did not answer within 2 s"),
        (b"memory", "It raised MemoryError at line"),
        (b"text", "It returned a str and no record"),
        (b"offset", "another topic, partition or offset"),
        (b"str", "a value of str; it must be bytes or None"),
    ],
)
def test_what_goes_wrong_names_the_record_and_nothing_of_its_content(
    tmp_path: Path, processes: FunctionProcesses, value: bytes, why: str
) -> None:
    function = function_in(tmp_path, timeout_s=2.0)
    with pytest.raises(TransformFailed) as caught:
        processes.call(function, "A.t", 0, records(b"a", b"b", value, b"d"))
    assert caught.value.offset == 12
    assert why in str(caught.value) and "secret-content" not in str(caught.value)
    assert len(processes.call(function, "A.t", 0, records(b"a"))) == 1, "it goes on with another process"


@pytest.mark.parametrize(
    ("source", "name", "why"),
    [
        ("def change(record): return record\n", "other", "has no function other"),
        ("import nothing_of_that_name\n", "change", "cannot be loaded: it raised ModuleNotFoundError"),
        ("change = (\n", "change", "cannot be loaded: it raised SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_used_stops_the_first_record(
    tmp_path: Path, processes: FunctionProcesses, source: str, name: str, why: str
) -> None:
    with pytest.raises(TransformFailed) as caught:
        processes.call(function_in(tmp_path, source=source, name=name), "A.t", 0, records(b"a"))
    assert (caught.value.offset, why in str(caught.value)) == (10, True)


def test_a_module_that_changed_since_the_start_is_not_run(tmp_path: Path, processes: FunctionProcesses) -> None:
    function = function_in(tmp_path)
    Path(function.module).write_text(MODULE + "\n")
    with pytest.raises(TransformFailed, match="has changed since the worker started"):
        processes.call(function, "A.t", 0, records(b"a"))


def test_a_function_sees_no_password_of_the_workers_environment(
    tmp_path: Path, processes: FunctionProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "KAFKA_PASSWORD", "x")
    (found,) = processes.call(function_in(tmp_path), "A.t", 0, records(b"env"))
    assert found is not None and found.value is not None
    assert b"PATH" in found.value and b"KAFKA_PASSWORD" not in found.value
