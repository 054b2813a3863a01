"""Secrets cannot be shown by accident (S05, S06), and what others say is searched for them."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import pickle
import traceback

import pytest

from mm2py.logs import make_logger
from mm2py.secret import Secret, shown_name, without


@dataclasses.dataclass(frozen=True)
class Holder:
    name: str
    password: Secret


CANARY = "canary-7f3a"
HOLDER = Holder("anna", Secret(CANARY))


@pytest.mark.parametrize(
    "shown",
    [
        repr(HOLDER.password),
        str(HOLDER.password),
        f"{HOLDER.password}",
        f"{HOLDER.password:>40}",
        f"{HOLDER.password!r:.6}",
        "%s %r" % (HOLDER.password, HOLDER),  # noqa: UP031
        repr(HOLDER),
        repr([HOLDER]),
        repr(dataclasses.asdict(HOLDER)),
        json.dumps(dataclasses.asdict(HOLDER), default=str),
        repr(copy.deepcopy(HOLDER)),
    ],
)
def test_no_way_of_printing_shows_a_secret(shown: str) -> None:
    assert CANARY not in shown
    assert "hid" in shown


def test_a_secret_is_neither_pickled_nor_taken_for_json() -> None:
    for write in (pickle.dumps, json.dumps):
        with pytest.raises(TypeError):
            write(HOLDER.password)
    for give_away in (HOLDER.password.__getstate__, HOLDER.password.__reduce__):
        with pytest.raises(TypeError):
            give_away()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_log_shows_no_secret_that_it_is_handed(log_format: str) -> None:
    stream = io.StringIO()
    log = make_logger("debug", "json" if log_format == "json" else "text", stream)
    try:
        raise ValueError(HOLDER, HOLDER.password)
    except ValueError:
        log.exception("broken", password=HOLDER.password, holder=HOLDER)
        assert CANARY not in traceback.format_exc()
    assert "[hidden]" in stream.getvalue()
    assert CANARY not in stream.getvalue()


def test_secrets_are_compared_by_their_text() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert not Secret("")
    assert Secret("é") == Secret("é")
    assert Secret("a\ud801") == Secret("a\ud801")
    assert Secret("a\ud801") != Secret("a\ud802"), "half a character is told as a problem of the file, and no crash"
    assert Secret("geheim").reveal() == "geheim"


def test_what_others_say_is_freed_of_secrets() -> None:
    secrets = (Secret("pass"), Secret("password"), Secret(""))
    assert without("user anna, password, pass", secrets) == "user anna, [hidden], [hidden]"


def test_a_name_is_repeated_unless_it_is_as_long_as_a_token() -> None:
    assert shown_name("A->B.MirrorSourceConnector") == "A->B.MirrorSourceConnector"
    assert shown_name("a.b\n\x1b[2J") == "a.b\\n\\x1b[2J"
    assert shown_name("x." * 200) == "x." * 124 + "x…"
    assert "0123" not in shown_name("orders-" + "0123456789abcdef" * 2)
