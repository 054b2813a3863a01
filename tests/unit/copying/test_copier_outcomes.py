"""What a copier does about batches that were sent, and of which nobody knows whether they are stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2py.copying.copier import Copier
from mm2py.copying.events import (
    Acked,
    Drain,
    Need,
    ProduceLost,
    ProduceRefused,
    Reconciled,
    Tick,
    TooOldToResend,
)
from mm2py.copying.in_flight import Sending
from mm2py.copying.planning.steps import Dropped, Outgoing
from mm2py.copying.states import Copying, Drained, Draining, Reconciling
from tests.unit.copying.test_copier import BROKER, batch, copying, fetched, seen_whole, send_all

YOUNG_MS, OLD_MS = 9_000, 1_000
NOW_RETAINED_AFTER_MS, LATER_RETAINED_AFTER_MS = 500, 5_000
NOT_ENOUGH_REPLICAS = 19
INVALID_RECORD = 87


def batch_of(first: int, timestamp_ms: int) -> Outgoing:
    return batch(first, 10)._replace(max_timestamp_ms=timestamp_ms)


def begun() -> Copier:
    """Return a copier that has copied ten records."""
    copier = copying()
    copier.handle(fetched(copier, [batch_of(0, YOUNG_MS)]))
    copier.handle(Acked(send_all(copier)[0].token, 100, 0.0))
    return copier


def lose(copier: Copier, steps: list[Outgoing]) -> list[Sending]:
    """Send batches, none of which is answered, and let the pause be over; they wait to be read again."""
    copier.handle(fetched(copier, steps))
    sent = send_all(copier, NOW_RETAINED_AFTER_MS)
    assert len(sent) == len(steps)
    for each in sent:
        copier.handle(ProduceLost(each.token, "reset", 0.0))
    copier.handle(Tick(1e6))
    seen_whole(copier)
    assert type(copier.state) is Copying
    return sent


@pytest.mark.parametrize(
    ("times", "has_aged"),
    [([YOUNG_MS], False), ([OLD_MS], True), ([YOUNG_MS, OLD_MS], True), ([YOUNG_MS, YOUNG_MS], False)],
    ids=["young", "old by now", "young, and an old one was sent behind it", "two young ones"],
)
@pytest.mark.parametrize("read_together", [True, False])
def test_an_old_batch_of_unknown_outcome_is_looked_up_and_not_sent_again(
    times: list[int], has_aged: bool, read_together: bool
) -> None:
    """It was young enough when it was sent. If the one behind it is stored, the target remembers us by that one."""
    copier = begun()
    steps = [batch_of(10 + 10 * at, time) for at, time in enumerate(times)]
    sent = lose(copier, steps)
    copier.handle(fetched(copier, steps if read_together else steps[:1]))
    again = copier.next_batch(BROKER, LATER_RETAINED_AFTER_MS)
    assert copier.is_too_old_to_resend(LATER_RETAINED_AFTER_MS) == has_aged
    if not has_aged:
        assert again is not None
        assert (again.batch, again.sequence) == (sent[0].batch, sent[0].sequence)
        return
    assert again is None
    assert Need.RECONCILE in copier.handle(TooOldToResend(0.0))
    assert copier.position.source_offset == 10
    assert not copier.wants_fetch
    assert not copier.is_too_old_to_resend(LATER_RETAINED_AFTER_MS), "once is enough"
    assert copier.is_unsettled


def test_a_batch_behind_one_of_unknown_outcome_may_have_any_age() -> None:
    copier = begun()
    young, old = batch_of(10, YOUNG_MS), batch_of(20, OLD_MS)
    lose(copier, [young])
    copier.handle(fetched(copier, [young, old]))
    again = copier.next_batch(BROKER, LATER_RETAINED_AFTER_MS)
    assert again is not None
    copier.handle(Acked(again.token, 110, 0.0))
    alone = copier.next_batch(BROKER, LATER_RETAINED_AFTER_MS)
    assert alone is not None
    assert alone.batch == old


def test_a_batch_that_was_certainly_refused_may_be_sent_again_at_any_age() -> None:
    """A partition lacks replicas for a day: what waits there was never stored, and is sent again without a fence."""
    copier = begun()
    step = batch_of(10, OLD_MS)
    for retained_after_ms in (NOW_RETAINED_AFTER_MS, LATER_RETAINED_AFTER_MS, LATER_RETAINED_AFTER_MS):
        copier.handle(fetched(copier, [step]))
        (sent,) = send_all(copier, retained_after_ms)
        assert sent.sequence == 10
        assert Need.RECONCILE not in copier.handle(ProduceRefused(sent.token, NOT_ENOUGH_REPLICAS, None, 0.0))
        assert Need.RECONCILE not in copier.handle(Tick(1e6))


def test_while_the_is_end_unverified_itself_nothing_is_looked_for_in_it() -> None:
    copier = begun()
    step = batch_of(10, OLD_MS)
    copier.handle(fetched(copier, [step]))
    (sent,) = send_all(copier, NOW_RETAINED_AFTER_MS)
    copier.handle(ProduceLost(sent.token, "reset", 0.0))
    copier.handle(Tick(1e6))
    copier.handle(fetched(copier, [step]))
    assert not copier.is_too_old_to_resend(LATER_RETAINED_AFTER_MS)
    seen_whole(copier)
    assert copier.is_too_old_to_resend(LATER_RETAINED_AFTER_MS)


def test_the_position_does_not_pass_a_batch_of_unknown_outcome_that_was_emptied_meanwhile() -> None:
    """The source's cleaner kept its header alone, and a read ended behind it: it may be stored all the same. From
    behind it the target's records would be counted too far."""
    copier = begun()
    lose(copier, [batch_of(10, YOUNG_MS)])
    assert Need.RECONCILE in copier.handle(fetched(copier, [Dropped(20, 0, "empty", 0)], end=40))
    assert (copier.position.source_offset, type(copier.state)) == (10, Reconciling)


def test_steps_dropped_before_a_batch_of_unknown_outcome_are_passed_as_before() -> None:
    copier = begun()
    step = batch_of(12, YOUNG_MS)
    copier.handle(fetched(copier, [Dropped(12, 2, "aborted", 0), step]))
    (sent,) = send_all(copier, NOW_RETAINED_AFTER_MS)
    copier.handle(ProduceLost(sent.token, "reset", 0.0))
    copier.handle(Tick(1e6))
    seen_whole(copier)
    copier.handle(fetched(copier, [Dropped(12, 2, "aborted", 0)], end=22))
    copier.handle(fetched(copier, [step]))
    assert send_all(copier, NOW_RETAINED_AFTER_MS)[0].sequence == sent.sequence


@pytest.mark.parametrize("answered", [True, False])
def test_a_drain_that_is_given_up_with_requests_unanswered_leaves_a_producer_to_fence(answered: bool) -> None:
    """The story: a topic is removed upstream while its last requests hang. The life ends well an hour later, says that
    nobody has to be fenced, and the requests arrive."""
    copier = begun()
    copier.handle(fetched(copier, [batch_of(10, YOUNG_MS)]))
    (sent,) = send_all(copier)
    copier.handle(Drain())
    assert (type(copier.state), copier.is_unsettled) == (Draining, True)
    if answered:
        copier.handle(Acked(sent.token, 110, 0.0))
        assert (type(copier.state), copier.is_unsettled) == (Drained, False)
    else:
        copier.handle(ProduceLost(sent.token, "gone", 0.0))
        assert (type(copier.state), copier.is_unsettled) == (Drained, True)


def test_an_unknown_outcome_at_the_drain_of_a_partition_stays_unknown_whatever_is_found_later() -> None:
    """The story: a batch may be stored, and is being looked for; then the partition is to go to another worker. What
    is found comes too late to be taken up here, and the other one would begin at the old position, as after a clean
    move."""
    copier = begun()
    lose(copier, [step := batch_of(10, YOUNG_MS)])
    copier.handle(fetched(copier, [step]))
    (again,) = send_all(copier, NOW_RETAINED_AFTER_MS)
    assert Need.RECONCILE in copier.handle(ProduceRefused(again.token, INVALID_RECORD, None, 0.0))
    copier.handle(Drain())
    found = copier.position._replace(source_offset=20, target_offset=110)
    copier.handle(Reconciled(replace(copier.identity, epoch=1), found))
    assert (type(copier.state), copier.is_unsettled) == (Drained, True)
