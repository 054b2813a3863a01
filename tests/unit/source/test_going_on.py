"""The ways out that a refusal offers: none of them destroys, and what goes on behind the present copy comes first."""

from __future__ import annotations

import json
import re

import pytest

from mm2py.connector_offsets.offsets_body import read_offsets
from mm2py.errors import Mm2Error
from mm2py.flow import Kind, parse_flow
from mm2py_connectors.source.going_on import requests
from mm2py_connectors.source.refusals import CopyUncertain, Recreated, TargetNotEmpty, WouldComeBack

FLOW = parse_flow("B->A")


def body_in(text: str, last: str) -> object:
    (found,) = re.findall(r"offsets with (\{.*?\}\]\})", text)
    return json.loads(found.replace(":N}", f":{last}}}"))


@pytest.mark.parametrize("at", [0, 1, 42])
def test_the_request_sets_where_the_partition_goes_on(at: int) -> None:
    wanted = read_offsets(body_in(requests(FLOW, "idt", 3, at), "N"), Kind.SOURCE, FLOW.source)
    assert wanted == {("idt", 3): at - 1 if at else None}
    wanted = read_offsets(body_in(requests(FLOW, "N", 3), "7"), Kind.SOURCE, FLOW.source)
    assert wanted == {("N", 3): 7}


def test_a_topic_of_the_same_name_is_never_to_be_deleted_or_copied_again() -> None:
    error = TargetNotEmpty(FLOW, "idt", "idt", {1: 12, 0: 7})
    assert "partition(s) 0, 1, and idt on A is not empty there." in error.what
    assert error.remedy.startswith("Do not delete it: it may hold records that are nowhere else. Go on behind what is")
    assert "mm2py translate FILE 'A->B' --topic idt --partition 0 --offset 7 answers" in error.remedy
    assert "recopy" not in error.remedy


def test_a_copy_can_be_told_by_its_name_and_copying_again_is_offered_last() -> None:
    error = TargetNotEmpty(FLOW, "orders", "B.orders", {2: 12})
    assert "mm2py translate FILE 'B->A' --topic orders --partition 2 --offset 12 --reverse answers" in error.remedy
    assert error.remedy.index("/connectors/B->A.MirrorSourceConnector/offsets") < error.remedy.index("--allow-recopy")
    assert "If none of the records there came from orders, pass --allow-recopy 'B->A:orders'" in error.remedy


def test_who_turns_a_direction_round_asks_the_first_flow_with_a_file_that_knows_it() -> None:
    """The story: two files call the clusters otherwise. The refusal named one that has no clusters of these names."""
    same = WouldComeBack(FLOW, "idt", parse_flow("A->B"), "g", has_begun=True)
    assert "mm2py translate FILE 'A->B' --topic idt" in same.remedy and "OTHER" not in same.remedy
    other = WouldComeBack(FLOW, "idt", parse_flow("x->y"), "g", has_begun=True)
    assert "mm2py translate OTHER.properties 'x->y' --topic idt" in other.remedy
    assert "mm2py rebuild-ledger FILE 'B->A' --topic idt" in other.remedy
    assert other.remedy.endswith(" OTHER.properties is the file of flow x->y of group g.")


@pytest.mark.parametrize("remote", ["idt", "B.idt"])
def test_no_refusal_offers_to_delete_and_each_goes_on_behind_what_is_there_first(remote: str) -> None:
    errors: list[Mm2Error] = [
        TargetNotEmpty(FLOW, "idt", remote, {0: 7}),
        Recreated(FLOW, "idt", remote, "it was deleted and recreated upstream", partition=4),
        CopyUncertain(FLOW, "idt", 4, "records look the same"),
    ]
    for error in errors:
        assert "Delete" not in str(error)
        again = re.search(r"--allow-recopy|gaps FILE accept|support=disabled", error.remedy)
        assert "offsets with" in error.remedy[: None if again is None else again.start()]
    assert all('"partition":4' in error.remedy for error in errors[1:])
