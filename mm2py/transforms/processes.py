"""Calls the functions of users in processes of their own, with limits of time and memory.

A function that hangs or takes all memory then costs its own process, and no heartbeat of the worker. Batches are
planned in a thread beside the event loop, which waits for the process there.

The story: a function hangs at one record of a batch. The process is killed when the time of the batch is over, and the
records are called one by one in another process: the record at which it hangs again stops its partition, and those
before it are copied. A process that cannot be started, or that dies by itself, is handled likewise.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

from mm2py.records.batch import Record
from mm2py.transforms.chain import TransformFailed, UserFunction
from mm2py.transforms.child import bytes_of, decoded, encoded, pairs_of, text_of, texts_of

_CHILD: Final = Path(__file__).with_name("child.py")
START_S: Final = 30.0
"""How long a process may take to start and to load the module."""
_SPACE: Final = {"PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "HOME", "VIRTUAL_ENV"}
"""What the process sees of the worker's environment, which may hold passwords."""


class _Ended(Exception):
    """The process did not answer in time, or is gone."""


class _Refused(Exception):
    """The module or the function cannot be used."""


class FunctionProcesses:
    """One process for each function, started when it is first called."""

    def __init__(self) -> None:
        self._running: dict[UserFunction, _FunctionProcess] = {}
        self._one_at_a_time = threading.Lock()

    def call(
        self, function: UserFunction, topic: str, partition: int, records: Sequence[Record]
    ) -> Sequence[Record | None]:
        """See ``RunsFunctions``."""
        if not records:
            return []
        with self._one_at_a_time:
            try:
                results, why = self._ask(function, topic, partition, records)
            except _Ended:
                results, why = self._one_by_one(function, topic, partition, records)
        if why:
            offset = records[len(results)].offset
            raise TransformFailed(f"The function {function.function} failed. {why}", offset=offset)
        return results

    def close(self) -> None:
        """End all processes."""
        with self._one_at_a_time:
            while self._running:
                self._running.popitem()[1].kill()

    def _one_by_one(
        self, function: UserFunction, topic: str, partition: int, records: Sequence[Record]
    ) -> tuple[list[Record | None], str]:
        results: list[Record | None] = []
        for record in records:
            try:
                found, why = self._ask(function, topic, partition, [record])
            except _Ended as error:
                return results, str(error)
            results += found
            if why:
                return results, why
        return results, ""

    def _ask(
        self, function: UserFunction, topic: str, partition: int, records: Sequence[Record]
    ) -> tuple[list[Record | None], str]:
        process = self._running.get(function)
        try:
            if process is None:
                process = self._running[function] = _FunctionProcess(function)
                if why := process.receive(START_S):
                    raise _Refused(f"{why}.")
            given = [
                (one.offset, one.timestamp_ms, text_of(one.key), text_of(one.value), texts_of(one.headers))
                for one in records
            ]
            return process.results(process.ask((topic, partition, given), function.timeout_s), records)
        except _Refused as refusal:
            self._forget(function)
            return [], str(refusal)
        except BaseException:
            self._forget(function)
            raise

    def _forget(self, function: UserFunction) -> None:
        process = self._running.pop(function, None)
        if process is not None:
            process.kill()


def _changed(record: Record, timestamp_ms: int, key: str | None, value: str | None, headers: Any) -> Record:
    """Raises: ValueError, TypeError."""
    if type(timestamp_ms) is not int:
        raise TypeError("no number")
    pairs = pairs_of(headers)
    for name, _ in pairs:
        name.encode("utf-8", "surrogateescape")
    return record._replace(timestamp_ms=timestamp_ms, key=bytes_of(key), value=bytes_of(value), headers=pairs)


class _FunctionProcess:
    """A running ``child.py``."""

    def __init__(self, function: UserFunction) -> None:
        environment = {name: value for name, value in os.environ.items() if name in _SPACE}
        environment |= {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
        self._timed_out = (
            f"It did not answer within {function.timeout_s:g} s, or its process ended: it may use"
            f" {function.memory_max_bytes} bytes of memory."
        )
        self._child = subprocess.Popen(  # noqa: S603  (the operator's own file names the module)
            [
                sys.executable,
                "-s",
                "-P",
                str(_CHILD),
                function.module,
                function.function,
                function.source_sha256,
                str(function.memory_max_bytes),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            bufsize=0,
        )
        os.set_blocking(self._pipe(self._child.stdin).fileno(), False)
        os.set_blocking(self._pipe(self._child.stdout).fileno(), False)

    def ask(self, message: Any, timeout_s: float) -> Any:
        """Send a message, and return the answer. Raises: _Ended."""
        until_s = time.monotonic() + timeout_s
        left = memoryview(encoded(message))
        writer = self._pipe(self._child.stdin).fileno()
        while left:
            self._wait(until_s, writes=[writer])
            try:
                left = left[os.write(writer, left) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise _Ended(self._timed_out) from error
        return self._receive(until_s)

    def receive(self, timeout_s: float) -> Any:
        """Return the next message. Raises: _Ended."""
        return self._receive(time.monotonic() + timeout_s)

    def results(self, answer: Any, records: Sequence[Record]) -> tuple[list[Record | None], str]:
        """Return what an answer says of records. Raises: _Ended, it is none."""
        try:
            found, why = answer
            made = [
                None if one is None else _changed(record, *one) for record, one in zip(records, found, strict=False)
            ]
        except (ValueError, TypeError) as error:
            raise _Ended(self._timed_out) from error
        if type(why) is not str or len(made) != (len(found) if why else len(records)) or len(made) > len(records):
            raise _Ended(self._timed_out)
        if why and len(made) == len(records):
            raise _Ended(self._timed_out)
        return made, why

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            self._pipe(pipe).close()

    def _receive(self, until_s: float) -> Any:
        size = int.from_bytes(self._read(4, until_s), "big")
        try:
            return decoded(self._read(size, until_s))
        except ValueError as error:
            raise _Ended(self._timed_out) from error

    def _read(self, size: int, until_s: float) -> bytes:
        reader = self._pipe(self._child.stdout).fileno()
        found = bytearray()
        while len(found) < size:
            self._wait(until_s, reads=[reader])
            try:
                part = os.read(reader, size - len(found))
            except BlockingIOError:
                continue
            if not part:
                raise _Ended(self._timed_out)
            found += part
        return bytes(found)

    def _wait(self, until_s: float, *, reads: Sequence[int] = (), writes: Sequence[int] = ()) -> None:
        left_s = until_s - time.monotonic()
        if left_s <= 0 or select.select(reads, writes, (), left_s) == ([], [], []):
            raise _Ended(self._timed_out)

    def _pipe(self, pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None  # noqa: S101  (both are made above)
        return pipe


FUNCTIONS: Final = FunctionProcesses()
"""Those of this process; they end with it."""
