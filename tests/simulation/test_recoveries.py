"""Recoveries on a model of two clusters: a few seeds. ``make simulate RECOVERIES=10000`` runs many."""

from __future__ import annotations

import pytest

from mm2py.dr import journal as journal_module
from mm2py.dr import journal_writer
from tests.simulation.recoveries import RecoveryOutcome, run_recoveries
from tests.simulation.recovery_campaign import RecoveryCampaign, report


@pytest.mark.walk(range(24))
def test_in_no_order_of_faults_do_two_sides_take_records_or_does_one_get_lost(seed: int) -> None:
    assert run_recoveries(seed).findings == []


def test_a_seed_defines_the_whole_run() -> None:
    assert run_recoveries(7) == run_recoveries(7)
    assert run_recoveries(7).counts != run_recoveries(9).counts


def test_an_entry_that_counts_on_the_source_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = journal_module.needed_by
    monkeypatch.setattr(journal_writer, "needed_by", lambda entry: (real(entry)[0][:1], entry.flow.target))
    assert any(run_recoveries(seed).findings for seed in range(12))


def test_the_shorter_journal_would_lose_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_winner", lambda tails: min(tails, key=lambda alias: len(tails[alias])))
    assert any(run_recoveries(seed).findings for seed in range(30))


def test_a_campaign_fails_with_a_seed_or_if_a_state_was_too_rare() -> None:
    campaign = RecoveryCampaign(0)
    for seed in range(20):
        campaign.add(run_recoveries(seed))
    assert campaign.seeds == 20
    assert campaign.failed == {}
    assert "20 seeds" in report(campaign, {})
    assert RecoveryCampaign(0).too_rare != []
    campaign.add(RecoveryOutcome(99, ["lost"]))
    assert not campaign.ok
    assert "RECOVERIES=1" in report(campaign, {})
