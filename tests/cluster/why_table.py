"""The causes of docs/why.md, and whether an answer of ``mm2py why`` is the one that stands there.

A cell of the table is what the answer says, word for word; ``…`` stands for what differs: names, numbers, times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from tests.cluster.running import PATIENCE, ROOT, wait_until

PAGE: Final = ROOT / "docs" / "why.md"
_ROW: Final = re.compile(r"^\| (`[a-z0-9-]+`.*) \|$", re.MULTILINE)
_CELLS: Final = re.compile(r" *(?<!\\)\| *")


class WhyRow(NamedTuple):
    """One row of the table."""

    reason: str
    """Empty: the answer has no reason, since it is replicated, or not known whether."""
    says: str
    remedy: str

    def is_in(self, answer: Mapping[str, Any]) -> bool:
        """Return whether an answer says all that stands in the row."""
        found = (_pattern(cell).search(answer["text"]) for cell in (self.says, self.remedy) if cell)
        return answer["reason"] == self.reason and all(found)


@cache
def rows() -> Mapping[str, WhyRow]:
    """Return the rows of the page by their causes."""
    text = PAGE.read_text().partition("## The causes")[2].partition("\n## ")[0]
    found = [_CELLS.split(line) for line in _ROW.findall(text)]
    assert len({cause for cause, *_ in found}) == len(found), "a cause stands twice"
    return {cause.strip("`"): WhyRow(reason.strip("`"), says, remedy) for cause, reason, says, remedy in found}


def wait_for_cause(cause: str, ask: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Ask until the answer is the one of this cause, which is never that all is replicated, and return it."""
    row, answer = rows()[cause], {}

    def told() -> bool:
        answer.clear()
        answer.update(ask())
        return row.is_in(answer)

    try:
        wait_until(told, f"why tells {cause}: {row}", deadline_s=90.0 * PATIENCE)
    except AssertionError as error:
        raise AssertionError(f"{error}; it said {answer}") from None
    return answer


def _pattern(cell: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, cell.replace("\\|", "|").split("…"))), re.DOTALL)
