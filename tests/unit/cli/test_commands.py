"""The table of commands: names of two words, and what a command line that is none is answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2py.cli.commands import COMMANDS, command_named, find, overview
from mm2py.command_lines import with_file
from mm2py.errors import ConfigError

CHECK = command_named("dr check")
LATER = replace(CHECK, name="dr later")
TABLE = (*COMMANDS, LATER)


@pytest.mark.parametrize(
    ("arguments", "command", "behind"),
    [
        (["dr", "later", "F", "A->B"], LATER, ["F", "A->B"]),
        (["dr", "check"], CHECK, []),
        (["status", "dr", "check"], COMMANDS[0], ["dr", "check"]),
        (["mm2.properties", "--workers", "2"], None, ["mm2.properties", "--workers", "2"]),
        ([], None, []),
    ],
)
def test_a_command_line_begins_with_the_longest_name(arguments: list[str], command: object, behind: list[str]) -> None:
    assert find(arguments, TABLE) == (command, behind)


@pytest.mark.parametrize("arguments", [["dr"], ["dr", "F", "A->B"], ["dr", "--help"]])
def test_half_a_name_names_the_other_halves(arguments: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"mm2py dr takes one of .*, later behind it\. Try mm2py dr \w+ --help"):
        find(arguments, TABLE)


def test_the_overview_has_a_heading_for_each_kind_and_one_column() -> None:
    lines = overview(TABLE).splitlines()
    assert [line for line in lines if line.endswith(":")] == [
        "Look:",
        "Change and repair:",
        "Recover:",
        "With Spark:",
        "Set up:",
    ]
    assert {line.index(one.summary) for line in lines for one in TABLE if f"mm2py {one.name} " in line} == {24}


def test_advice_of_two_words_gets_the_readers_file() -> None:
    assert with_file("Run mm2py dr cutover FILE 'A->B'.", "a.properties") == "Run mm2py dr cutover a.properties 'A->B'."
