"""A table on a screen: columns without room are left out, and the rows around the selected one are shown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from mm2py.top.cells import Ink, ScreenLine, Span, cut, line, padded, width_of

T = TypeVar("T")
GAP: Final = 2
MARK: Final = "> "
"""Stands before the selected row."""
LEAST: Final = 8
"""A column that is not aligned to the right may be cut to this width before others are left out."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column. Of those that have no room together, the ones with the highest ``rank`` are left out."""

    head: str
    rank: int
    is_right: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: a text for each column, and how it looks."""

    cells: Sequence[str]
    ink: Ink = Ink.PLAIN


def table_lines(
    columns: Sequence[TableColumn],
    items: Sequence[T],
    row_of: Callable[[T], TableRow],
    width: int,
    most: int,
    *,
    selected: int | None = None,
) -> list[ScreenLine]:
    """Return the head and the rows around the selected one.

    Args:
        row_of: makes a row of an item. There may be thousands of items; it is called for those that are shown.
        most: how many lines there are room for.
        selected: the number of the selected row; None: none is, and the first rows are shown.
    """
    if most < 1:
        return []
    room = most - 1
    first = 0 if selected is None else max(0, min(selected - room // 2, len(items) - room))
    shown = [row_of(item) for item in items[first : first + room]]
    heads = [column.head for column in columns]
    if shown and len(shown) < len(items):
        heads[0] += f" {first + 1}-{first + len(shown)}/{len(items)}"
    kept, widths = _fitting(columns, heads, shown, width - (0 if selected is None else len(MARK)))
    blank = "" if selected is None else " " * len(MARK)
    lines = [line(cut(blank + _joined(heads, columns, kept, widths), width), Ink.STRONG)]
    for at, row in enumerate(shown, first):
        text = _joined(row.cells, columns, kept, widths)
        if selected is None:
            lines.append(line(text, row.ink))
        elif at == selected:
            lines.append(line(padded(MARK + text, width), Ink.CHOSEN))
        else:
            lines.append((Span(blank), Span(text, row.ink)))
    return lines


def _fitting(
    columns: Sequence[TableColumn], heads: Sequence[str], rows: Sequence[TableRow], width: int
) -> tuple[list[int], dict[int, int]]:
    """Return which columns are shown, and how wide each is."""
    wanted = {
        at: max([width_of(heads[at]), *(width_of(cut(row.cells[at], width)) for row in rows)])
        for at in range(len(columns))
    }
    kept = list(range(len(columns)))
    while len(kept) > 1 and sum(_least(columns[at], wanted[at]) for at in kept) + GAP * (len(kept) - 1) > width:
        kept.remove(max(kept, key=lambda at: columns[at].rank))
    widths = {at: wanted[at] for at in kept}
    over = sum(widths.values()) + GAP * (len(kept) - 1) - width
    while over > 0:  # the widest gives first
        widest = max(
            (at for at in kept if widths[at] > _least(columns[at], wanted[at])), key=widths.__getitem__, default=-1
        )
        if widest < 0:
            break
        widths[widest] -= 1
        over -= 1
    return kept, widths


def _least(column: TableColumn, wanted: int) -> int:
    return wanted if column.is_right else min(wanted, max(LEAST, width_of(column.head)))


def _joined(cells: Sequence[str], columns: Sequence[TableColumn], kept: Sequence[int], widths: dict[int, int]) -> str:
    return (" " * GAP).join(padded(cells[at], widths[at], right=columns[at].is_right) for at in kept).rstrip()
