"""Shows on standard error what a local verification does: a bar on a terminal, elsewhere a line a minute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mm2py.backfill.verifying.local.forecast import LocalProgress, progress_bar, progress_line
from mm2py.backfill.verifying.progress import ProgressSink
from mm2py.output import TerminalLine, say

DRAWN_EVERY_S: Final = 0.5
SAID_EVERY_S: Final = 60.0


class LocalDisplay:
    """The bar, and the lines that stay above it."""

    def __init__(self) -> None:
        self._line = TerminalLine()
        is_terminal = self._line.is_terminal
        self.shown: Callable[[LocalProgress], str] = progress_bar if is_terminal else progress_line
        self.sink = ProgressSink(
            self.tell,
            self._line.write if is_terminal else say,
            DRAWN_EVERY_S if is_terminal else SAID_EVERY_S,
        )

    def tell(self, text: str) -> None:
        """Write a line that stays."""
        self.clear()
        say(text)

    def clear(self) -> None:
        """Remove the bar."""
        self._line.clear()
