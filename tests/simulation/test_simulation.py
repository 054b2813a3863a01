"""Whole workers under all faults at once: a few seeds. ``make simulate`` runs many."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest

from deploy.local.python_path import python_path
from mm2py.group.leader_loop import EvictedWriters
from mm2py.group.leader_loop import FenceOutcome as DeadOutcome
from mm2py.records.control_record import Writer
from tests.simulation.campaign import KINDS, Campaign, reproduce
from tests.simulation.election_campaign import ElectionCampaign
from tests.simulation.election_campaign import reproduce as elections_again
from tests.simulation.elections import Elections, run_elections
from tests.simulation.run import Outcome
from tests.simulation.schedule import make_schedule

ROOT = Path(__file__).parents[2]
SEEDS = "1-24"
TWICE = "1-2"


def _simulate(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import sys; from tests.simulation.__main__ import main; sys.exit(main())", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": python_path(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(290)
def test_the_faults_of_a_few_seeds_lose_reorder_and_repeat_nothing() -> None:
    traces = [re.findall(r"seed \d+ trace \w+", _simulate("--seeds", TWICE, "--traces").stdout) for _ in range(2)]
    assert traces[0] and traces[0] == traces[1], "the same seed gave two runs"
    done = _simulate("--seeds", SEEDS)
    assert done.returncode == 0, f"{done.stdout[-8000:]}{done.stderr[-2000:]}"
    assert " 0 failed." in done.stdout


def test_a_seed_defines_the_whole_schedule_and_seeds_differ() -> None:
    assert make_schedule(5) == make_schedule(5)
    assert len({repr(make_schedule(seed)) for seed in range(50)}) == 50


def test_a_kind_of_fault_that_is_too_rare_fails_a_long_campaign() -> None:
    campaign = Campaign()
    for seed in range(200):
        campaign.add(Outcome(seed, counts=Counter(dict.fromkeys(KINDS, 1 if seed < 2 else 0))), 1.0)
    assert campaign.ok
    campaign.seeds_with["reset"] = 1
    assert (campaign.ok, campaign.too_rare) == (False, ["reset"])
    assert Campaign(seeds=199).too_rare == []


def test_an_interrupted_campaign_resumes_where_it_was(tmp_path: Path) -> None:
    campaign = Campaign(first=7)
    campaign.add(Outcome(7, virtual_s=3.0, findings=["lost"], counts=Counter(reset=2)), 0.5)
    campaign.save(tmp_path / "build" / "progress.json")
    again = Campaign.load(tmp_path / "build" / "progress.json")
    assert again == campaign
    assert (again.next_seed, again.failed, again.times["reset"]) == (8, {7: ["lost"]}, 2)
    assert reproduce(7) == "make simulate SEEDS=7"


@pytest.mark.walk(range(1, 4))
def test_groups_with_failing_leaders_have_one_leader_at_a_time_and_one_writer_a_partition(seed: int) -> None:
    outcome = run_elections(seed)
    assert not outcome.findings
    assert outcome.elections > 5 and outcome.writes > 500


def test_a_group_that_does_not_fence_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the judgement proves nothing: an unfenced worker writes among the next owner's records."""

    async def fences_no_member(_: EvictedWriters, writers: Collection[Writer], __: object) -> DeadOutcome:
        return DeadOutcome({writer.producer_id: writer.epoch for writer in writers}, {})

    monkeypatch.setattr(EvictedWriters, "fence", fences_no_member)
    assert any("whose turn it was not" in finding for seed in range(1, 4) for finding in run_elections(seed).findings)


def test_an_interrupted_campaign_of_elections_resumes_where_it_was(tmp_path: Path) -> None:
    campaign = ElectionCampaign(first=7)
    campaign.add(Elections(7, elections=3, owned_s=1.5, counts=Counter(killed=2), findings=["two leaders"]))
    campaign.save(tmp_path / "build" / "progress.json")
    assert ElectionCampaign.load(tmp_path / "build" / "progress.json") == campaign
    assert elections_again(7) == 'make simulate ELECTIONS=1 ARGS="--first 7"'
