"""Which event loop an async test runs on: virtual time in tests/unit and tests/scenarios, asyncio's own loop elsewhere.

A mark says otherwise, for one test or, as ``pytestmark``, for all async tests of a file; the nearest one counts.
pytest-asyncio runs the test; tests/conftest.py registers what is here.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio
import uvloop

from tests.fakes.virtual_time import VirtualLoop

VIRTUAL_FOLDERS: Final = {("tests", "unit"), ("tests", "scenarios")}
MARKS: Final = {
    "virtual_time": "(*, limit_s=3600.0, make_loop=VirtualLoop): an async test under virtual time, and its limit",
    "real_time": "(*, limit_s=120.0): an async test on asyncio's own loop, given up after limit_s",
    "both_loops": "(*, limit_s=120.0): an async test on asyncio's own loop, and again on uvloop, on which workers run",
}

_Test = Callable[..., Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class _Loops:
    """What an async test runs on."""

    factories: Mapping[str, Callable[[], asyncio.AbstractEventLoop]]
    limit_s: float | None = None
    """Of real time: pytest-timeout cannot interrupt uvloop."""


def pytest_configure(config: pytest.Config) -> None:
    for name, text in MARKS.items():
        config.addinivalue_line("markers", f"{name}{text}")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return _loops_of(config, item).factories


def pytest_runtest_setup(item: pytest.Item) -> None:
    if pytest_asyncio.is_async_test(item):
        limit_s = _loops_of(item.config, item).limit_s
        if limit_s is not None and inspect.iscoroutinefunction(item.obj):  # else hypothesis calls it
            item.obj = _given_up_after(limit_s, item.obj)
    elif marks := MARKS.keys() & {mark.name for mark in item.own_markers}:
        pytest.fail(f"{item.nodeid} is marked {', '.join(marks)}, but not async.", pytrace=False)


def _loops_of(config: pytest.Config, item: pytest.Item) -> _Loops:
    nearest = [(node, mark) for node, mark in item.iter_markers_with_node() if mark.name in MARKS]
    if not nearest:
        is_virtual = item.path.relative_to(config.rootpath).parts[:2] in VIRTUAL_FOLDERS
        return _virtual_time() if is_virtual else _Loops({"asyncio": asyncio.new_event_loop})
    mark = nearest[0][1]
    if len(nearest) > 1 and nearest[0][0] is nearest[1][0]:
        pytest.fail(f"{item.nodeid}: the marks {mark.name} and {nearest[1][1].name} meet.", pytrace=False)
    try:
        return _BY_MARK[mark.name](*mark.args, **mark.kwargs)
    except (TypeError, ValueError):
        pytest.fail(f"{item.nodeid}: the mark is {mark.name}{MARKS[mark.name]}.", pytrace=False)


def _virtual_time(*, limit_s: float = 3600.0, make_loop: type[VirtualLoop] = VirtualLoop) -> _Loops:
    if not limit_s > 0 or not issubclass(make_loop, VirtualLoop):
        raise ValueError
    return _Loops({"virtual": lambda: make_loop(limit_s=limit_s)})


def _real_time(*, limit_s: float = 120.0) -> _Loops:
    if not limit_s > 0:
        raise ValueError
    return _Loops({"asyncio": asyncio.new_event_loop}, limit_s)


def _both_loops(*, limit_s: float = 120.0) -> _Loops:
    one = _real_time(limit_s=limit_s)
    return _Loops({**one.factories, "uvloop": uvloop.new_event_loop}, limit_s)


_BY_MARK: Final[Mapping[str, Callable[..., _Loops]]] = {
    "virtual_time": _virtual_time,
    "real_time": _real_time,
    "both_loops": _both_loops,
}


def _given_up_after(limit_s: float, test: _Test) -> _Test:
    @functools.wraps(test)
    async def limited(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(limit_s):
            await test(*args, **kwargs)

    return limited
