"""Which stretches of remote partitions are read together to see who has written there."""

from __future__ import annotations

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.copier import Copier
from mm2py.copying.events import CopySettings, Displaced
from mm2py.copying.planning.steps import TargetRules
from mm2py.copying.positions import Position
from mm2py.kafka.port import ProducerIdentity
from mm2py_connectors.source.recovery.reconciliation import rounds_of
from tests.fakes.shell import DeafShell


def partition(number: int) -> CopiedPartition:
    copier = Copier(f"t-{number}", Position(0), ProducerIdentity(7, 0, "mm2py-test"), CopySettings(1))
    return CopiedPartition("t", "A.t", number, copier, TargetRules(1), DeafShell())


def test_no_stretch_is_forgotten_because_another_one_of_its_partition_came_up_with_it() -> None:
    """The first held a marker of our own; behind the second, which was not looked at, a batch stood twice."""
    one, other = partition(0), partition(1)
    first, second, third = Displaced(10, 11), Displaced(20, 27, sent_before=True), Displaced(5, 6)
    assert list(rounds_of([(one, first), (one, second), (other, third)])) == [
        {one: first, other: third},
        {one: second},
    ]
