"""What policies decide about gaps; the settings behind them are read in tests/unit/config/test_settings.py."""

from __future__ import annotations

import pytest

from mm2py.config.settings import SourcePolicy
from mm2py.copying.gaps import decide
from mm2py.flow import parse_flow
from mm2py.metrics.counters import Metrics
from mm2py.records.gap_record import Done, GapKind


def decided(kind: GapKind, source: SourcePolicy | None = None) -> Done:
    return decide(kind, on_source_gap=source, on_target_loss="stop")


def test_without_a_policy_expired_records_are_skipped_and_other_gaps_stop() -> None:
    """Stopping at expired records would let retention eat more of them."""
    assert {kind: decided(kind) for kind in GapKind} == {
        GapKind.EXPIRED: Done.CONTINUED,
        GapKind.TRUNCATED: Done.STOPPED,
        GapKind.RECREATED: Done.STOPPED,
        GapKind.DELETED: Done.KEPT,
        GapKind.TARGET_DELETED: Done.STOPPED,
        GapKind.TARGET_TRUNCATED: Done.STOPPED,
        GapKind.FOREIGN: Done.STOPPED,
        GapKind.REPEATED: Done.STOPPED,
        GapKind.TRANSFORMS: Done.STOPPED,
    }


@pytest.mark.parametrize("kind", [GapKind.EXPIRED, GapKind.TRUNCATED, GapKind.RECREATED])
def test_on_source_gap_decides_on_every_gap_of_the_source(kind: GapKind) -> None:
    assert decided(kind, "stop") is Done.STOPPED
    assert decided(kind, "continue") is Done.CONTINUED
    assert decided(kind, "restart") is Done.RESTARTED


def test_of_a_deleted_topic_there_is_nothing_to_copy_whatever_the_policy() -> None:
    assert {decided(GapKind.DELETED, policy) for policy in ("stop", "continue", "restart", None)} == {Done.KEPT}


@pytest.mark.parametrize("source", ["stop", "continue", "restart", None])
def test_a_lost_target_is_the_matter_of_on_target_loss_alone(source: SourcePolicy | None) -> None:
    lost = GapKind.TARGET_DELETED
    assert decide(lost, on_source_gap=source, on_target_loss="stop") is Done.STOPPED
    assert decide(lost, on_source_gap=source, on_target_loss="recopy") is Done.RESTARTED


def test_gaps_are_counted_by_flow_topic_and_kind() -> None:
    metrics, flow = Metrics(), parse_flow("A->B")
    metrics.count_gap(flow, "orders", GapKind.EXPIRED)
    metrics.count_gap(flow, "orders", GapKind.EXPIRED)
    metrics.count_gap(flow, "orders", GapKind.TRUNCATED)
    assert metrics.gaps(flow, "orders", GapKind.EXPIRED) == 2
    assert metrics.gaps(flow, "orders", GapKind.TRUNCATED) == 1
    assert metrics.gaps(parse_flow("B->A"), "orders", GapKind.EXPIRED) == 0


def test_two_workers_in_one_process_count_each_for_themselves() -> None:
    flow = parse_flow("A->B")
    first, second = Metrics(), Metrics()
    first.set_stalled(flow, 3)
    assert (first.stalled(flow), second.stalled(flow)) == (3, 0)
