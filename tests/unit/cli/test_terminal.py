"""The whole screen of a real pseudo-terminal: taken, drawn on, and given back however it ends."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.real_time

PROGRAM = """
import os, sys, termios
from mm2py.cli.terminal import FullScreen, full_screen
from mm2py.top.cells import Span
before = termios.tcgetattr(0)
try:
    terminal = FullScreen(colours=True)
    with full_screen(terminal):
        print("noise of a library", file=sys.stderr)
        during = termios.tcgetattr(0)
        terminal.draw([(Span("shown"),)], 80)
        {action}
except RuntimeError:
    print("it failed")
after = termios.tcgetattr(0)
print("echo", bool(during[3] & termios.ECHO), "restored", before == after)
"""


def run_on_terminal(action: str) -> str:
    """Run the program on a terminal of its own; return all that was written to it."""
    outer, inner = pty.openpty()
    ended = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(action=action)],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(inner)
    text = b""
    try:
        while data := os.read(outer, 65_536):
            text += data
    except OSError:  # the program has ended
        pass
    finally:
        os.close(outer)
    assert ended.wait() == 0, text
    return text.decode()


@pytest.mark.parametrize("action", ["pass", "raise RuntimeError", "terminal.leave(); terminal.enter()"])
def test_the_terminal_is_as_before_however_the_block_ends(action: str) -> None:
    text = run_on_terminal(action)
    assert "echo False restored True" in text
    assert text.count("\x1b[?1049h") == text.count("\x1b[?1049l") >= 1
    assert text.rindex("\x1b[?1049l") > text.index("shown")
    assert ("it failed" in text) == ("raise" in action)


def test_what_others_write_meanwhile_does_not_tear_the_screen_and_comes_behind_it() -> None:
    text = run_on_terminal("pass")
    assert text.index("noise of a library") > text.rindex("\x1b[?1049l")
    assert text.count("noise of a library") == 1
