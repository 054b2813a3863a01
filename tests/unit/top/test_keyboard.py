"""Which keys bytes are, however they are cut into pieces."""

from __future__ import annotations

import pytest

from mm2py.top.keyboard import KeyReader, KeyTyped, TextPasted


def keys(*pieces: bytes) -> list[str]:
    reader = KeyReader()
    found = [one for piece in pieces for one in reader.take(piece)] + reader.give_up()
    return [one.key if isinstance(one, KeyTyped) else f"pasted {one.text}" for one in found]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"p", ["p"]),
        (b"\x1b[A\x1b[B\x1bOA\x1bOB", ["up", "down", "up", "down"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F\x1b[1~\x1b[4~", ["page-up", "page-down", "home", "end", "home", "end"]),
        (b"\r\n\x7f\b\x15\x0c", ["enter", "enter", "backspace", "backspace", "clear", "redraw"]),
        (b"\x1b", ["escape"]),
        (b"\x1b\x1b", ["escape", "escape"]),
        ("注é".encode(), ["注", "é"]),
        (b"\x01\x02\x1f\x1b[31;5u\x1bx\x1b[<0;3;4M", []),
        (b"\xff", ["\ufffd"]),
        (b"\x1b[200~ticket 4711\ny\x1b[A\x1b[201~q", ["pasted ticket 4711 y [A", "q"]),
    ],
)
def test_keys_are_the_same_in_one_piece_and_byte_by_byte(data: bytes, wanted: list[str]) -> None:
    assert keys(data) == wanted
    assert keys(*(data[at : at + 1] for at in range(len(data)))) == wanted


def test_an_escape_waits_for_what_may_follow_and_is_a_key_if_nothing_does() -> None:
    reader = KeyReader()
    assert reader.take(b"\x1b") == [] and reader.is_waiting
    assert reader.take(b"[A") == [KeyTyped("up")] and not reader.is_waiting
    assert reader.take(b"\x1b") == []
    assert reader.give_up() == [KeyTyped("escape")]
    assert reader.give_up() == []


def test_a_pasted_text_is_no_keys_also_while_its_end_has_not_come() -> None:
    """A pasted line break must not go on to the confirmation, and a pasted y must not confirm."""
    reader = KeyReader()
    assert reader.take(b"\x1b[200~because\ny") == []
    assert reader.give_up() == [], "its end may take a while"
    assert reader.take(b"\n\x1b[201~") == [TextPasted("because y")]
