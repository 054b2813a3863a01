"""What a local verification shows: a bar on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import io
import os

import pytest

from mm2py.backfill.verifying.local.display import LocalDisplay
from mm2py.backfill.verifying.local.forecast import progress_bar, progress_line


class TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_bar_is_drawn_again_and_again_and_makes_room_for_lines(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    terminal = TerminalStream()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((30, 20)))
    display = LocalDisplay()
    assert display.shown is progress_bar
    assert display.sink.every_s < 1
    display.sink.show("[###  ] 60%, and more than a line has room for")
    display.sink.tell("this takes long")
    assert terminal.getvalue() == "\r[###  ] 60%, and more than a " + "\r" + 29 * " " + "\r"
    assert capfd.readouterr().err == "mm2py: this takes long\n"


def test_elsewhere_there_is_a_line_a_minute(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    display = LocalDisplay()
    assert (display.shown, display.sink.every_s) == (progress_line, 60)
    display.sink.show("compared 1 of 2 ranges")
    display.clear()
    assert capfd.readouterr().err == "mm2py: compared 1 of 2 ranges\n"
