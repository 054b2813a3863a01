"""A plugin of pytest that records which lines of the product each test function runs, and what it costs.

``make quick-map`` loads it (``-p tests.quick.record``). It needs Python 3.12 or later: ``sys.monitoring`` says each
line once a test, so the record costs little. One file for each process of pytest-xdist, a line of JSON for each test.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = tuple(f"{ROOT}/{folder}/" for folder in ("mm2py", "connectors", "rest"))
FOLDER: Final = "MM2PY_QUICK_RECORDS"
"""The variable that names the folder of the records."""
_TOOL: Final = 4


class Recorder:
    """Takes the lines that run, and writes them down when a test has ended."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("w", encoding="utf-8")
        self._lines: dict[str, set[int]] = {}
        self._monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        self._monitoring.use_tool_id(_TOOL, "mm2py quick")
        self._monitoring.register_callback(_TOOL, self._monitoring.events.LINE, self._on_line)
        self._monitoring.set_events(_TOOL, self._monitoring.events.LINE)

    def _on_line(self, code: CodeType, line: int) -> Any:
        if code.co_filename.startswith(PRODUCT):
            self._lines.setdefault(code.co_filename, set()).add(line)
        return self._monitoring.DISABLE

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._lines.clear()  # what an import ran is no test's
        self._monitoring.restart_events()
        begun_s = time.process_time()
        try:
            return (yield)
        finally:
            lines = {name.removeprefix(f"{ROOT}/"): sorted(found) for name, found in self._lines.items()}
            test = item.nodeid.partition("[")[0]
            seconds = round(time.process_time() - begun_s, 4)
            self._file.write(json.dumps({"test": test, "cpu_s": seconds, "lines": lines}) + "\n")

    def pytest_unconfigure(self) -> None:
        self._monitoring.set_events(_TOOL, 0)
        self._monitoring.free_tool_id(_TOOL)
        self._file.close()


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Recorder(Path(os.environ[FOLDER]) / f"{worker or 'main'}.jsonl"))
