"""What is said of a topic or a group that a flow leaves out: which pattern decided, and where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.cli.groups import _why_filtered
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.origins import SettingOrigin, origin_of, origins_of_filters
from mm2py.flow import parse_flow
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.status.left_out import why_left_out
from mm2py.topics.filters import PatternList, TopicFilter

A_TO_B = parse_flow("A->B")
FILE = """\
# what we mirror
clusters = A, B
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
A->B.enabled = true
topics.exclude = nothing
A->B.topics.exclude = tmp.*, \\
    secret.*
groups.exclude = batch-.*
"""
STORED = FlowConfig({"topics": "orders,bills", "topics.exclude": "x,secret.*"}, DecidedBy.REST, 4)


@pytest.fixture
def file(tmp_path: Path) -> SettingsFile:
    path = tmp_path / "mm2.properties"
    path.write_text(FILE)
    return read_settings_file(path, None)


def test_a_pattern_is_named_with_its_number_the_key_and_the_line_of_the_file(file: SettingsFile) -> None:
    origins = origins_of_filters(file, A_TO_B, None)
    names = TopicFilter(exclude=("tmp.*", "secret.*"))
    assert why_left_out("secret-7", names, origins) == (
        "Pattern `secret.*` (entry 2 of A->B.topics.exclude, mm2.properties line 7) matches it."
    )
    assert why_left_out("orders", names, origins) == ""


def test_the_default_and_what_is_stored_are_named_as_such(file: SettingsFile) -> None:
    assert why_left_out("a.replica", TopicFilter(), {"topics.exclude": origin_of(file, A_TO_B, "groups")}) == (
        "Pattern `.*\\.replica` of groups (the default) matches it."
    )
    origins = origins_of_filters(file, A_TO_B, STORED)
    names = TopicFilter(("orders", "bills"), ("x", "secret.*"))
    assert why_left_out("bills", TopicFilter(("bills",), ("x", "b.*")), origins) == (
        "Pattern `b.*` (entry 2 of topics.exclude, stored as version 4 by rest) matches it."
    )
    assert why_left_out("other", names, origins) == ("No pattern of topics (stored as version 4 by rest) matches it.")
    assert origins["groups.exclude"] == SettingOrigin("groups.exclude", "the default", is_default=True), (
        "what the file says does not count beside what is stored"
    )


def test_a_group_that_the_settings_leave_out_says_so_to_who_asks_for_it(file: SettingsFile) -> None:
    (settings,) = file.configuration().flows
    assert _why_filtered("__x", file, settings, None) == ""
    assert _why_filtered("batch-1", file, settings, None) == (
        " Pattern `batch-.*` (entry 1 of groups.exclude, mm2.properties line 9) matches it."
    )


def test_the_first_entry_that_matches_decides_and_a_flag_at_the_front_is_for_all() -> None:
    names = PatternList("topics.exclude", ("(?i)secret.*", "tmp|temp", "t.*"))
    found = {name: names.first_match(name) for name in ("SECRET-1", "TEMP", "TABLE", "orders")}
    assert found == {"SECRET-1": 0, "TEMP": 1, "TABLE": 2, "orders": None}


def test_entries_that_are_one_pattern_only_together_do_not_say_which_decided() -> None:
    names = TopicFilter(exclude=("(a", "b)"))
    assert why_left_out("b", names, {}) == "A pattern of topics.exclude matches it."


def test_a_pattern_that_takes_too_long_is_not_waited_for_again() -> None:
    slow = "(a|aa)+"
    names = TopicFilter(exclude=(slow,))
    for _ in range(3):
        assert why_left_out("a" * 60 + "b", names, {}) == "A pattern finds no answer in time. Rewrite it."
