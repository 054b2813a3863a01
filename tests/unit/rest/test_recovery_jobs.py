"""A recovery over REST: only where the file has its credentials, only what was confirmed, one at a time, and told."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.dr.calls.asking import CallOutcome, Decide, RecoveryAsked, RecoveryPlan, RecoveryRefused, decided_on
from mm2py.dr.calls.verbs import Carry, HookTable, VerbOptions, VerbRow
from mm2py.errors import Mm2Error
from mm2py.flow import parse_flow
from mm2py.logs import make_logger
from mm2py.records.author import Author
from mm2py_rest.recovery.jobs import JobRuns, PlanChanged, RecoveryJobs
from tests.fakes.rest_services import FixedClock

FLOW, BACK = parse_flow("A->B"), parse_flow("B->A")
ANN = Author("ann", "ops1", "ticket 4711")
FILE = """clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""
OWN = "A.dr.security.protocol = PLAINTEXT\nB.dr.security.protocol = PLAINTEXT\n"


class ScriptedVerb:
    """A verb that does what the test says, and keeps who asked."""

    def __init__(self) -> None:
        self.plan = RecoveryPlan(["it would move orders"], {"n": 1}, {"topics": ["orders"]}, "Go?")
        self.may_end = asyncio.Event()
        self.error: Exception | None = None
        self.asked: list[RecoveryAsked] = []
        self.done = 0

    @property
    def row(self) -> VerbRow:
        return VerbRow("cutover", "Moves.", VerbOptions, self._call)

    def _call(self, asked: RecoveryAsked, _: Any, __: HookTable) -> Carry:
        async def carry_out(decide: Decide) -> CallOutcome:
            self.asked.append(asked)
            code = await decided_on(self.plan, decide)
            if code is not None:
                return CallOutcome(code, self.plan.body)
            asked.say("fenced")
            asked.progress("waits")
            await self.may_end.wait()
            if self.error is not None:
                raise self.error
            self.done += 1
            return CallOutcome(0, {}, "moved")

        return carry_out


class JobScene:
    """The jobs of a process, its log, and a verb."""

    def __init__(self, file: SettingsFile) -> None:
        self.text = io.StringIO()
        self.jobs = RecoveryJobs(file, FixedClock(), make_logger("info", "json", self.text))
        self.verb = ScriptedVerb()

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.getvalue().splitlines()]

    async def plan(self) -> RecoveryPlan:
        return await self.jobs.plan(self.verb.row, FLOW, VerbOptions(), ANN)

    async def begin(self, confirmed: str) -> Any:
        return await self.jobs.begin(self.verb.row, FLOW, VerbOptions(), ANN, confirmed)

    async def end(self) -> None:
        self.verb.may_end.set()
        for _ in range(10):
            await asyncio.sleep(0)


def file_of(folder: Path, more: str) -> SettingsFile:
    path = folder / "mm2.properties"
    path.write_text(FILE + more)
    return read_settings_file(path, ["B"])


@asynccontextmanager
async def scene_of(folder: Path, more: str = OWN) -> AsyncIterator[JobScene]:
    scene = JobScene(file_of(folder, more))
    yield scene
    await scene.jobs.close()


async def test_a_plan_changes_nothing_and_is_no_job(tmp_path: Path) -> None:
    async with scene_of(tmp_path) as scene:
        assert (await scene.plan()).lines == ["it would move orders"]
        assert scene.jobs.of(FLOW) is None and scene.verb.done == 0 and scene.log == []


async def test_what_was_confirmed_is_carried_out_in_the_background_and_told(tmp_path: Path) -> None:
    async with scene_of(tmp_path) as scene:
        begun = await scene.begin((await scene.plan()).hash)
        await asyncio.sleep(0)
        assert begun.job is scene.jobs.of(BACK), "it works on both directions"
        assert (begun.job.exit_code, begun.job.now) == (None, "waits")
        assert [*begun.job.lines] == ["it would move orders", "fenced"]
        await scene.end()
        assert (begun.job.exit_code, begun.job.text, begun.job.now) == (0, "moved", "")
        assert scene.jobs.of(FLOW) is begun.job, "its end is still told"
        assert [(one["event"], one["user"], one["reason"]) for one in scene.log] == [
            ("recovery.begun", "ann", "ticket 4711"),
            ("recovery.ended", "ann", "ticket 4711"),
        ]
        asked = scene.verb.asked[-1]
        assert (asked.author, asked.command, asked.file.selected) == (ANN, "dr cutover over REST", ())


async def test_nothing_is_begun_if_the_plan_is_no_longer_what_was_confirmed(tmp_path: Path) -> None:
    async with scene_of(tmp_path) as scene:
        shown = await scene.plan()
        scene.verb.plan = replace(shown, decided={"topics": ["orders", "bills"]})
        with pytest.raises(PlanChanged, match=r"not what was confirmed\. Ask for the plan again"):
            await scene.begin(shown.hash)
        await scene.end()
        assert scene.jobs.of(FLOW) is None and scene.verb.done == 0 and scene.log == []


async def test_the_same_call_goes_on_with_a_run_that_was_begun(tmp_path: Path) -> None:
    """The worker died in the middle: the journal stands, and what was confirmed for a new run is not its hash now."""
    async with scene_of(tmp_path) as scene:
        before = (await scene.plan()).hash
        scene.verb.plan = replace(scene.verb.plan, decided={"standing": "Drained"}, goes_on=True)
        await scene.begin(before)
        await scene.end()
        assert scene.verb.done == 1


async def test_what_must_not_begin_does_not_even_if_it_is_confirmed(tmp_path: Path) -> None:
    async with scene_of(tmp_path) as scene:
        scene.verb.plan = replace(scene.verb.plan, blocked="It cannot be proven.")
        with pytest.raises(RecoveryRefused, match="It cannot be proven"):
            await scene.begin(scene.verb.plan.hash)
        scene.verb.plan = replace(scene.verb.plan, blocked="", code=1)
        assert (await scene.begin(scene.verb.plan.hash)).job is None
        await scene.end()
        assert scene.verb.done == 0


async def test_of_two_jobs_on_the_same_clusters_the_second_is_refused(tmp_path: Path) -> None:
    async with scene_of(tmp_path) as scene:
        confirmed = (await scene.plan()).hash
        await scene.begin(confirmed)
        with pytest.raises(JobRuns, match=r"The cutover of A->B runs here, job .* of ann"):
            await scene.jobs.begin(scene.verb.row, BACK, VerbOptions(), ANN, confirmed)
        await scene.end()
        await scene.begin(confirmed)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Mm2Error("A does not answer.", remedy="Look."), "A does not answer. Look."),
        (KeyError("x"), "An error of mm2py: the log of this worker has it as recovery.broken."),
    ],
)
async def test_a_job_that_fails_says_so_and_lets_the_next_one_begin(
    tmp_path: Path, error: Exception, text: str
) -> None:
    async with scene_of(tmp_path) as scene:
        scene.verb.error = error
        confirmed = (await scene.plan()).hash
        job = (await scene.begin(confirmed)).job
        await scene.end()
        assert (job.exit_code, job.text) == (1, text)
        assert scene.log[-1]["event"] == "recovery.ended"
        await scene.begin(confirmed)


async def test_a_job_ends_with_its_process_and_says_that_it_can_go_on(tmp_path: Path) -> None:
    async with scene_of(tmp_path) as scene:
        job = (await scene.begin((await scene.plan()).hash)).job
        await scene.jobs.close()
        assert (job.exit_code, job.text) == (
            None,
            "The worker's REST ended in the middle: the same call goes on.",
        )
        assert scene.verb.done == 0


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("", r"has no A\.dr\.\* and B\.dr\.\*, the credentials of recoveries there"),
        ("A.dr.security.protocol = PLAINTEXT\n", r"has no B\.dr\.\*"),
        (f"{OWN}A.dr.security.protocol = SASL_SSL\n", "Recoveries cannot connect to A"),
    ],
)
async def test_without_credentials_of_its_own_at_both_clusters_no_verb_can_be_called(
    tmp_path: Path, more: str, why: str
) -> None:
    async with scene_of(tmp_path, more) as scene:
        with pytest.raises(RecoveryRefused, match=why):
            await scene.plan()
        with pytest.raises(RecoveryRefused, match=why):
            await scene.begin("0" * 16)
        assert scene.verb.asked == []
        assert scene.jobs.why_not(FLOW)
