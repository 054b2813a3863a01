"""Several workers under one parent: what it decides, and how it treats real processes, here tiny scripts.

With real workers: tests/cluster/commands/test_workers_option.py.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.local.python_path import python_path
from mm2py.cli.main import parse_arguments
from mm2py.cli.supervision import (
    HEALTHY_AFTER_S,
    DrainOverdue,
    DrainWorkers,
    Effect,
    Event,
    Finish,
    Kill,
    Pause,
    PauseOver,
    Signalled,
    Start,
    Supervision,
    WorkerEnded,
)
from mm2py.cli.supervisor import Parent, name_of_signal, own_command, watch_parent, worker_arguments, worker_count
from mm2py.errors import ConfigError
from mm2py.kafka.errors import Backoff
from mm2py.logs import make_logger

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[3]
DEADLINE_S = 30 * float(os.environ.get("MM2PY_TESTS_PATIENCE", "1"))
KILLED = -signal.SIGKILL


class _NoJitter(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return 1.0


def supervision(count: int) -> Supervision:
    """As the command makes it, but without jitter."""
    return Supervision(count, lambda: Backoff(_NoJitter(), first_s=1.0, most_s=30.0))


def decide(parent: Supervision, *events: Event) -> list[Effect]:
    """Take the events in, and return what the last one led to."""
    parent.begin()
    effects: list[Effect] = []
    for event in events:
        effects = parent.step(event)
    return effects


def ends(*codes: int | None) -> list[Event]:
    """Worker 1 ends with the first code, worker 2 with the second, ..."""
    return [WorkerEnded(number, code, 1.0) for number, code in enumerate(codes, start=1)]


# -- a worker ends -----------------------------------------------------------------------------------------------------


def test_all_workers_start_side_by_side() -> None:
    assert supervision(3).begin() == [Start(1), Start(2), Start(3)]


@pytest.mark.parametrize("code", [KILLED, -signal.SIGSEGV, -signal.SIGTERM, 0, 1, 3, 130, None])
def test_a_worker_that_ends_while_others_run_restarts_after_a_pause(code: int | None) -> None:
    parent = supervision(2)
    assert decide(parent, WorkerEnded(2, code, 1.0)) == [Pause(2, 1.0)]
    assert parent.running == (1,)
    assert parent.step(PauseOver(2)) == [Start(2)]
    assert parent.running == (1, 2)


def test_pauses_grow_to_half_a_minute_for_the_worker_that_dies_and_for_no_other() -> None:
    parent = supervision(2)
    for pause_s in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        assert parent.step(WorkerEnded(1, KILLED, 5.0)) == [Pause(1, pause_s)]
        parent.step(PauseOver(1))
    assert parent.step(WorkerEnded(2, KILLED, 5.0)) == [Pause(2, 1.0)]


def test_two_good_minutes_forgive_all_earlier_deaths() -> None:
    parent = supervision(2)
    for _ in range(5):
        parent.step(WorkerEnded(1, KILLED, HEALTHY_AFTER_S - 1))
        parent.step(PauseOver(1))
    assert parent.step(WorkerEnded(1, KILLED, HEALTHY_AFTER_S)) == [Pause(1, 1.0)]


def test_when_no_worker_has_a_flow_left_to_run_all_is_over_with_1() -> None:
    assert decide(supervision(2), *ends(1, 1)) == [Finish(1)]


def test_a_worker_that_died_otherwise_may_still_have_flows_to_run() -> None:
    assert decide(supervision(2), *ends(KILLED, 1)) == [Pause(2, 1.0)]
    assert decide(supervision(2), *ends(1, KILLED)) == [Pause(2, 1.0)]


def test_a_worker_that_runs_again_is_not_counted_by_its_last_end() -> None:
    assert decide(supervision(2), WorkerEnded(1, 1, 1.0), PauseOver(1), WorkerEnded(2, 1, 1.0)) == [Pause(2, 1.0)]


def test_a_refused_file_stops_all_workers_and_ends_with_2() -> None:
    parent = supervision(3)
    (drain,) = decide(parent, WorkerEnded(2, 2, 1.0))
    assert isinstance(drain, DrainWorkers)
    assert drain.workers == (1, 3)
    assert parent.step(WorkerEnded(1, 0, 2.0)) == []
    assert parent.step(WorkerEnded(3, 2, 2.0)) == [Finish(2)]


def test_a_file_that_went_bad_meanwhile_stops_nobody_who_runs_and_is_tried_again() -> None:
    """The file is saved by halves while worker 3 dies of too little memory."""
    parent = supervision(3)
    assert decide(parent, WorkerEnded(3, KILLED, 5.0), PauseOver(3), WorkerEnded(3, 2, 0.5)) == [Pause(3, 2.0)]
    assert parent.running == (1, 2)
    assert parent.step(PauseOver(3)) == [Start(3)]
    assert decide(parent, WorkerEnded(3, 2, 0.5)) == [Pause(3, 4.0)]


def test_when_all_died_of_something_else_and_are_refused_their_file_they_wait_for_a_better_one() -> None:
    parent = supervision(2)
    assert decide(parent, *ends(KILLED, KILLED), PauseOver(1), PauseOver(2), *ends(2, 2)) == [Pause(2, 2.0)]
    assert decide(parent, Signalled()) == [Finish(1)]


def test_a_worker_that_could_not_be_started_has_not_run_before() -> None:
    (drain,) = decide(supervision(2), WorkerEnded(2, None, 0.0), PauseOver(2), WorkerEnded(2, 2, 0.5))
    assert isinstance(drain, DrainWorkers)


def test_the_first_signal_while_a_refused_file_stops_all_lets_them_drain() -> None:
    parent = supervision(2)
    assert decide(parent, WorkerEnded(1, 2, 1.0), Signalled()) == []
    assert parent.step(WorkerEnded(2, 0, 1.0)) == [Finish(2)]


# -- a stop ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codes", [(1, 0, 0), (0, 1, 0), (0, 0, 1)], ids=str)
def test_one_worker_that_did_not_drain_makes_the_exit_code_1(codes: Sequence[int]) -> None:
    assert decide(supervision(3), Signalled(), *ends(*codes)) == [Finish(1)]


@pytest.mark.parametrize("code", [KILLED, 2, 130, None, -signal.SIGHUP])
def test_a_worker_that_dies_while_it_drains_has_not_drained(code: int) -> None:
    assert decide(supervision(1), Signalled(), WorkerEnded(1, code, 1.0)) == [Finish(1)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_was_signalled_before_it_began_had_nothing_to_drain(number: int) -> None:
    assert decide(supervision(2), Signalled(), *ends(-number, 0)) == [Finish(0)]


def test_a_stop_does_not_wait_for_a_worker_that_pauses_and_does_not_call_it_drained() -> None:
    parent = supervision(2)
    (drain,) = decide(parent, WorkerEnded(1, KILLED, 1.0), Signalled())
    assert isinstance(drain, DrainWorkers)
    assert drain.workers == (2,)
    assert parent.step(PauseOver(1)) == []
    assert parent.step(WorkerEnded(2, 0, 1.0)) == [Finish(1)]


@pytest.mark.parametrize(("code", "result"), [(0, 0), (KILLED, 1)])
def test_a_stop_while_all_workers_pause_ends_at_once(code: int, result: int) -> None:
    assert decide(supervision(2), *ends(code, code), Signalled()) == [Finish(result)]


def test_a_second_signal_ends_all_that_still_run_and_the_exit_code_is_130() -> None:
    parent = supervision(3)
    (kill,) = decide(parent, Signalled(), WorkerEnded(2, 0, 1.0), Signalled())
    assert isinstance(kill, Kill)
    assert kill.workers == (1, 3)
    assert parent.step(WorkerEnded(1, KILLED, 1.0)) == []
    assert parent.step(WorkerEnded(3, KILLED, 1.0)) == [Finish(130)]


def test_workers_that_hang_while_they_drain_are_killed_and_the_exit_code_is_1() -> None:
    parent = supervision(2)
    (kill,) = decide(parent, Signalled(), WorkerEnded(1, 0, 1.0), DrainOverdue())
    assert isinstance(kill, Kill)
    assert kill.workers == (2,)
    assert parent.step(WorkerEnded(2, KILLED, 60.0)) == [Finish(1)]


@pytest.mark.walk(range(20))
def test_whatever_happens_a_parent_ends_exactly_when_none_runs_and_none_is_to_begin(seed: int) -> None:
    rng = random.Random(seed)
    parent = supervision(rng.randint(1, 4))
    running = {effect.worker for effect in parent.begin() if isinstance(effect, Start)}
    pausing: set[int] = set()
    signals, finished = 0, None
    while finished is None:
        choices: list[Event] = [
            WorkerEnded(n, rng.choice([0, 1, 2, KILLED, None]), rng.choice([1, 200])) for n in running
        ]
        choices += [PauseOver(n) for n in pausing]
        choices += [Signalled()] if rng.random() < 0.1 else []
        if not choices:
            choices = [Signalled()]
        event = rng.choice(choices)
        signals += isinstance(event, Signalled)
        match event:
            case WorkerEnded(number):
                running.remove(number)
            case PauseOver(number):
                pausing.remove(number)
            case _:
                pass
        for effect in parent.step(event):
            match effect:
                case Start(number):
                    assert number not in running
                    running.add(number)
                case Pause(number):
                    assert number not in running | pausing
                    pausing.add(number)
                case DrainWorkers(numbers) | Kill(numbers):
                    assert set(numbers) == running
                case Finish(code):
                    finished = code
        assert set(parent.running) == running
        assert signals < 50, "it does not end"
    assert not running


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "1.5", "257", "9" * 30, "²", "+2"])
def test_a_number_of_workers_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number from 1 to 256"):
        worker_count(text)
    with pytest.raises(ConfigError, match="--workers"):
        parse_arguments(["FILE", f"--workers={text}"])


def test_one_worker_is_the_default_and_has_no_parent() -> None:
    assert parse_arguments(["FILE"]).workers == 1
    assert parse_arguments(["FILE"]).worker_number is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["f", "--workers", "3"],
        ["f", "--workers=3", "--clusters", "A", "B"],
        ["--workers", "9", "f", "--workers", "3", "--log-level", "debug"],
        ["--clusters", "A", "--workers", "3", "--", "f"],
        ["--workers", "3", "--", "--workers"],
        ["--workers=3", "--allow-recopy", "A->B:t", "A->B:u", "--log-format", "json", "--", "--workers=5"],
    ],
    ids=" ".join,
)
def test_a_worker_gets_all_arguments_of_its_parent_but_is_one(arguments: list[str]) -> None:
    of_parent, of_worker = parse_arguments(arguments), parse_arguments(worker_arguments(arguments, 2))
    assert (of_parent.workers, of_parent.worker_number) == (3, None)
    assert (of_worker.workers, of_worker.worker_number) == (1, 2)
    assert vars(of_worker) | {"workers": 3, "worker_number": None} == vars(of_parent)


def test_what_a_parent_starts_again_does_not_apply_the_file_once_more() -> None:
    """An operator may have changed the stored settings since."""
    arguments = ["f", "--apply", "--workers", "2"]
    assert "--apply" in worker_arguments(arguments, 1)
    assert "--apply" not in worker_arguments(arguments, 1, again=True)


def test_a_worker_is_started_as_its_parent_was() -> None:
    script = ["python3", "-X", "dev", "/opt/bin/mm2py", "f", "--workers", "2"]
    assert own_command(script, script[4:]) == [sys.executable, "-X", "dev", "/opt/bin/mm2py"]
    module = ["/usr/bin/python", "-m", "mm2py", "f"]
    assert own_command(module, ["f"]) == [sys.executable, "-m", "mm2py"]


def test_called_as_a_function_it_starts_the_command() -> None:
    for original in (["pytest", "-q"], ["python"], ["f"], []):
        assert own_command(original, ["f"]) == [sys.executable, "-m", "mm2py"]


def test_a_signal_is_named() -> None:
    assert (name_of_signal(9), name_of_signal(63)) == ("SIGKILL", "63")


# -- real processes ----------------------------------------------------------------------------------------------------

DRAINS = "import sys; sys.stdin.read()"
HANGS = "import signal; signal.pause()"
Line = dict[str, Any]


class Log(io.StringIO):
    """What a parent has logged; a test waits for lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Line] = []
        self._come = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def write(self, text: str) -> int:
        self.lines += [json.loads(line) for line in text.splitlines() if line]
        task = asyncio.create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return len(text)

    async def _notify(self) -> None:
        async with self._come:
            self._come.notify_all()

    def of(self, event: str) -> list[Line]:
        return [line for line in self.lines if line["event"] == event]

    async def wait_for(self, event: str, count: int = 1) -> Line:
        async with self._come:
            await self._come.wait_for(lambda: len(self.of(event)) >= count)
        return self.of(event)[count - 1]


async def run_parent(
    scripts: Callable[[int], Sequence[str]],
    scene: Callable[[Parent, Log], Any],
    *,
    count: int = 2,
    drain_most_s: float = DEADLINE_S,
) -> tuple[int, Log]:
    """Run a parent of such workers while ``scene`` plays; return its exit code and its log."""

    async def play() -> tuple[int, Log]:
        log = Log()
        parent = Parent(
            scripts,
            Supervision(count, lambda: Backoff(random.Random(1), first_s=0.01, most_s=0.05)),
            log=make_logger("info", "json", log),
            drain_most_s=drain_most_s,
        )
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(parent.run())
            await scene(parent, log)
        return running.result(), log

    code, log = await play()
    for line in log.of("process.started"):
        with pytest.raises(ProcessLookupError):
            os.kill(line["pid"], 0)  # not even a zombie is left
    return code, log


def python(script: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", script]


async def test_a_worker_whose_file_went_bad_is_missed_loudly_until_it_can_read_it_and_the_others_run_on() -> None:
    lives: list[int] = []

    def script(number: int) -> list[str]:
        lives.append(number)
        if number == 1:
            return python(DRAINS)
        return python(["raise SystemExit(1)", "raise SystemExit(2)", DRAINS][min(2, lives.count(2) - 1)])

    async def scene(parent: Parent, log: Log) -> None:
        await log.wait_for("process.started", 4)
        parent.on_signal()

    code, log = await run_parent(script, scene)
    assert code == 0
    failed, refused, *drained = log.of("process.ended")
    assert (failed["exit_code"], refused["exit_code"], refused["level"]) == (1, 2, "error")
    assert refused["again_in_s"] >= 0
    assert "refused its file" in refused["why"] and refused["remedy"] and "why" not in failed
    assert [line["exit_code"] for line in drained] == [0, 0]


async def test_a_worker_that_hangs_is_killed_and_it_is_said() -> None:
    async def scene(parent: Parent, log: Log) -> None:
        await log.wait_for("process.started", 2)
        parent.on_signal()

    code, log = await run_parent(lambda n: python(HANGS if n == 1 else DRAINS), scene, drain_most_s=1.0)
    assert code == 1
    assert {line["worker"]: line.get("signal") for line in log.of("process.ended")} == {1: "SIGKILL", 2: None}
    assert log.of("parent.killing")[0]["workers"] == 1


async def test_a_worker_that_ends_unasked_is_an_error_whatever_its_exit_code() -> None:
    lives = itertools.count()

    async def scene(parent: Parent, log: Log) -> None:
        ended = await log.wait_for("process.ended")
        assert (ended["exit_code"], ended["level"]) == (0, "error")
        await log.wait_for("process.started", 2)
        parent.on_signal()

    await run_parent(lambda _: python(DRAINS if next(lives) else "raise SystemExit(0)"), scene, count=1)


async def test_a_program_that_is_gone_is_tried_again() -> None:
    """An update of the package moves the program away for a moment."""
    calls = itertools.count()

    async def scene(parent: Parent, log: Log) -> None:
        failed = await log.wait_for("process.not_started")
        assert "No such file" in failed["why"]
        assert failed["again_in_s"] >= 0
        await log.wait_for("process.started")
        parent.on_signal()

    code, _ = await run_parent(lambda _: ["/no/such/program"] if next(calls) == 0 else python(DRAINS), scene, count=1)
    assert code == 0


async def test_a_worker_reads_what_is_no_end_and_stops_once_at_the_end() -> None:
    log = Log()
    reading, writing = os.pipe()
    stopped = asyncio.Event()
    watch_parent(stopped.set, make_logger("info", "json", log), descriptor=reading)
    os.write(writing, b"x" * 5000)
    turn = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0, turn.set_result, None)
    await turn
    assert not stopped.is_set()
    os.close(writing)
    async with asyncio.timeout(DEADLINE_S):
        await stopped.wait()
    assert asyncio.get_running_loop().remove_reader(reading) is False
    os.close(reading)
    (line,) = log.lines
    assert line["event"] == "worker.stopping"


async def test_a_worker_number_without_a_parent_is_refused() -> None:
    """Somebody repeats a line of ``ps`` by hand: with no end of a pipe to watch it could not be told when to stop."""

    async def play(descriptor: int) -> None:
        watch_parent(lambda: None, make_logger("info", "json", Log()), descriptor=descriptor)

    with Path(os.devnull).open() as no_pipe, pytest.raises(ConfigError, match="--worker-number is for the workers"):
        await play(no_pipe.fileno())


PARENT_SCRIPT = r"""
import asyncio, random, signal, sys
from mm2py.kafka.errors import Backoff
from mm2py.logs import make_logger
from mm2py.cli.supervisor import Parent
from mm2py.cli.supervision import Supervision

CHILD = "import os, sys; os.write(1, b'up\\n'); sys.stdin.read(); os.write(1, b'drained\\n')"
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and that is inherited

async def main():
    pauses = lambda: Backoff(random.Random(1), first_s=60.0, most_s=60.0)
    parent = Parent(lambda _: [sys.executable, "-c", CHILD], Supervision(2, pauses), log=make_logger("info", "json"))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, parent.on_signal)
    return await parent.run()

sys.exit(asyncio.run(main()))
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda pid: os.kill(pid, signal.SIGKILL), KILLED),
        (lambda pid: os.kill(pid, signal.SIGTERM), 0),
        (lambda pid: os.killpg(pid, signal.SIGINT), 0),
        (lambda pid: os.killpg(pid, signal.SIGHUP), -signal.SIGHUP),
    ],
    ids=["the parent is killed", "the parent is terminated", "Ctrl-C in a terminal", "the terminal is closed"],
)
def test_however_a_parent_ends_its_workers_drain(end: Callable[[int], None], code: int) -> None:
    """Ctrl-C signals all processes in the foreground of a terminal: a worker that got it would not print the word."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT_SCRIPT],
        env={**os.environ, "PYTHONPATH": python_path(ROOT)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        try:
            assert parent.stdout is not None
            assert [parent.stdout.readline(), parent.stdout.readline()] == ["up\n", "up\n"]
            end(parent.pid)
            rest, _ = parent.communicate(timeout=DEADLINE_S)  # until the last worker has closed its standard output
        finally:
            parent.kill()
    assert rest == "drained\ndrained\n"
    assert parent.returncode == code
