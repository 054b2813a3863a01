"""What a check has found: its state, a sentence and a hint; and what follows for the exit code. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mm2py.checks.table import ROWS, Category

SHOWN_MOST: Final = 3
"""How many names a sentence shows; the others are counted."""


class CheckState(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "not checkable"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check has found about one subject."""

    code: str
    state: CheckState
    subject: str
    """A cluster, such as ``A``, or a flow, such as ``A->B``."""
    sentence: str
    hint: str = ""
    """What to do, in one line; empty unless the state is a warning or a failure."""
    items: tuple[str, ...] = ()
    """All topics or groups that the sentence counts, also those that it does not name."""
    commands: tuple[str, ...] = ()
    """The commands that grant what is missing. More than one if the names do not fit on one line."""
    waits_for: str = ""
    """The cluster whose missing answer made the check not checkable; empty: another reason, or it was checked."""

    @property
    def category(self) -> Category:
        """The heading under which it is shown."""
        return ROWS[self.code].category


def ok(code: str, subject: str, sentence: str, items: Iterable[str] = ()) -> CheckResult:
    """Return the result of a check that passed."""
    return CheckResult(code, CheckState.OK, subject, sentence, items=tuple(items))


def unknown(code: str, subject: str, sentence: str, *, hint: str = "", waits_for: str = "") -> CheckResult:
    """Return the result of a check that could not be made."""
    return CheckResult(code, CheckState.UNKNOWN, subject, sentence, hint, waits_for=waits_for)


def counted(kind: str, names: Sequence[str], *, most: int = SHOWN_MOST) -> str:
    """Return names for a sentence: ``topic orders``, or ``5 topics (a, b, c and 2 more)``."""
    if len(names) == 1:
        return f"{kind} {names[0]}"
    shown = ", ".join(names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} {kind}s ({shown}{more})"


EXIT_OK: Final = 0
EXIT_FOUND: Final = 1


def exit_of_checks(results: Iterable[CheckResult]) -> int:
    """Return the exit code of ``mm2py check``: 0, or 1 if a check failed. Warnings do not fail."""
    return EXIT_FOUND if any(one.state is CheckState.FAILED for one in results) else EXIT_OK


def in_order(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Return results as they are shown: by category and code; what was found first about a code stays first."""
    order = {category: at for at, category in enumerate(Category)}
    return sorted(results, key=lambda one: (order[one.category], one.code))
