"""Async tests run on the loop that their folder or their mark says, and what makes a virtual run stop fails them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest
import uvloop

from tests.fakes.virtual_time import VirtualLoop
from tests.simulation.incarnation import SimulationLoop

pytest_plugins = ["pytester"]

Ran = Callable[..., pytest.RunResult]

CONFTEST = """
def pytest_configure(config):
    from tests import event_loops

    config.pluginmanager.register(event_loops)
"""


@pytest.fixture
def ran(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> Ran:
    """Runs files of tests as a run of its own with our settings, here or in another process."""

    def run_it(*texts: str, folder: str = "tests/unit", options: Sequence[str] = ()) -> pytest.RunResult:
        pytester.makepyprojecttoml((pytestconfig.rootpath / "pyproject.toml").read_text())
        pytester.makeconftest(CONFTEST)
        pytester.mkdir("tests").parent.joinpath(folder).mkdir()
        files = [pytester.path / folder / f"test_{number}.py" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text("import asyncio\nimport pytest\n\n" + text)
        return pytester.runpytest("-p", "no:cacheprovider", "-p", "no:schemathesis", *options, *files)

    return run_it


async def test_an_hour_of_sleep_costs_nothing_here() -> None:
    begun_s = time.monotonic()
    await asyncio.sleep(3599)
    assert time.monotonic() - begun_s < 60
    assert type(asyncio.get_running_loop()) is VirtualLoop


@pytest.mark.virtual_time(limit_s=100_000, make_loop=SimulationLoop)
async def test_a_mark_gives_more_virtual_time_and_another_loop() -> None:
    await asyncio.sleep(86_400)
    assert type(asyncio.get_running_loop()) is SimulationLoop


@pytest.mark.real_time
async def test_a_mark_gives_the_ordinary_loop() -> None:
    begun_s = time.monotonic()
    await asyncio.sleep(0.01)
    assert time.monotonic() - begun_s >= 0.009
    assert isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop)
    assert not isinstance(asyncio.get_running_loop(), VirtualLoop)


@pytest.mark.both_loops
async def test_a_mark_gives_both_loops(request: pytest.FixtureRequest) -> None:
    is_uvloop = isinstance(asyncio.get_running_loop(), uvloop.Loop)
    assert request.node.name.endswith("[uvloop]" if is_uvloop else "[asyncio]")


def test_other_folders_have_the_ordinary_loop_and_a_failed_assertion_is_red(ran: Ran) -> None:
    text = """
async def test_kind():
    assert type(asyncio.get_running_loop()).__name__ == "_UnixSelectorEventLoop"

async def test_red():
    await asyncio.sleep(0)
    assert False, "red it is"
"""
    result = ran(text, folder="tests/cluster")
    assert result.parseoutcomes() == {"passed": 1, "failed": 1}
    assert "red it is" in str(result.stdout)


def test_what_makes_a_virtual_run_stop_fails_the_test_that_caused_it_and_no_other(ran: Ran) -> None:
    text = """
async def test_deadlock():
    await asyncio.Event().wait()

async def test_livelock():
    while True:
        await asyncio.sleep(0)

@pytest.mark.virtual_time(limit_s=60)
async def test_limit():
    while True:
        await asyncio.sleep(1)

async def test_red():
    await asyncio.sleep(1)
    assert False

async def test_green():
    await asyncio.sleep(3000)
"""
    result = ran(text)
    assert result.parseoutcomes() == {"passed": 1, "failed": 4}
    assert "Deadlock: Nothing is scheduled any more at 0.000000 s." in str(result.stdout)
    assert "Livelock: " in str(result.stdout)
    assert "TimeLimit: The limit of 60 s virtual time is reached" in str(result.stdout)


def test_a_test_that_hangs_in_real_time_is_given_up_on_both_loops(ran: Ran) -> None:
    text = """
@pytest.mark.both_loops(limit_s=0.05)
async def test_hangs():
    await asyncio.Event().wait()
"""
    result = ran(text)
    assert result.parseoutcomes() == {"failed": 2}
    assert "test_hangs[uvloop] - TimeoutError" in str(result.stdout)


def test_what_still_runs_at_the_end_is_cancelled_and_one_that_refuses_to_end_is_an_error(ran: Ran) -> None:
    text = """
cleaned = []

async def lives_on():
    try:
        await asyncio.sleep(1000)
    finally:
        await asyncio.sleep(1)
        cleaned.append("yes")

async def stays():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

@pytest.mark.virtual_time(limit_s=10)
async def test_a():
    test_a.task = asyncio.create_task(lives_on())
    await asyncio.sleep(9.5)

def test_b():
    assert cleaned == ["yes"]

async def test_c():
    test_c.task = asyncio.create_task(stays(), name="the one who stays")
    await asyncio.sleep(1)
"""
    result = ran(text)
    assert result.parseoutcomes() == {"passed": 3, "errors": 1}
    assert "ERROR at teardown of test_c" in str(result.stdout)
    assert "the one who stays < Event.wait" in str(result.stdout)


def test_a_mark_with_wrong_arguments_is_refused(ran: Ran) -> None:
    marks = ("virtual_time(60)", "virtual_time(limit=60)", "virtual_time(limit_s='60')", "virtual_time(limit_s=0)")
    marks += ("virtual_time(make_loop=int)", "real_time(1)", "both_loops(limit_s=0)", "virtual_tine")
    marks += ("real_time\n@pytest.mark.both_loops",)
    result = ran(*(f"@pytest.mark.{mark}\nasync def test_it():\n    pass\n" for mark in marks))
    assert result.parseoutcomes() == {"errors": len(marks)}
    # Each is told once above; the summary repeats it where it cuts no line, as in CI.
    told = str(result.stdout).partition("short test summary info")[0]
    assert told.count("the mark is virtual_time(*, limit_s=3600.0") == 5
    assert told.count("the mark is real_time(*, limit_s=120.0") == 1
    assert told.count("the mark is both_loops(*, limit_s=120.0") == 1
    assert told.count("the marks both_loops and real_time meet") == 1
    assert told.count("'virtual_tine' not found in `markers`") >= 1


def test_a_mark_does_nothing_for_a_sync_test_and_is_refused_but_one_of_the_file_is_not(ran: Ran) -> None:
    text = """
pytestmark = pytest.mark.both_loops

@pytest.mark.real_time
def test_refused():
    pass

def test_sync():
    pass

async def test_twice():
    pass

@pytest.mark.virtual_time
async def test_nearest_mark_counts():
    await asyncio.sleep(1000)
"""
    result = ran(text)
    assert result.parseoutcomes() == {"passed": 4, "errors": 1}
    assert "test_refused is marked real_time, but not async" in str(result.stdout)


def test_a_coroutine_that_nobody_awaits_and_a_test_that_yields_are_red(ran: Ran) -> None:
    text = """
async def checks():
    assert False

def test_forgets():
    checks()

async def test_forgets_too():
    checks()
"""
    result = ran(text, "async def test_yields():\n    yield\n", options=["--continue-on-collection-errors"])
    assert result.parseoutcomes() == {"failed": 2, "errors": 1, "warnings": 1}
    assert "coroutine 'checks' was never awaited" in str(result.stdout)
    assert "Tests based on asynchronous generators are not supported" in str(result.stdout)


def test_without_the_plugin_nothing_runs(ran: Ran) -> None:
    result = ran("async def test_it():\n    pass\n", options=["-p", "no:asyncio"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "Missing required plugins: pytest-asyncio" in str(result.stderr)
