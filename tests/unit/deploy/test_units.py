"""The systemd units: understood by systemd, and little to reach for one who has taken the service over."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deploy.packages.units import MISSING, UNITS, problems_of

HERE = sorted(UNITS.glob("*.service"))
LEAST = (
    "Type=notify",
    "WatchdogSec=30",
    "DynamicUser=yes",
    "ProtectSystem=strict",
    "CapabilityBoundingSet=",
    "SystemCallFilter=@system-service",
    "RestartPreventExitStatus=2",
)
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason=MISSING)


@pytest.mark.parametrize("unit", HERE, ids=lambda unit: unit.name)
def test_a_unit_has_what_the_pages_promise(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    assert [line for line in LEAST if line not in lines] == []
    assert any(line.startswith("LoadCredential=") for line in lines)


@needs_systemd
@pytest.mark.parametrize("unit", HERE, ids=lambda unit: unit.name)
def test_systemd_understands_a_unit_and_its_exposure_is_small(unit: Path) -> None:
    assert problems_of(unit) == []


@needs_systemd
def test_a_unit_that_systemd_does_not_understand_or_that_is_open_is_found(tmp_path: Path) -> None:
    text = HERE[0].read_text()
    wrong = tmp_path / "wrong.service"
    wrong.write_text(text.replace("WatchdogSec=30", "WatchdogSec=often"))
    assert any("often" in problem for problem in problems_of(wrong))
    opened = tmp_path / "open.service"
    opened.write_text(text.replace("CapabilityBoundingSet=\n", "").replace("PrivateUsers=yes\n", ""))
    assert any("exposure" in problem for problem in problems_of(opened))
