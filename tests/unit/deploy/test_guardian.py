"""The guardian ends the servers of a starter that was killed, also those of a starter within a starter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from deploy.local.guardian import MARK, processes_with

ROOT = Path(__file__).parents[3]
STARTER = """
import os, subprocess, sys, time
from deploy.local.guardian import guard
subprocess.Popen(["sleep", "600"], env={**os.environ, **guard().environment()})
print(guard().token, flush=True)
time.sleep(600)
"""


def test_the_servers_of_a_demo_end_when_the_test_that_started_it_is_killed() -> None:
    outer = f"outer-{os.getpid()}"
    demo = subprocess.Popen(
        [sys.executable, "-c", STARTER],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), MARK: outer},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    token = demo.stdout.readline().strip()
    # Popen returns while the kernel still sets up the new program: until then its environment reads as empty.
    for _ in range(600):
        if processes_with(token):
            break
        subprocess.run(["sleep", "0.1"], check=True)
    assert len(processes_with(token)) == 1
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", str(ROOT / "deploy" / "local" / "guardian.py"), outer], stdin=subprocess.PIPE
    )
    watcher.communicate(timeout=60)  # the test is gone, so its guardian ends what has its mark
    demo.communicate(timeout=60)
    for _ in range(600):
        if not processes_with(token):
            break
        subprocess.run(["sleep", "0.1"], check=True)
    assert not processes_with(token)
