"""One event a line, readable by a person or a machine, whatever strangers put into names and messages."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.typing import FilteringBoundLogger

from mm2py.logs import LEVELS, LogFormat, level_of, make_logger, set_level

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")


def logged(log_format: LogFormat, event: str = "topic.refused", level: str = "info", **fields: Any) -> str:
    """Return what one event becomes."""
    out = io.StringIO()
    make_logger(level, log_format, out).error(event, **fields)
    return out.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(event: str, **fields: Any) -> str:
    """Return what one event becomes on a terminal."""
    out = Terminal()
    make_logger("info", "text", out).warning(event, **fields)
    return out.getvalue()


def text_after_time(line: str) -> str:
    time, _, rest = line.partition(" ")
    assert TIMESTAMP.fullmatch(time)
    return rest


def test_a_text_line_begins_with_time_level_and_event() -> None:
    line = logged("text", flow="A->B", topic="orders", why="Topic orders is refused.", partitions=3)
    assert (
        text_after_time(line)
        == 'ERROR   topic.refused flow=A->B topic=orders why="Topic orders is refused." partitions=3\n'
    )


def test_a_json_line_has_the_same_fields_with_their_types() -> None:
    fields = json.loads(logged("json", flow="A->B", partitions=3, degraded=None, lag_s=1.5))
    assert TIMESTAMP.fullmatch(fields.pop("timestamp"))
    assert fields == {
        "event": "topic.refused",
        "level": "error",
        "flow": "A->B",
        "partitions": 3,
        "degraded": None,
        "lag_s": 1.5,
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_commands_that_a_line_advises_name_the_file_of_the_worker(log_format: LogFormat) -> None:
    out = io.StringIO()
    log = make_logger("info", log_format, out, file="/etc/mm2.properties")
    log.warning("gap", why="Let it go on with mm2py gaps FILE accept t.", remedy="mm2py apply FILE", partitions=3)
    assert "mm2py gaps /etc/mm2.properties accept t." in out.getvalue()
    assert "mm2py apply /etc/mm2.properties" in out.getvalue()


def test_a_flow_bound_once_stands_in_every_line() -> None:
    out = io.StringIO()
    log = make_logger("info", "json", out).bind(flow="A->B")
    log.info("one")
    log.warning("two", flow="B->A")
    assert [json.loads(line)["flow"] for line in out.getvalue().splitlines()] == ["A->B", "B->A"]


@pytest.mark.parametrize("number", range(len(LEVELS)))
def test_levels_below_the_wanted_one_are_left_out(number: int) -> None:
    out = io.StringIO()
    log = make_logger(LEVELS[number], "json", out)
    for level in LEVELS:
        getattr(log, level)("event")
    assert [json.loads(line)["level"] for line in out.getvalue().splitlines()] == list(LEVELS[number:])


HOSTILE = [
    "two\nlines",
    "carriage\rreturn",
    "\x1b[31mred\x1b[0m",
    "\x00",
    "tab\there",
    "\u2028",
    "\u202egnp.exe",
    "\x85",
    "\ud800",
]


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_nobody_elses_text_breaks_a_line_or_moves_a_cursor(log_format: LogFormat, hostile: str) -> None:
    """S20."""
    line = logged(log_format, why=f"The broker said {hostile}!")
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    line.encode()


@given(why=st.text(), topic=st.text())
def test_json_gives_back_any_text_as_it_was(why: str, topic: str) -> None:
    line = logged("json", why=why, topic=topic)
    fields = json.loads(line)
    assert (fields["why"], fields["topic"]) == (why, topic)
    assert line.count("\n") == 1


@given(why=st.text(), topic=st.text())
def test_text_stays_one_printable_line_with_any_text(why: str, topic: str) -> None:
    assert logged("text", why=why, topic=topic)[:-1].isprintable()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "x=plain"),
        ("", 'x=""'),
        ("two words", 'x="two words"'),
        ('say "no"', r'x="say \"no\""'),
        ('"', r'x="\""'),
        ("a=b", 'x="a=b"'),
        (5, "x=5"),
        (None, "x=None"),
    ],
)
def test_text_values_can_be_told_apart(value: object, shown: str) -> None:
    """A topic named ``a level=error`` must not look like two fields."""
    assert text_after_time(logged("text", x=value)) == f"ERROR   topic.refused {shown}\n"


def test_a_crash_carries_its_trace() -> None:
    def crash(log: FilteringBoundLogger) -> None:
        try:
            raise ZeroDivisionError("division by zero")
        except ZeroDivisionError:
            log.exception("flow.crashed", why="x")

    out = io.StringIO()
    crash(make_logger("info", "json", out))
    (line,) = out.getvalue().splitlines()
    assert "Traceback" in json.loads(line)["exception"]
    out = io.StringIO()
    crash(make_logger("info", "text", out))
    assert "ZeroDivisionError: division by zero" in out.getvalue()


def test_a_trace_shows_no_variables_because_they_may_hold_secrets() -> None:
    def crash(log: FilteringBoundLogger, password: str) -> None:
        try:
            raise ValueError("bad")
        except ValueError:
            log.exception("flow.crashed", why="x")

    for log_format in ("text", "json"):
        out = io.StringIO()
        crash(make_logger("debug", log_format, out), "canary-4711")
        assert "canary-4711" not in out.getvalue()


def test_a_level_that_is_changed_counts_for_all_loggers_of_the_process_at_once() -> None:
    out = io.StringIO()
    log = make_logger("info", "json", out)
    bound, other = log.bind(flow="A->B"), make_logger("info", "json", out)
    for level in LEVELS:
        set_level(bound, level)
        assert (level_of(log), level_of(bound), level_of(other)) == (level, level, "info")
        bound.debug(f"debug at {level}")
        log.bind(later=True).warning(f"warning at {level}")
    other.debug("of another make_logger")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == [
        "debug at debug",
        "warning at debug",
        "warning at info",
        "warning at warning",
    ]


LONG = {"worker": "host-1", "difference": "x" * 900, "why": "It is not empty.", "topic": "orders", "flow": "A->B"}


def test_on_a_terminal_a_line_is_short_and_what_to_do_stands_on_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lines of 700 characters hid what to do at their end."""
    monkeypatch.setenv("NO_COLOR", "1")
    first, second = shown("topic.refused", remedy="Grant READ on orders. " * 20, **LONG).splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d WARNING topic\.refused flow=A->B topic=orders why=.*", first)
    assert 'why="It is not empty."' in first and "x…" in first and len(first) < 320
    assert second.strip() == "To do: " + ("Grant READ on orders. " * 20).strip()
    many = shown("event", **{f"field-{number}": "y" * 90 for number in range(9)})
    assert many.endswith("… 6 more\n") and len(many) < 400


def test_a_terminal_is_coloured_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[33mWARNING\x1b[0m" in shown("event", remedy="Do.") and "\x1b" not in logged("text", remedy="Do.")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown("event", remedy="Do.")


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_nobody_elses_text_colours_a_terminal_or_makes_a_line(hostile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    lines = shown("event", why=f"said {hostile}!", remedy=f"do {hostile}!").splitlines()
    assert len(lines) == 2 and all(line.isprintable() for line in lines)


def test_json_is_whole_on_a_terminal_too() -> None:
    out = Terminal()
    make_logger("info", "json", out).warning("event", **LONG)
    assert {key: value for key, value in json.loads(out.getvalue()).items() if key in LONG} == LONG
