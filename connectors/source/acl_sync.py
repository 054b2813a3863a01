"""ACL sync: who may read an upstream topic may read its remote topic, and who is denied is denied.

Answers to syncTopicAcls of MM2's MirrorSourceConnector; the rules are in ``mm2py/topics/acls.py``. The target's ACLs
are read first, so that only missing ones are created, and each is in the log before it is written. None is ever
deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from structlog.typing import FilteringBoundLogger

from connectors.source.notices import Notices
from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.flow import TopicName
from mm2py.kafka.acl_admin import SECURITY_DISABLED, create_topic_acls, describe_topic_acls, in_chunks
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.kafka.retry import Reaction, reaction_to
from mm2py.topics.acls import AclPlan, LeftOut, TopicAcl, plan_acls
from mm2py.topics.selection import should_replicate

CHANNEL: Final = "sync.acls"
LINES_MOST: Final = 50
"""So many ACLs of one plan are spelled out; the plan's own line has the count."""


class AclSync:
    """One flow's ACL sync; ``run_once`` is what its schedule repeats."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Brokers,
        target: Brokers,
        *,
        topics: Callable[[], Collection[str]],
        log: FilteringBoundLogger,
    ) -> None:
        """``topics`` returns the source topics that are copied just now."""
        self._settings = settings
        self._source = source
        self._target = target
        self._topics = topics
        self._log = log
        self._notices = Notices()
        self._printed: set[TopicAcl] = set()

    async def run_once(self) -> None:
        """Create what is missing on the target. Raises: as ``Brokers.send``, and BrokerRefused.

        Cancelling may leave a request on its way: the next round sees what came of it.
        """
        flow = self._settings.flow
        found = await self._describe(self._source, flow.source, "DESCRIBE")
        if found is None:
            return
        plan = self._plan(found)
        self._say_left_out(plan)
        if not plan.wanted:
            return
        there = await self._describe(self._target, flow.target, "ALTER")
        if there is None:
            return
        existing = set(there)
        missing = [acl for acl in plan.wanted if acl not in existing]
        self._print(missing)
        if missing and not self._settings.sync_topic_acls_dry_run:
            await self._create(missing)

    def failed(self, error: Mm2Error) -> None:
        """Say once that a round failed; copying goes on, and so does the schedule."""
        if self._notices.is_new("failing", str(error)):
            self._log.warning("topic_acls.failing", why=str(error), effect="copying goes on; it is tried again")

    def worked(self) -> None:
        if self._notices.is_over("failing"):
            self._log.info("topic_acls.in_step")

    async def _describe(self, brokers: Brokers, alias: str, right: str) -> list[TopicAcl] | None:
        """Return a cluster's ACLs of topics; None, and said once, without authorizer or without the right to ask."""
        try:
            found = await describe_topic_acls(brokers, channel=CHANNEL)
        except BrokerRefused as error:
            if not self._say_refused(error, alias, right, doing="listing"):
                raise
            return None
        self._notices.is_over(("no authorizer", alias))
        self._notices.is_over(("denied", alias, "listing"))
        return found

    def _say_refused(self, error: BrokerRefused, alias: str, right: str, *, doing: str) -> bool:
        """Say once what a cluster's refusal means; False if it means nothing that is known here."""
        if error.code == SECURITY_DISABLED:
            if self._notices.is_new(("no authorizer", alias)):
                self._log.info("topic_acls.no_authorizer", cluster=alias, effect="ACLs of topics are not carried over")
        elif reaction_to(error.code) is Reaction.DENIED:
            if self._notices.is_new(("denied", alias, doing)):
                self._log.warning(
                    "topic_acls.denied",
                    cluster=alias,
                    why=str(error),
                    remedy=f"Grant {right} on the cluster resource of {alias}, or set sync.topic.acls.enabled=false.",
                )
        else:
            return False
        return True

    def _plan(self, found: Sequence[TopicAcl]) -> AclPlan:
        settings = self._settings

        def replicates(name: str) -> bool:
            return should_replicate(
                TopicName(name),
                policy=settings.policy,
                topic_filter=settings.topic_filter,
                heartbeats_replication=settings.heartbeats_replication,
                target_alias=settings.flow.target,
            ).replicate

        return plan_acls(
            found,
            policy=settings.policy,
            source_alias=settings.flow.source,
            replicates=replicates,
            topics=self._topics(),
        )

    def _say_left_out(self, plan: AclPlan) -> None:
        by_reason: dict[LeftOut, list[TopicAcl]] = {}
        for acl, why in plan.left_out:
            by_reason.setdefault(why, []).append(acl)
        for why, acls in by_reason.items():
            if self._notices.is_new(("left out", why)):
                self._log.info("topic_acls.left_out", acls=len(acls), first=str(min(acls)), why=str(why))

    def _print(self, missing: Sequence[TopicAcl]) -> None:
        """Print what is about to be written, once for each ACL, before the first write that has it."""
        fresh = [acl for acl in missing if acl not in self._printed]
        if not fresh:
            return
        self._printed.update(fresh)
        effect = {"effect": "nothing is written: sync.topic.acls.dry.run=true"}
        self._log.info(
            "topic_acls.planned",
            cluster=self._settings.target.alias,
            acls=len(fresh),
            **(effect if self._settings.sync_topic_acls_dry_run else {}),
        )
        for acl in fresh[:LINES_MOST]:
            self._log.info("topic_acl.planned", acl=str(acl))
        if len(fresh) > LINES_MOST:
            self._log.info("topic_acls.planned_more", acls=len(fresh) - LINES_MOST)

    async def _create(self, missing: Sequence[TopicAcl]) -> None:
        created = 0
        failed: dict[int, list[BrokerRefused]] = {}
        for chunk in in_chunks(missing):
            answers = await create_topic_acls(self._target, chunk, channel=CHANNEL)
            created += sum(refusal is None for refusal in answers.values())
            for refusal in answers.values():
                if refusal is not None:
                    failed.setdefault(refusal.code, []).append(refusal)
            if any(reaction_to(code) is Reaction.DENIED for code in failed):
                break  # one right for all of them
        if created:
            self._notices.is_over(("denied", self._settings.target.alias, "creating"))
            self._log.info("topic_acls.created", cluster=self._settings.target.alias, acls=created)
        self._say_failed(failed)

    def _say_failed(self, failed: Mapping[int, Sequence[BrokerRefused]]) -> None:
        alias = self._settings.target.alias
        for code, refusals in failed.items():
            first = refusals[0]
            if self._say_refused(first, alias, "ALTER", doing="creating"):
                continue
            if self._notices.is_new(("refused", code), str(first)):
                self._log.warning("topic_acls.refused", cluster=alias, acls=len(refusals), why=str(first))
