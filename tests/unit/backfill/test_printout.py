"""The progress bar of a backfill: on a terminal it tells rate and time left, elsewhere nothing."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pytest

from mm2py.cli.backfill_printout import Progress


@dataclass
class Clock:
    now_s: float = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def boottime(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch, *, bytes_an_offset: float | None = None) -> list[str]:
    monkeypatch.setattr("sys.stderr", terminal)
    clock = Clock()
    with Progress(clock) as progress:
        for number in range(4):
            clock.now_s = float(number)
            progress.show(number * 250_000, 1_000_000, bytes_an_offset=bytes_an_offset)
    return terminal.getvalue().split("\r")


def test_a_bar_tells_part_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, last = shown(Terminal(), monkeypatch, bytes_an_offset=200.0)
    assert last.strip().startswith("[######################        ]  75.0%  750,000 of 1,000,000 offsets")
    assert "250,000/s, 50 MB/s, 1 s left" in last
    assert last.endswith("\n")


def test_without_the_right_to_ask_for_sizes_there_is_no_rate_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, last = shown(Terminal(), monkeypatch)
    assert "250,000/s, 1 s left" in last


def test_what_is_no_terminal_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), monkeypatch) == [""]
