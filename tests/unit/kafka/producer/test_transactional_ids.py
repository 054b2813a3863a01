"""The names of our producer ids, by which a younger process finds the older ones."""

from __future__ import annotations

import pytest

from mm2py.kafka.producer.fencing import TransactionalId, is_another, parse

GROUP = "mm2.py-1"
OWN = TransactionalId(GROUP, "0123456789ab", 3, "A->B")


@pytest.mark.parametrize("number", [0, 1, 12])
@pytest.mark.parametrize("flow", ["A->B", "a-1.2->b.3", "1.2-x->y"])
def test_what_an_id_says_is_found_in_it_again(number: int, flow: str) -> None:
    name = OWN._replace(flow=flow, number=number)
    assert parse(str(name), GROUP) == name
    assert str(name).startswith(f"mm2py-{GROUP}-")


def test_the_first_id_of_an_incarnation_looks_as_it_always_did() -> None:
    assert str(OWN) == "mm2py-mm2.py-1-0123456789ab-3-A->B"
    assert OWN.at(2) == "mm2py-mm2.py-1-0123456789ab-3.2-A->B"


def test_a_further_id_is_of_the_same_flow_and_incarnation() -> None:
    further = parse(OWN.at(2), GROUP)
    assert further is not None
    assert further.first == OWN
    assert not is_another(OWN.at(2), OWN)
    assert is_another(OWN._replace(flow="C->B").at(2), OWN)
