"""Text on a screen: its width, what is cut, and that nothing from outside steers the terminal."""

from __future__ import annotations

import pytest

from mm2py.top.cells import PLAIN_BARS, Ink, Span, cut, fitted, padded, sparkline, text_of_line, width_of, wrapped
from mm2py.top.painting import ENTER, LEAVE, painted

ATTACK = "orders\x1b[2J\x1b]0;owned\x07\r\n\x9b31m\u202egnp"


def test_a_text_from_outside_is_made_printable_before_it_is_measured_or_shown() -> None:
    for shown in (Span(ATTACK).text, cut(ATTACK, 200), padded(ATTACK, 200), *wrapped(ATTACK, 200, 3)):
        assert shown.isprintable() and shown.startswith("orders\\x1b[2J")
    text = painted([(Span(ATTACK, Ink.BAD),)], None, width=200, colours=True)
    assert text.count("\x1b") == 5, "clear, place, red, plain, clear the rest: all are ours"
    assert not any(char in text for char in "\x07\r\n\x9b\u202e")


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("orders", 6, "orders"),
        ("orders", 5, "orde…"),
        ("orders", 0, ""),
        ("注文", 4, "注文"),
        ("注文", 3, "注…"),
        ("注文", 2, "…"),
        ("cafe\u0301s", 5, "cafe\u0301s"),
    ],
)
def test_what_has_no_room_is_cut_by_cells_and_not_by_characters(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert width_of(padded(text, width)) == width


def test_lines_break_at_blanks_and_the_last_one_is_cut() -> None:
    assert wrapped("not safe to fail over", 8, 9) == ["not safe", "to fail", "over"]
    assert wrapped("not safe to fail over", 8, 2) == ["not safe", "to fail…"]
    assert wrapped("a-name-without-any-blank", 8, 9) == ["a-name-w", "ithout-a", "ny-blank"]
    assert wrapped("one two", 5, 9, indent="  ") == ["one", "  two"]
    assert wrapped("", 5, 9) == []


def test_a_line_of_several_spans_keeps_to_the_width() -> None:
    assert text_of_line(fitted((Span("lag 12"), Span(" ▁▂▃", Ink.FAINT)), 8)) == "lag 12 …"


def test_a_chart_shows_zero_low_what_is_small_higher_and_a_dot_where_nothing_is_known() -> None:
    assert sparkline([0, 1, 50, 100, None, 0]) == "▁▂▅█·▁"
    assert sparkline([0.0, None, 0.0]) == "▁·▁"
    assert sparkline([None, float("nan"), float("inf")]) == "···"
    assert sparkline([0, None, 100], PLAIN_BARS) == "_ #"
    assert sparkline([]) == ""


def test_only_lines_that_changed_are_written_again() -> None:
    before = [(Span("one"),), (Span("two"),)]
    assert painted(before, before, width=40, colours=True) == ""
    assert painted([before[0], (Span("2"),)], before, width=40, colours=True) == "\x1b[2;1H2\x1b[K"
    assert painted([before[0], (Span("2"),)], before, width=1, colours=True) == "\x1b[2;1H2", "it has no rest"
    whole = painted(before, None, width=40, colours=True)
    assert whole.startswith("\x1b[2J") and "one" in whole and "two" in whole


def test_without_colours_there_are_none_and_the_selected_row_still_shows() -> None:
    lines = [(Span(ink.value, ink),) for ink in Ink]
    assert "\x1b[1;31m" in painted(lines, None, width=40, colours=True)
    plain = painted(lines, None, width=40, colours=False)
    assert not any(f"\x1b[{code}m" in plain for code in ("2", "31", "32", "33", "1;31"))
    assert "\x1b[7mchosen" in plain


def test_what_is_switched_on_for_the_screen_is_switched_off_behind_it() -> None:
    for mode in ("?1049", "?2004"):
        assert f"{mode}h" in ENTER and f"{mode}l" in LEAVE
    for mode in ("?25", "?7"):
        assert f"{mode}l" in ENTER and f"{mode}h" in LEAVE
