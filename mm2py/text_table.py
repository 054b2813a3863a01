"""Tables that commands print. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.secret import printable


def text_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int] = (),
    *,
    most: int | None = None,
    shown_by: str = "--all",
) -> list[str]:
    """Return the lines of a table; none without rows.

    Args:
        right: the columns that are aligned to the right.
        most: how many rows are shown; None: all.
        shown_by: the option that shows all.
    """
    if not rows:
        return []
    shown = [[printable(cell) for cell in row] for row in rows[:most]]
    widths = [max(len(row[at]) for row in [head, *shown]) for at in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [head, *shown]
    ]
    return lines + ([more_lines(len(rows) - len(shown), shown_by)] if len(rows) > len(shown) else [])


def more_lines(count: int, shown_by: str = "--all") -> str:
    """Return the line that says how many rows are not shown."""
    return f"... and {count} more ({shown_by})"
