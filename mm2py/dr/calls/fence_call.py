"""One call of ``dr fence``: it stops the producers of chosen topics on A, and verifies that nobody writes any more."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from mm2py.config.settings import FlowSettings
from mm2py.dr.calls.asking import CallOutcome, Decide, RecoveryAsked, RecoveryPlan, decided_on
from mm2py.dr.credentials import as_recovery, recovery_users, users_plain
from mm2py.dr.fence.asking import FenceInquiry
from mm2py.dr.fence.choosing import chosen_topics, own_principals, settings_of_flow
from mm2py.dr.fence.fence_log import FenceChangedMeanwhile, FenceLog, FenceStore
from mm2py.dr.fence.fenced_cluster import ClusterFence
from mm2py.dr.fence.hook import HOOK_TIMEOUT_S, HookFailed, run_hook
from mm2py.dr.fence.plan import FencePlan, FenceWanted, plan_fence
from mm2py.dr.fence.printout import body_of, plan_lines, record_lines, stillness_lines
from mm2py.dr.fence.raising import FenceRefused, FenceWrite, Hook, raise_fence
from mm2py.dr.fence.record import FenceRecord, FenceWay
from mm2py.dr.fence.stillness import Stillness
from mm2py.dr.fence.verifying import TIMEOUT_S, end_what_is_open, verify_fence
from mm2py.dr.open_run import refuse_fence_beside
from mm2py.dr.standing_run import standing_run
from mm2py.errors import Mm2Error
from mm2py.flow_sides import (
    DEADLINE_S,
    ClusterFailed,
    FlowSides,
    of_both,
    require,
    settings_of_workers,
    sides_of,
)
from mm2py.kafka.cluster import fetch_metadata
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_WAITS

PLAN_KEPT_S: Final = 1.0
"""A plan that was shown longer ago is made again."""


@dataclass(frozen=True, slots=True)
class FenceOptions:
    """What is asked for, beside the flow."""

    topics: tuple[str, ...] = ()
    principals: tuple[str, ...] = ()
    own_principals: tuple[str, ...] = ()
    by_size: bool = False
    hook_words: tuple[str, ...] = ()
    """The command of the hook; none: there is no hook."""
    accepts_unproven: bool = False
    ends_hanging: bool = False
    timeout_s: int = TIMEOUT_S

    @property
    def way(self) -> FenceWay:
        return FenceWay.SIZE if self.by_size else FenceWay.HOOK if self.hook_words else FenceWay.ACLS


@dataclass(slots=True)
class FenceCall:
    """One call."""

    asked: RecoveryAsked
    options: FenceOptions

    async def run(self, decide: Decide) -> CallOutcome:
        """Do it, if that is decided.

        Raises:
            Mm2Error: a cluster does not answer, or the fence is refused.
        Cancelling leaves any part of the fence done; its record knows all of it.
        """
        asked, options = self.asked, self.options
        by_file = await asyncio.to_thread(settings_of_flow, asked.file, asked.flow)
        flow = by_file.flow
        own = await asyncio.to_thread(own_principals, asked.file, flow.source, options.own_principals)
        async with sides_of("dr", as_recovery(asked.file, by_file)) as sides:
            require(sides)
            settings, _ = await settings_of_workers(asked.file, by_file, sides.target, asked.say)
            cluster = ClusterFence(flow.source, sides.source.brokers)
            inquiry = FenceInquiry(flow.source, sides.source.brokers, cluster)
            store = store_of(settings, sides, asked.rng)

            async def look() -> tuple[FencePlan, FenceRecord | None]:
                there = (await fetch_metadata(sides.source.brokers, None)).topics
                topics = chosen_topics(settings, [*there], options.topics)
                return plan_fence(self._wanted(settings, topics, own), await inquiry.facts(topics)), await store.read()

            plan, standing = await of_both(sides, look(), "reading what a fence needs")
            run = await standing_run(flow, sides, asked.say)
            refuse_fence_beside(run, flow, plan.wanted.topics, asked.clock.wall_ms())
            shown = await self._shown(plan, by_file, standing)
            shown_at_s = asked.clock.monotonic()
            code = await decided_on(shown, decide)
            if code is not None:
                return CallOutcome(code, {**shown.body, "exit_code": code})
            if asked.clock.monotonic() - shown_at_s > PLAN_KEPT_S:  # an answer at a terminal may take minutes
                again, _ = await of_both(sides, look(), "reading what a fence needs")
                if not again.is_same(plan):
                    raise ClusterFailed(
                        f"{flow.source} has changed since the plan was made.", remedy="Look at it again, with --plan."
                    )
            write = FenceWrite(asked.author, asked.command, asked.clock.wall_ms(), secrets.token_hex(8))
            words = options.hook_words
            raising = raise_fence(
                plan, str(flow), store, cluster, write, hook=hook_of(words), hook_name=words[0] if words else ""
            )
            record = await self._raised(sides, raising)
            self._say(record_lines(record))
            ended: list[str] = []
            try:
                if options.ends_hanging:
                    ended, failed = await end_what_is_open(
                        inquiry, sides.source.brokers, record.topics, clock=asked.clock, rng=asked.rng
                    )
                    self._say([*(f"aborted: {one}" for one in ended), *failed])
                found = await self._verified(inquiry, record)
            except Mm2Error as error:
                raise ClusterFailed(
                    f"The fence stands, and is not verified: {error}",
                    remedy=f"Give the same command again, or take it back: {self._unfence}",
                ) from error
            self._say(stillness_lines(found))
            code = EXIT_DONE if found.is_proven else EXIT_WAITS
            if code:
                self._say([f"The fence stands. Take it back: {self._unfence}"])
            return CallOutcome(code, body_of(code, str(flow), plan=plan, record=record, stillness=found, ended=ended))

    async def _shown(self, plan: FencePlan, settings: FlowSettings, standing: FenceRecord | None) -> RecoveryPlan:
        flow, options = str(settings.flow), self.options
        users = await asyncio.to_thread(recovery_users, self.asked.file, settings)
        lines = [*plan_lines(plan, flow, standing), *(one.text for one in users)]
        code, blocked = None, ""
        if plan.refused:
            lines.append("Nothing was changed: the fence is refused.")
            code = EXIT_FAILED
        elif plan.unproven and not options.accepts_unproven:
            blocked = "Nothing was changed: what cannot be proven needs --accept-unproven-fence."
        body = body_of(code or EXIT_DONE, flow, plan=plan, record=standing)
        decided = {
            **body["plan"],
            "notes": None,
            "standing": None if standing is None else [standing.mark, standing.state],
            "options": [options.hook_words, options.accepts_unproven, options.ends_hanging],
        }
        return RecoveryPlan(
            lines, {**body, "connects_as": users_plain(users)}, decided, "Raise the fence?", code, blocked
        )

    @property
    def _unfence(self) -> str:
        """The command that takes the fence back."""
        hook = " --hook-fence CMD" if self.options.hook_words else ""
        return f"mm2py dr unfence {self.asked.file.argument} '{self.asked.flow}'{hook}"

    async def _raised(self, sides: FlowSides, raising: Coroutine[Any, Any, FenceRecord]) -> FenceRecord:
        try:
            return await of_both(sides, raising, "raising the fence", deadline_s=DEADLINE_S + HOOK_TIMEOUT_S)
        except (FenceRefused, FenceChangedMeanwhile, HookFailed):
            raise  # these say themselves what stands
        except Mm2Error as error:
            raise ClusterFailed(
                f"{error.what} {error.remedy}".strip(),
                remedy=f"A part of the fence may stand: give the same command again, or take it back: {self._unfence}",
            ) from error

    def _wanted(self, settings: FlowSettings, topics: tuple[str, ...], own: frozenset[str]) -> FenceWanted:
        options, source = self.options, settings.flow.source
        return FenceWanted(source, topics, options.way, options.principals, own, settings.policy.keeps_names)

    async def _verified(self, inquiry: FenceInquiry, record: FenceRecord) -> Stillness:
        progress = self.asked.progress

        def tell(found: Stillness) -> None:
            progress(f"nothing has moved for {found.still_s:.0f} s, {len(found.open)} transaction(s) are open")

        try:
            return await verify_fence(
                inquiry, record.topics, clock=self.asked.clock, timeout_s=self.options.timeout_s, tell=tell
            )
        finally:
            progress("")

    def _say(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.asked.say(line)


def store_of(settings: FlowSettings, sides: FlowSides, rng: Random) -> FenceStore:
    """Return the records of a flow's fence. A target that does not answer is left out."""
    make = partial(FenceLog, replication_factor=settings.configs_topic_replication_factor, rng=rng)
    target = None if sides.target.away else make(settings.flow.target, sides.target.brokers)
    return FenceStore(str(settings.flow), make(settings.flow.source, sides.source.brokers), target)


def hook_of(words: tuple[str, ...]) -> Hook | None:
    """Return what runs the operator's command; None: there is none."""
    if not words:
        return None

    async def hook(verb: str, record: FenceRecord) -> None:
        await run_hook(words, verb, record)

    return hook
