"""A copier that a gap stalls says so once all that was sent before is settled, and where it goes on then."""

from __future__ import annotations

import pytest

from mm2py.copying.copier import Copier
from mm2py.copying.events import (
    Acked,
    CopySettings,
    Diverged,
    Drain,
    GapFound,
    Need,
    OperatorNotice,
    ProduceLost,
    ProduceRefused,
    Reconciled,
    SourceRewritten,
    TargetLost,
    UnexpectedMet,
)
from mm2py.copying.in_flight import Sending
from mm2py.copying.positions import Position
from mm2py.copying.states import Drained, Stopped
from mm2py.kafka.port import ProducerIdentity
from mm2py.records.gap_record import GapKind
from tests.unit.copying.test_copier import batches, copying, fetched, send_all

NEWER = ProducerIdentity(8, 0, "mm2py-test.1")


def two_on_their_way() -> tuple[Copier, Sending, Sending]:
    """A copier that has 0 to 9 acknowledged, and 10 to 29 on their way."""
    copier = copying()
    copier.handle(fetched(copier, batches(0, 3)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    second, third = send_all(copier)
    return copier, second, third


def gaps(effects: object) -> list[tuple[str, int | None, int]]:
    assert isinstance(effects, (list, tuple))
    return [(str(one.kind), one.last_offset, one.go_on_at) for one in effects if isinstance(one, GapFound)]


def test_a_gap_is_reported_when_the_batches_in_flight_are_acknowledged() -> None:
    copier, second, third = two_on_their_way()
    assert copier.handle(Diverged(3, 25)) == ()
    assert type(copier.state) is Stopped and copier.has_untold_gaps
    assert copier.handle(Acked(second.token, 10, 0.0)) == ()
    assert gaps(copier.handle(Acked(third.token, 20, 0.0))) == [("truncated", 29, 25)]
    assert not copier.has_untold_gaps and copier.position.source_offset == 30
    assert not copier.is_unsettled


def test_what_was_surely_refused_leaves_nothing_to_look_up() -> None:
    copier, second, third = two_on_their_way()
    copier.handle(UnexpectedMet("somebody"))
    copier.handle(Acked(second.token, 10, 0.0))
    assert gaps(copier.handle(ProduceRefused(third.token, 19, None, 0.0))) == [("foreign-records", None, 20)]
    assert not copier.is_unsettled


@pytest.mark.parametrize("stored", [10, 20, 30])
def test_unknown_outcomes_are_looked_up_before_the_gap_is_reported(stored: int) -> None:
    copier, second, third = two_on_their_way()
    copier.handle(Diverged(3, 25))
    copier.handle(ProduceLost(second.token, "reset", 0.0))
    assert Need.RECONCILE in copier.handle(ProduceLost(third.token, "reset", 0.0))
    assert copier.has_untold_gaps and copier.is_unsettled
    effects = copier.handle(Reconciled(NEWER, Position(stored, target_offset=stored)))
    assert gaps(effects) == [("truncated", 29, min(stored, 25))]
    assert Need.STORE_POSITION in effects, "it names who may write from now on"
    assert (type(copier.state), copier.identity, copier.position.source_offset) == (Stopped, NEWER, stored)
    assert not copier.is_unsettled


def test_a_gap_found_during_the_lookup_of_a_previous_incarnation_waits_for_its_end() -> None:
    copier = Copier("t-0", Position(10, target_offset=10), NEWER, CopySettings(100), lookup="it is looked up")
    assert copier.handle(UnexpectedMet("somebody")) == ()
    assert gaps(copier.handle(Reconciled(NEWER, Position(14, target_offset=15)))) == [("foreign-records", None, 14)]


def test_a_gap_that_a_previous_incarnation_reported_is_reported_at_once() -> None:
    copier = Copier("t-0", Position(10, target_offset=10), NEWER, CopySettings(100), lookup="it is looked up")
    assert gaps(copier.handle(UnexpectedMet("somebody", is_known=True))) == [("foreign-records", None, 10)]
    assert type(copier.state) is Stopped and not copier.has_untold_gaps


def test_where_what_was_copied_is_rewritten_it_goes_on_at_the_first_of_those() -> None:
    copier, second, third = two_on_their_way()
    copier.handle(UnexpectedMet("somebody"))
    copier.handle(ProduceLost(second.token, "reset", 0.0))
    copier.handle(ProduceLost(third.token, "reset", 0.0))
    effects = copier.handle(SourceRewritten(18, 20))
    assert gaps(effects) == [("foreign-records", None, 18), ("truncated", 20, 18)]


def test_a_target_that_is_short_when_it_is_looked_up_is_not_looked_up_for_ever() -> None:
    copier, second, third = two_on_their_way()
    copier.handle(UnexpectedMet("somebody"))
    copier.handle(ProduceLost(second.token, "reset", 0.0))
    copier.handle(ProduceLost(third.token, "reset", 0.0))
    effects = copier.handle(TargetLost(10, 6))
    assert [kind for kind, _, _ in gaps(effects)] == [GapKind.FOREIGN, GapKind.TARGET_TRUNCATED]
    assert Need.RECONCILE not in effects and copier.is_unsettled


def test_a_hole_in_the_copy_does_not_hide_what_the_target_has_lost() -> None:
    """The batch behind the hole makes the log as long as it should be: the next life would miss nothing."""
    copier, second, third = two_on_their_way()
    copier.handle(Diverged(3, 5))
    copier.handle(TargetLost(10, 6))
    assert not gaps(copier.handle(ProduceRefused(second.token, 19, None, 0.0)))
    effects = [*copier.handle(Acked(third.token, 6, 0.0))]
    assert [effect.event for effect in effects if isinstance(effect, OperatorNotice)] == ["target.out_of_order"]
    assert gaps(effects) == [("target-truncated", 9, 10)]
    assert copier.position.target_offset == 10 and not copier.has_untold_gaps


def test_a_position_never_holds_what_the_target_has_lost() -> None:
    """Stored while answers were still to come, the next life would have found the log to end where it should."""
    copier, second, third = two_on_their_way()
    copier.handle(TargetLost(10, 6))
    assert (copier.position.target_offset, copier.real_position.target_offset) == (10, 6)
    assert copier.handle(Acked(second.token, 4, 0.0)) == (), "it has lost two more"
    assert (copier.position.target_offset, copier.real_position.target_offset) == (20, 14)
    assert Need.RECONCILE in copier.handle(ProduceLost(third.token, "reset", 0.0))
    effects = copier.handle(Reconciled(NEWER, Position(30, target_offset=24)))
    assert gaps(effects) == [("target-truncated", 9, 30), ("target-truncated", 9, 30)]
    assert copier.position.target_offset == copier.real_position.target_offset == 30


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_drain_says_what_it_knows_of_a_gap(is_lost: bool) -> None:
    copier, second, third = two_on_their_way()
    copier.handle(Diverged(3, 15))
    copier.handle(Drain())
    copier.handle(Acked(second.token, 10, 0.0))
    last = ProduceLost(third.token, "reset", 0.0) if is_lost else Acked(third.token, 20, 0.0)
    assert gaps(copier.handle(last)) == [("truncated", 29, 15)]
    assert type(copier.state) is Drained
    assert copier.is_unsettled is is_lost
