"""The command ``python -m mm2py FILE`` as a child process: started, watched through its log, ended.

    with Mm2py(two_way_properties(west, east, **{"A->B.topics": "orders"})) as mm2py:
        mm2py.wait_for_event("topics.copying", flow="A->B")
        produce(west, "orders")
        mm2py.wait_until(lambda: count(east, "A.orders") == 10, "ten records arrived")
        assert mm2py.terminate() == 0

Its log is read as JSON, one event a line. A test that fails shows the end of it. However a test ends, the ``with``
block leaves no process behind, and the guardian of the starter sees to those of a test run that was killed.

Here is also how all tests on real processes wait: ``wait_until`` and ``until`` for a thing, ``within`` for work that
ends by itself, ``pause`` where the passing of time is the point (``tests/unit/test_waits.py`` forbids other ways).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, TypeVar, overload

from deploy.local.broker_settings import render_properties
from deploy.local.guardian import guard
from deploy.local.kafka import KafkaCluster
from deploy.local.python_path import python_path
from tests.cluster import patience
from tests.cluster.patience import now_s

ROOT: Final = Path(__file__).parents[2]

OWN_PATH: Final = os.pathsep.join([str(Path(__file__).parent / "without"), python_path(ROOT)])
"""The ``PYTHONPATH`` of a process under test."""
PATIENCE: Final = patience.PATIENCE
DEADLINE_S: Final = 30.0 * PATIENCE
"""How long a test waits for what should take a second or two: CI has neighbours."""
DRAIN_DEADLINE_S: Final = 60.0 * PATIENCE
ANSWER_S: Final = 60.0 * PATIENCE
"""How long the answer to one question may take that a client of the tests asks, of brokers or of REST."""
COMMAND_S: Final = 90.0 * PATIENCE
"""How long a command may take that ends by itself."""
POLL_S: Final = 0.05
LOG_LINES_SHOWN: Final = 60

Event = dict[str, Any]
Value = str | int | float | bool
T = TypeVar("T")


def one_way_properties(
    source: KafkaCluster | str, target: KafkaCluster | str, /, *, names: tuple[str, str] = ("A", "B"), **extra: Value
) -> dict[str, Value]:
    """Return a file with the flow ``A->B`` for clusters of one node, without heartbeats.

    Each call names a group of its own: tests share clusters, and two processes of one group share the work.

    Args:
        source: a cluster, or what to write as its ``bootstrap.servers``.
        names: other aliases than A and B.
        extra: further properties, and others than those here: ``**{"A->B.topics": "orders"}``.
    """
    first, second = names
    return {
        "clusters": f"{first},{second}",
        f"{first}.bootstrap.servers": source if isinstance(source, str) else source.bootstrap,
        f"{second}.bootstrap.servers": target if isinstance(target, str) else target.bootstrap,
        f"{first}->{second}.enabled": True,
        "replication.factor": 1,
        "config.storage.replication.factor": 3,  # cannot be made: tests share A->B, and not its owner and settings
        "offset.storage.replication.factor": 1,
        "offset.storage.partitions": 5,
        "status.storage.replication.factor": 1,
        "heartbeats.topic.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "checkpoints.topic.replication.factor": 1,
        "emit.heartbeats.enabled": False,
        "emit.checkpoints.enabled": False,  # clusters are shared, and so are their groups
        "heartbeats.replication.enabled": False,  # clusters are shared, and so is the topic
        "topics.watch.interval.ms": 200,
        "mm2py.group": f"group-{uuid.uuid4().hex[:8]}",
        **extra,
    }


def two_way_properties(
    source: KafkaCluster | str, target: KafkaCluster | str, /, *, names: tuple[str, str] = ("A", "B"), **extra: Value
) -> dict[str, Value]:
    """Return a file with the flows ``A->B`` and ``B->A``; see ``one_way_properties``."""
    both = {f"{names[1]}->{names[0]}.enabled": True, **extra}
    return one_way_properties(source, target, names=names, **both)


def wait_until(condition: Callable[[], T | None], what: str, *, deadline_s: float = DEADLINE_S) -> T:
    """Ask again and again until the answer is true, and return it; AssertionError when it never is.

    Args:
        deadline_s: by the clock of ``patience.py``, which is slow on a busy machine.
    """
    end_s = now_s() + deadline_s
    while not (answer := condition()):
        _check(end_s, deadline_s, what, answer)
        time.sleep(POLL_S)
    return answer


@overload
async def until(condition: Callable[[], Awaitable[T | None]], what: str, *, deadline_s: float = ...) -> T: ...
@overload
async def until(condition: Callable[[], T | None], what: str, *, deadline_s: float = ...) -> T: ...
async def until(condition: Callable[[], Any], what: str, *, deadline_s: float = DEADLINE_S) -> Any:
    """``wait_until`` in an event loop; the condition may be a coroutine function."""
    end_s = now_s() + deadline_s
    while True:
        answer = condition()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return answer
        _check(end_s, deadline_s, what, answer)
        await asyncio.sleep(POLL_S)


def _check(end_s: float, deadline_s: float, what: str, answer: object) -> None:
    assert now_s() < end_s, f"not within {deadline_s:g} s: {what}; the last answer was {answer!r:.500}"


@asynccontextmanager
async def within(deadline_s: float) -> AsyncIterator[None]:
    """``asyncio.timeout`` by the clock of ``patience.py``: TimeoutError when the block takes longer."""
    loop = asyncio.get_running_loop()
    end_s = now_s() + deadline_s
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal timer
        left_s = end_s - now_s()
        if left_s > 0:
            timer = loop.call_later(min(left_s, 1.0), look)
        else:
            scope.reschedule(loop.time())

    async with asyncio.timeout(None) as scope:
        look()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()


def pause(seconds: float, why: str) -> None:
    """Let time pass, by the wall clock. ``why`` says what there is to wait for but a thing."""
    assert why
    time.sleep(seconds)


def during(seconds: float, why: str) -> Iterator[float]:
    """Go on for so long, by the wall clock: yields how many seconds have passed. ``why`` as for ``pause``."""
    assert why
    begun_s = time.monotonic()
    while (passed_s := time.monotonic() - begun_s) < seconds:
        yield passed_s


async def paused(seconds: float, why: str) -> None:
    """``pause`` in an event loop, by its clock."""
    assert why
    await asyncio.sleep(seconds)


class Mm2py:
    """One run of the command. Start it with ``with``, or with ``start`` and ``kill``.

    Args:
        properties: what stands in the file; or the file's name, for a file that the test has written.
        clusters: for ``--clusters``.
        arguments: further arguments, behind the file.
        environment: variables over those of this process; None as a value removes one.
        log_level: ``debug``, ``info``, ``warning`` or ``error``.
        working_directory: by default the directory of the file, which is new for each run.
        popen: further arguments of ``subprocess.Popen``, such as ``stdin``.
        python: of an environment with an mm2py of its own (``installed_versions.py``); None: the one of this checkout.
    """

    def __init__(
        self,
        properties: Mapping[str, Value] | Path,
        *,
        clusters: Sequence[str] | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str | None] | None = None,
        log_level: str = "info",
        working_directory: Path | None = None,
        popen: Mapping[str, Any] | None = None,
        python: Path | None = None,
    ) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="mm2py-run-")
        self.directory = Path(self._directory.name)
        self.last_errors = ""
        """What the last command wrote to its standard error."""
        if isinstance(properties, Path):
            self.file = properties
        else:
            self.file = self.directory / "mm2.properties"
            self.file.write_text(render_properties({"listeners": "", **properties}))  # REST has tests of its own
        self._command = [str(python or sys.executable), "-m", "mm2py", str(self.file), *arguments]
        self._command += ["--log-format", "json", "--log-level", log_level]
        if clusters is not None:
            self._command += ["--clusters", *clusters]
        wanted = {
            **os.environ,
            "PYTHONPATH": None if python else OWN_PATH,
            **(environment or {}),
            **guard().environment(),
        }
        self._environment = {name: value for name, value in wanted.items() if value is not None}
        self._working_directory = working_directory or self.directory
        self._popen = {"stdin": subprocess.DEVNULL, **(popen or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []
        self._changed = threading.Condition()
        self.log: list[Event] = []
        """What it has logged so far, as parsed JSON. A line that is none is ``{"event": "", "text": line}``."""
        self.output: list[str] = []
        """The lines it wrote to its standard output."""

    # Its life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self._directory.cleanup()
        if error is not None:
            error.add_note(self.tail())

    def start(self) -> None:
        """Start the process; what it logs is collected from now on."""
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            cwd=self._working_directory,
            start_new_session=True,  # Ctrl-C in a terminal is for the tests; they decide what ends when
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **self._popen},
        )
        for stream, take in ((self._process.stderr, self._take_log_line), (self._process.stdout, self.output.append)):
            if stream is not None:
                reader = threading.Thread(target=self._read, args=(stream, take), daemon=True)
                reader.start()
                self._readers.append(reader)

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._running().send_signal(number)

    def wait(self, *, deadline_s: float = DRAIN_DEADLINE_S) -> int:
        """Wait until it has ended and return its exit code (negative: the signal); all of its log is there then."""
        process = self._running()
        wait_until(lambda: process.poll() is not None, "it ends", deadline_s=deadline_s)
        wait_until(lambda: not self._is_reading, "its log ends")
        return process.returncode

    def terminate(self, *, deadline_s: float = DRAIN_DEADLINE_S) -> int:
        """Ask for a drained stop, and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(deadline_s=deadline_s)

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for reader in self._readers:
                reader.join(DEADLINE_S)

    # What it says

    def events(self, name: str | None = None, /, **fields: Any) -> list[Event]:
        """Return the events so far with this name and these fields.

        A field is compared with ``==``; a pattern of ``re.compile`` has to be found in it.
        """
        return [event for event in list(self.log) if _matches(event, name, fields)]

    def wait_for_event(
        self, name: str, /, *, deadline_s: float = DEADLINE_S, after: Event | None = None, **fields: Any
    ) -> Event:
        """Wait until such an event has been logged and return the first; see ``events``.

        Args:
            after: only look behind this event, which ``log`` holds.
        Raises:
            AssertionError: it did not come in time, or the process ended without it.
        """
        end_s = now_s() + deadline_s
        with self._changed:
            while True:
                start = 0 if after is None else next(at for at, event in enumerate(self.log) if event is after) + 1
                for event in self.log[start:]:
                    if _matches(event, name, fields):
                        return event
                assert self._is_reading, f"it ended without {name} {fields or ''}"
                left_s = end_s - now_s()
                assert left_s > 0, f"not within {deadline_s:g} s: {name} {fields or ''}"
                self._changed.wait(min(left_s, 0.1))

    def wait_until(self, condition: Callable[[], T | None], what: str, *, deadline_s: float = DEADLINE_S) -> T:
        """As the function of the same name; gives up early when the process has ended."""

        def asked() -> T | None:
            answer = condition()
            assert answer or self.alive, f"it ended before: {what}"
            return answer

        return wait_until(asked, what, deadline_s=deadline_s)

    def gaps(self, *arguments: str) -> tuple[int, Any]:
        """Run ``mm2py gaps`` with the same file; return its exit code and what it says as JSON."""
        ended = subprocess.run(
            [sys.executable, "-m", "mm2py", "gaps", str(self.file), *arguments, "--format", "json"],
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
        )
        self.last_errors = ended.stderr.decode()
        assert ended.stdout, self.last_errors
        return ended.returncode, json.loads(ended.stdout)

    def status(self, *arguments: str) -> tuple[int, Any]:
        """Run ``mm2py status`` with the same file, whether this runs or not; return its exit code and its JSON."""
        code, text = self.status_text(*arguments, "--json")
        return code, json.loads(text)

    def check(self, *arguments: str) -> tuple[int, Any]:
        """Run ``mm2py check`` with the same file, whether this runs or not; return its exit code and its JSON."""
        code, text = self._output_of("check", *arguments, "--json")
        return code, json.loads(text)

    def why(self, *arguments: str) -> tuple[int, str]:
        """Run ``mm2py why`` with the same file; return its exit code and what it prints."""
        return self._output_of("why", *arguments)

    def ordered(self, name: str, *arguments: str) -> str:
        """Run another command with the same file, which must succeed; return what it prints."""
        code, text = self._output_of(name, *arguments)
        assert code == 0, (code, text)
        return text

    def dr(self, verb: str, *arguments: str) -> tuple[int, str]:
        """Run ``mm2py dr VERB`` with the same file; return its exit code and what it prints."""
        return self._output_of(f"dr {verb}", *arguments)

    def status_text(self, *arguments: str) -> tuple[int, str]:
        """Run ``mm2py status`` with the same file, and return its exit code and what people read."""
        return self._output_of("status", *arguments)

    def _output_of(self, name: str, *arguments: str) -> tuple[int, str]:
        ended = subprocess.run(
            [sys.executable, "-m", "mm2py", *name.split(), str(self.file), *arguments],
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
        )
        assert ended.stdout, ended.stderr.decode()
        return ended.returncode, ended.stdout.decode()

    def text(self) -> str:
        """Return all it wrote to its standard error, lines that are no events as they are, for ``in`` and ``re``."""
        return "\n".join(event["text"] if event["event"] == "" else json.dumps(event) for event in list(self.log))

    def tail(self) -> str:
        """Return the end of its log, for the eyes of whoever reads a failed test."""
        lines = [*self.text().splitlines(), *self.output][-LOG_LINES_SHOWN:]
        return "\n".join([f"The log of {' '.join(self._command[1:])} ends with:", *(f"    {line}" for line in lines)])

    # Helpers

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was not started"
        return self._process

    def _read(self, stream: IO[bytes], take: Callable[[str], None]) -> None:
        for line in stream:
            with self._changed:
                take(line.decode(errors="backslashreplace").rstrip("\n"))
                self._changed.notify_all()
        stream.close()

    def _take_log_line(self, line: str) -> None:
        try:
            event = json.loads(line)
            self.log.append(event if isinstance(event, dict) and "event" in event else {"event": "", "text": line})
        except ValueError:
            self.log.append({"event": "", "text": line})

    @property
    def _is_reading(self) -> bool:
        return any(reader.is_alive() for reader in self._readers)


def _matches(event: Event, name: str | None, fields: Mapping[str, Any]) -> bool:
    if name is not None and event["event"] != name:
        return False
    return all(
        bool(wanted.search(str(event.get(field, ""))))
        if isinstance(wanted, re.Pattern)
        else (field in event and event[field] == wanted)
        for field, wanted in fields.items()
    )
