"""``make units-test``: the systemd units in ``deploy/systemd``, judged by systemd-analyze.

``verify`` names what systemd would not understand, ``security`` adds up what a service that is taken over could reach.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

UNITS: Final = Path(__file__).parents[1] / "systemd"
EXPOSURE_MOST: Final = 2.0
MISSING: Final = "systemd-analyze is not here. Install it: apt-get install systemd"
_EXPOSURE: Final = re.compile(r"exposure level for \S+: ([0-9.]+)")


def problems_of(unit: Path) -> list[str]:
    """Return what systemd-analyze finds in a unit. The program that it starts need not be installed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / unit.name
        copy.write_text(re.sub(r"(?m)^(Exec\w+)=\S+", rf"\1={sys.executable}", unit.read_text()))
        verified = _analyze("verify", "--man=no", str(copy))
        problems = [line for line in (verified.stdout + verified.stderr).splitlines() if unit.stem in line]
        if verified.returncode and not problems:
            problems.append((verified.stdout + verified.stderr).strip())
        exposure = exposure_of(copy)
        if exposure > EXPOSURE_MOST:
            problems.append(f"{unit.name}: exposure {exposure}, and {EXPOSURE_MOST} is the most")
        return problems


def exposure_of(unit: Path) -> float:
    """Return the exposure of a service: 0 for none, 10 for one without any protection."""
    done = _analyze("security", "--offline=true", "--no-pager", str(unit))
    match = _EXPOSURE.search(done.stdout)
    if match is None:
        raise RuntimeError(f"systemd-analyze security says nothing of {unit}: {done.stdout}{done.stderr}")
    return float(match[1])


def _analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    """Judge all units. Returns the exit code."""
    if shutil.which("systemd-analyze") is None:
        print(MISSING, file=sys.stderr)
        return 1
    failed = False
    for unit in sorted(UNITS.glob("*.service")):
        problems = problems_of(unit)
        failed |= bool(problems)
        print("\n".join(problems) or f"{unit.name}: exposure {exposure_of(unit)}, at most {EXPOSURE_MOST}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
