"""Which file commands name that a text advises."""

from __future__ import annotations

from mm2py.command_lines import for_group, with_file

TEXT = "mm2py gaps FILE accept 'A->B:t', mm2py apply FILE --previous, mm2py FILE, the FILE."


def test_the_readers_file_stands_in_all_commands() -> None:
    assert with_file(TEXT, "/etc/mm2.properties") == (
        "mm2py gaps /etc/mm2.properties accept 'A->B:t', mm2py apply /etc/mm2.properties --previous,"
        " mm2py /etc/mm2.properties, the FILE."
    )


def test_what_only_the_group_of_the_flow_may_do_names_its_file() -> None:
    assert for_group(TEXT, "") == TEXT
    other = "OTHER.properties (the file of group g)"
    told = f"mm2py gaps FILE accept 'A->B:t', mm2py apply {other} --previous, mm2py {other}, the FILE."
    assert for_group(TEXT, "g") == told
    assert with_file(told, "mine") == told.replace("gaps FILE", "gaps mine")
