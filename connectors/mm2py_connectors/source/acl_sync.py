"""ACL sync: principals that may read an upstream topic, or are denied that, get the same on its remote topic.

The target's ACLs are read first, and only missing ones are created: first the DENYs, and the others only when no DENY
is missing. Each is logged before it is written. None is ever deleted. Those of a fence of producers are held back
(``mm2py/dr/fence``): it is lifted on the source, and would stay on the target for ever.

Counterpart: syncTopicAcls of MM2's MirrorSourceConnector; the rules are in ``mm2py/topics/acls.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from mm2py.config.settings import FlowSettings
from mm2py.dr.fence.held_back import acls_held_back, without_fences
from mm2py.errors import Mm2Error
from mm2py.kafka.admin import create_topic_acls, describe_topic_acls, in_chunks
from mm2py.kafka.error_codes import SECURITY_DISABLED
from mm2py.kafka.errors import BrokerRefused, Reaction, reaction_to
from mm2py.kafka.port import Brokers
from mm2py.topics.acls import AclLeftOut, AclPlan, MissingAcls, TopicAcl, missing_acls, plan_acls
from mm2py_connectors.source.context import FlowView
from mm2py_connectors.source.notices import Notices, in_lines

CHANNEL: Final = "sync.acls"


@dataclass(slots=True)
class _Sent:
    """The results of a round's requests; an ACL in ``failed`` may be missing."""

    created: int = 0
    failed: list[TopicAcl] = field(default_factory=list)
    refused: dict[int, list[BrokerRefused]] = field(default_factory=dict)
    errors: list[Mm2Error] = field(default_factory=list)


def wanted_acls(
    settings: FlowSettings, found: Sequence[TopicAcl], topics: Collection[str], kept: Collection[str]
) -> AclPlan:
    """Return what a flow's remote topics should have of the source's ACLs.

    Args:
        found: the source's ACLs of topics.
        topics: the source topics that are copied.
        kept: those that were copied once.
    """
    return plan_acls(
        found,
        policy=settings.policy,
        source_alias=settings.flow.source,
        replicates=settings.replicates,
        topics=topics,
        kept=kept,
    )


def acls_to_create(
    settings: FlowSettings,
    plan: AclPlan,
    there: Sequence[TopicAcl],
    topics: Collection[str],
    kept: Collection[str],
) -> MissingAcls:
    """Return what the target lacks of a plan. ``there``: its ACLs of topics; the others as ``wanted_acls``."""
    remotes = set(map(settings.remote_topic, {*topics, *kept}))
    return missing_acls(plan.wanted, there, remotes=remotes, most=settings.remote_acls_max)


class AclSync:
    """One flow's ACL sync; ``run_once`` is what its schedule repeats."""

    def __init__(
        self,
        context: FlowView,
        topics: Callable[[], Collection[str]],
        kept: Callable[[], Collection[str]],
    ) -> None:
        """``topics`` returns the source topics that are copied just now, ``kept`` those that were copied once."""
        self._context = context
        self._source = context.source.brokers
        self._target = context.target.brokers
        self._topics = topics
        self._kept = kept
        self._log = context.log
        self._notices = Notices(context.log)
        self._printed: set[TopicAcl] = set()
        """ACLs that were named in the log and are still missing."""

    async def run_once(self) -> None:
        """Create missing ACLs on the target. Raises: as ``Brokers.send``, and BrokerRefused.

        Cancelling may leave a request on its way; the next round reads its result.
        """
        settings, flow = self._context.settings, self._context.flow
        before = await acls_held_back(flow.source, self._source, channel=CHANNEL)
        everything = await self._describe(self._source, flow.source, "DESCRIBE")
        if everything is None:
            return
        after = await acls_held_back(flow.source, self._source, channel=CHANNEL)
        found, held = without_fences(everything, before, after)
        self._say_held_back(held, before.unknown or after.unknown)
        topics, kept = set(self._topics()), set(self._kept())
        plan = wanted_acls(settings, found, topics, kept)
        self._say_left_out(plan)
        if not plan.wanted:
            return
        there = await self._describe(
            self._target, flow.target, "DESCRIBE" if settings.sync_topic_acls_dry_run else "ALTER"
        )
        if there is None:
            return
        missing = acls_to_create(settings, plan, there, topics, kept)
        self._say_beyond(missing)
        self._print([*missing.denials, *missing.grants])
        if not settings.sync_topic_acls_dry_run:
            await self._create(missing)

    async def _describe(self, brokers: Brokers, alias: str, right: str) -> list[TopicAcl] | None:
        """Return a cluster's ACLs of topics; None, which is logged once, without an authorizer or the right to ask."""
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
        """Log once what a cluster's refusal means; False if that is not known here."""
        if error.code == SECURITY_DISABLED:
            if self._notices.is_new(("no authorizer", alias)):
                self._log.info("topic_acls.no_authorizer", cluster=alias, effect="ACLs of topics are not carried over")
        elif error.reaction is Reaction.DENIED:
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

    def _say_held_back(self, held: Sequence[TopicAcl], unknown: str) -> None:
        if not held:
            self._notices.is_over("held back for a fence")
        elif self._notices.is_new("held back for a fence", unknown):
            self._log.warning(
                "topic_acls.fence_unknown" if unknown else "topic_acls.fence_held_back",
                acls=len(held),
                first=str(min(held)),
                why=unknown or "a fence of producers stands on the source (mm2py dr fence); its ACLs stay there",
            )

    def _say_left_out(self, plan: AclPlan) -> None:
        by_reason: dict[AclLeftOut, list[TopicAcl]] = {}
        for acl, why in plan.left_out:
            by_reason.setdefault(why, []).append(acl)
        for why, acls in by_reason.items():
            if self._notices.is_new(("left out", why)):
                self._log.info("topic_acls.left_out", acls=len(acls), first=str(min(acls)), why=str(why))

    def _say_beyond(self, missing: MissingAcls) -> None:
        if not missing.beyond:
            self._notices.is_over("too many")
        elif self._notices.is_new("too many"):
            self._log.warning(
                "topic_acls.too_many",
                cluster=self._context.settings.target.alias,
                acls=missing.in_all,
                most=self._context.settings.remote_acls_max,
                effect=f"{len(missing.beyond)} that grant a right are left out, the first is {missing.beyond[0]}",
                remedy="Raise remote.acls.max if so many are meant; what is there already stays, DENYs are created.",
            )

    def _print(self, missing: Sequence[TopicAcl]) -> None:
        """Log each ACL that is about to be written, once while it is missing."""
        self._printed.intersection_update(missing)
        fresh = [acl for acl in missing if acl not in self._printed]
        if not fresh:
            return
        self._printed.update(fresh)
        alias = self._context.settings.target.alias
        effect = {"effect": "nothing is written: sync.topic.acls.dry.run=true"}
        dry_run = self._context.settings.sync_topic_acls_dry_run
        self._log.info("topic_acls.planned", cluster=alias, acls=len(fresh), **(effect if dry_run else {}))
        for part in in_lines(map(str, fresh)):
            self._log.info("topic_acls.named", cluster=alias, named=part)

    async def _create(self, missing: MissingAcls) -> None:
        """Create the DENYs, and if none is missing then, the others. Raises: the first error of a request."""
        alias = self._context.settings.target.alias
        sent = _Sent()
        await self._send(missing.denials, sent)
        if not sent.failed:
            self._notices.is_over("held back")
            await self._send(missing.grants, sent)
        elif missing.grants and self._notices.is_new("held back"):
            self._log.warning(
                "topic_acls.held_back",
                cluster=alias,
                acls=len(missing.grants),
                why=f"{len(sent.failed)} DENY(s) could not be created, the first is: {sent.failed[0]}",
                effect="nothing is granted until they are there; what is granted already stays",
                remedy=f"The log says why, in the lines beside. They may also be created on {alias} by hand.",
            )
        if sent.created:
            self._notices.is_over(("denied", alias, "creating"))
            self._log.info("topic_acls.created", cluster=alias, acls=sent.created)
        self._say_refusals(sent)
        if sent.errors:
            raise sent.errors[0]

    async def _send(self, acls: Sequence[TopicAcl], sent: _Sent) -> None:
        """Create ACLs. After a request that failed the others are sent, unless they would fail as well."""
        created: set[TopicAcl] = set()
        for chunk in in_chunks(acls):
            try:
                answers = await create_topic_acls(self._target, chunk, channel=CHANNEL)
            except Mm2Error as error:
                sent.errors.append(error)
                if not error.retriable:
                    break
                continue
            created.update(acl for acl, refusal in answers.items() if refusal is None)
            for refusal in answers.values():
                if refusal is not None:
                    sent.refused.setdefault(refusal.code, []).append(refusal)
            if any(reaction_to(code) is Reaction.DENIED for code in sent.refused):
                break  # all of them need the same right
        self._printed -= created
        sent.created += len(created)
        sent.failed += [acl for acl in acls if acl not in created]

    def _say_refusals(self, sent: _Sent) -> None:
        alias = self._context.settings.target.alias
        for code, refusals in sent.refused.items():
            first = refusals[0]
            if not self._say_refused(first, alias, "ALTER", doing="creating") and self._notices.is_new(
                ("refused", code)
            ):
                self._log.warning("topic_acls.refused", cluster=alias, acls=len(refusals), why=str(first))
        refused = {("refused", code) for code in sent.refused}
        self._notices.keep(lambda of: not (isinstance(of, tuple) and of[0] == "refused") or of in refused)
