"""``make simulate``: runs whole workers on two cluster models under virtual time, seed after seed, for a time.

After that, for as long, the random walks of the other suites (``walks.py``). With ``--elections`` only groups on one
model, until there were so many elections. With ``--recoveries`` only recoveries of a pair of clusters, so many seeds.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.machine import commit, hardware
from tests.conftest import seeds_of
from tests.simulation.campaign import Campaign, report, reproduce, run_campaign
from tests.simulation.election_campaign import ElectionCampaign
from tests.simulation.election_campaign import report as elections_report
from tests.simulation.election_campaign import reproduce as elections_again
from tests.simulation.election_campaign import run_campaign as run_elections
from tests.simulation.elections import Elections
from tests.simulation.recoveries import RecoveryOutcome
from tests.simulation.recovery_campaign import RecoveryCampaign
from tests.simulation.recovery_campaign import report as recoveries_report
from tests.simulation.recovery_campaign import reproduce as recovery_again
from tests.simulation.recovery_campaign import run_campaign as run_recoveries
from tests.simulation.run import Outcome, run_schedule
from tests.simulation.schedule import make_schedule
from tests.simulation.walks import run_rounds, run_walks

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "docs" / "results"
PROGRESS: Final = ROOT / "build" / "simulation.json"
ELECTIONS_PROGRESS: Final = ROOT / "build" / "elections.json"
SAVED_EVERY_SEEDS: Final = 20


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seconds", type=float, help="of whole workers, and as long of walks (120)")
    parser.add_argument("--seeds", type=seeds_of, help="whole workers with exactly these: 7 or 7-12")
    parser.add_argument("--walks", type=seeds_of, help="the walks alone, with exactly these")
    parser.add_argument("--first", type=int, help="the first seed; random if not given")
    parser.add_argument("--elections", type=int, help="simulate groups only, until so many leaders were elected")
    parser.add_argument("--recoveries", type=int, help="simulate recoveries of a pair of clusters only, so many seeds")
    parser.add_argument("--resume", action="store_true", help="resume an interrupted campaign")
    parser.add_argument("--save", action="store_true", help="write the result under docs/results")
    parser.add_argument("--log", action="store_true", help="print what the workers of each seed logged")
    parser.add_argument("--traces", action="store_true", help="print the trace of each seed")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run. The exit code is 1 if a seed failed or some kind of fault was too rare."""
    options = _parser().parse_args(arguments)
    if options.log:
        for seed in options.seeds or ():
            print(make_schedule(seed))
            print(*run_schedule(make_schedule(seed), show=True).findings, sep="\n")
        return 0
    if options.elections is not None:
        return _elect(options)
    if options.recoveries is not None:
        return _recover(options)
    if options.walks is not None:
        return 0 if run_walks(options.walks) else 1
    campaign, seeds = Campaign(), options.seeds
    seconds = options.seconds
    if options.resume and PROGRESS.exists():
        campaign = Campaign.load(PROGRESS)
    if not seeds:
        first = random.SystemRandom().randrange(10**6, 10**9) if options.first is None else options.first
        first = campaign.next_seed if campaign.seeds else first
        seeds = range(first, 1 << 62)
        seconds = 120.0 if seconds is None else seconds
    campaign.first = campaign.first if campaign.seeds else seeds.start

    def after_each(outcome: Outcome) -> None:
        if options.traces:
            print(f"seed {outcome.seed} trace {outcome.trace}", flush=True)
        if not outcome.ok:
            print(f"seed {outcome.seed} failed; again with: {reproduce(outcome.seed)}", flush=True)
            for finding in outcome.findings[:5]:
                print(f"    {finding[:2000]}", flush=True)
        if campaign.seeds % SAVED_EVERY_SEEDS == 0:
            campaign.save(PROGRESS)

    run_campaign(campaign, seeds, seconds=seconds, after_each=after_each)
    campaign.save(PROGRESS)
    facts = _facts()
    _publish("simulation", report(campaign, facts), {**facts, **campaign.content()}, save=options.save)
    walked = bool(options.seeds) or run_rounds(seeds.start, seconds=seconds or 0.0, resume=options.resume)
    return 0 if campaign.ok and walked else 1


def _elect(options: argparse.Namespace) -> int:
    first = random.SystemRandom().randrange(10**6, 10**9) if options.first is None else options.first
    campaign = ElectionCampaign(first)
    if options.resume and ELECTIONS_PROGRESS.exists():
        campaign = ElectionCampaign.load(ELECTIONS_PROGRESS)

    def after_each(outcome: Elections) -> None:
        if outcome.findings:
            print(f"seed {outcome.seed} failed; again with: {elections_again(outcome.seed)}", flush=True)
            print(*(f"    {finding[:2000]}" for finding in outcome.findings[:5]), sep="\n", flush=True)
        if campaign.seeds % SAVED_EVERY_SEEDS == 0:
            campaign.save(ELECTIONS_PROGRESS)

    run_elections(campaign, options.elections, after_each=after_each)
    campaign.save(ELECTIONS_PROGRESS)
    facts = _facts()
    _publish("elections", elections_report(campaign, facts), {**facts, **campaign.content()}, save=options.save)
    return 0 if campaign.ok else 1


def _recover(options: argparse.Namespace) -> int:
    first = random.SystemRandom().randrange(10**6, 10**9) if options.first is None else options.first
    campaign = RecoveryCampaign(first)

    def after_each(outcome: RecoveryOutcome) -> None:
        if outcome.findings:
            print(f"seed {outcome.seed} failed; again with: {recovery_again(outcome.seed)}", flush=True)
            print(*(f"    {finding[:2000]}" for finding in outcome.findings[:5]), sep="\n", flush=True)

    run_recoveries(campaign, options.recoveries, after_each=after_each)
    facts = _facts()
    _publish("recoveries", recoveries_report(campaign, facts), {**facts, **campaign.content()}, save=options.save)
    return 0 if campaign.ok else 1


def _facts() -> dict[str, Any]:
    return {"date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}", "machine": hardware(), "commit": commit()}


def _publish(name: str, page: str, content: dict[str, Any], *, save: bool) -> None:
    print(page)
    if save:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{name}-{content['date']}.json").write_text(json.dumps(content, indent=1) + "\n")
        (RESULTS / f"{name}-{content['date']}.md").write_text(page)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of strings is part of a run
        os.execve(  # noqa: S606
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
