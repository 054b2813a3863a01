"""A plugin of pytest that writes down the tests that failed, for ``python -m tests.second_try``.

It also names each at once: of a run that hangs or is ended, the rest would be lost.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

import pytest

FILE: Final = "MM2PY_FAILURES"
"""The environment variable that names the file: a JSON object a line."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called in the process that prints, also if others run the tests."""
    if report.failed and FILE in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        found = {"test": report.nodeid, "text": report.longreprtext, "load": os.getloadavg()[0]}
        with Path(os.environ[FILE]).open("a") as out:
            out.write(json.dumps(found) + "\n")
        print(f"\n{report.nodeid} failed ({report.when})", file=sys.__stderr__, flush=True)
