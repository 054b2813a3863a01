"""The fence of one side of a run: planned, raised, verified, looked at once more, lifted.

It is the fence of ``mm2py dr fence`` (``mm2py/dr/fence``) with the same record: what has to be given back stands there,
not in the journal. So each of these steps may be repeated, by another process, also from the other site.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from mm2py.dr.cutover.coupling import Coupling, couplings
from mm2py.dr.cutover.pair import CutoverOptions, CutoverRefused, RecoveryPair
from mm2py.dr.fence.asking import FenceInquiry
from mm2py.dr.fence.facts import KnownAcls
from mm2py.dr.fence.fence_log import FenceLog, FenceStore
from mm2py.dr.fence.fenced_cluster import ClusterFence
from mm2py.dr.fence.hook import HOOK_TIMEOUT_S
from mm2py.dr.fence.lifting import lift_fence
from mm2py.dr.fence.plan import FencePlan, FenceWanted, in_short, plan_fence
from mm2py.dr.fence.raising import FenceWrite, raise_fence
from mm2py.dr.fence.record import FenceBinding, FencedKind, FenceRecord, FenceState, FenceWay
from mm2py.dr.fence.stillness import FenceSample, Stillness
from mm2py.dr.fence.verifying import end_what_is_open, verify_fence
from mm2py.dr.states import ACTS_WITHIN_S, PartitionOffsets
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.topics.topic_configs import FENCE_MESSAGE_BYTES

T = TypeVar("T")


class FenceNotProven(Mm2Error):
    """A fence stands, and it is not verified, or a part of it has fallen."""


class RunFence:
    """The fence that stops the producers of one flow's source."""

    def __init__(self, pair: RecoveryPair, flow: Flow, options: CutoverOptions) -> None:
        self._pair = pair
        self._flow = flow
        self._options = options
        brokers = pair.brokers[flow.source]
        self._cluster = ClusterFence(flow.source, brokers)
        self._inquiry = FenceInquiry(flow.source, brokers, self._cluster)
        replicas = pair.settings[flow].configs_topic_replication_factor
        logs = {
            alias: FenceLog(alias, one, replication_factor=replicas, rng=pair.rng)
            for alias, one in pair.brokers.items()
        }
        self._store = FenceStore(str(flow), logs[flow.source], logs.get(flow.target))

    async def standing(self) -> FenceRecord | None:
        """Return the record of a fence of which any part may stand; None: there is none. Raises: as ``FenceLog``."""
        record = await self._store.read()
        return record if record is not None and record.is_up else None

    async def plan(self, topics: Sequence[str]) -> FencePlan:
        """Return what the fence would add, and what it cannot prove. Raises: as ``FenceInquiry.facts``."""
        pair, options = self._pair, self._options
        wanted = FenceWanted(
            self._flow.source,
            tuple(topics),
            options.way,
            options.principals,
            pair.own_principals[self._flow.source],
            pair.keeps_names(self._flow),
        )
        return plan_fence(wanted, await self._inquiry.facts(topics))

    async def ends(self, topics: Sequence[str]) -> PartitionOffsets:
        """Return where the leaders' logs end now. Raises: FenceNotProven, one does not answer."""
        sample = await self._sample(topics)
        return ends_of(sample)

    async def coupled(self, topics: Sequence[str], others: Sequence[str]) -> tuple[Sequence[Coupling], Sequence[str]]:
        """Return which of the others transactions couple with the topics, and what is not known of that, in words."""
        found, unknown = await self._inquiry.producers([*topics, *others])
        return couplings(topics, found, await self._inquiry.transactions()), unknown

    async def set(self, topics: Sequence[str], plan: FencePlan | None) -> FenceRecord:
        """Raise the fence, or go on with it.

        Args:
            plan: what was shown just now; None: another process began it.
        Raises: CutoverRefused; as ``raise_fence``; FenceNotProven, it took too long.
        """
        plan = plan or await self.plan(topics)
        refuse_plan(plan, accepts_unproven=self._options.accepts_unproven)
        work = raise_fence(
            plan,
            str(self._flow),
            self._store,
            self._cluster,
            self._write(),
            hook=self._options.fence_hook,
            hook_name=self._options.fence_hook_name,
        )
        return await self._in_time(work)

    async def verified(
        self,
        topics: Sequence[str],
        *,
        timeout_s: float,
        tell: Callable[[Stillness], None],
        say: Callable[[str], None],
    ) -> PartitionOffsets:
        """Return the ends at which the partitions stand still. Raises: FenceNotProven."""
        await self._recorded()
        if self._options.ends_hanging:
            await self._end_what_is_open(topics, say)
        found = await verify_fence(self._inquiry, topics, clock=self._pair.clock, timeout_s=timeout_s, tell=tell)
        if not found.is_proven:
            raise FenceNotProven(
                f"The fence on {self._flow.source} is not verified: {' '.join(found.reasons()[:3])}",
                remedy="Stop what still writes, or name it with --principal, and begin again.",
            )
        return ends_of(found.last)

    async def _end_what_is_open(self, topics: Sequence[str], say: Callable[[str], None]) -> None:
        """Abort the transactions that are open. What could not be aborted is told: the verification waits for it."""
        pair = self._pair
        brokers = pair.brokers[self._flow.source]
        work = end_what_is_open(self._inquiry, brokers, topics, clock=pair.clock, rng=pair.rng)
        ended, failed = await self._in_time(work)
        for line in (*(f"aborted: {one}" for one in ended), *failed):
            say(line)

    async def still_stands(self, topics: Sequence[str]) -> PartitionOffsets:
        """Return where the partitions end now. Raises: FenceNotProven, a part of the fence is missing."""
        record = await self._recorded()
        if record.way is FenceWay.ACLS:
            acls = (await self._inquiry.facts(topics)).acls
            missing = missing_bindings(record, acls)
            if missing:
                raise self._fallen(f"{missing[0]} is gone")
        elif record.way is FenceWay.SIZE:
            sizes = await self._cluster.sizes(list(record.sizes))
            other = [topic for topic in record.sizes if sizes.get(topic) != str(FENCE_MESSAGE_BYTES)]
            if other:
                raise self._fallen(f"max.message.bytes of {in_short(other)} was changed")
        return ends_of(await self._sample(topics))

    async def lift(self) -> FenceRecord | None:
        """Give back what the fence has changed; None: there was none. Raises: as ``lift_fence``; FenceNotProven."""
        hook = self._options.fence_hook
        work = lift_fence(self._store, self._cluster, self._write(), hook=hook)
        found = await self._in_time(work)
        return None if found is None else found.record

    async def has_record(self) -> bool:
        """Return whether a fence of this flow is known at all, also one that was lifted."""
        return await self._store.read() is not None

    async def _recorded(self) -> FenceRecord:
        """Return the record of the fence that stands. Raises: FenceNotProven, there is none."""
        record = await self._store.read()
        if record is None:
            raise self._fallen("mm2-dr-fences.internal has no record of it on either cluster")
        if record.state is not FenceState.STANDING:
            raise self._fallen("its record says that it was lifted, or is being changed")
        return record

    def _write(self) -> FenceWrite:
        pair = self._pair
        return FenceWrite(pair.author, pair.command, pair.clock.wall_ms(), secrets.token_hex(8))

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T:
        """Let nothing be changed so late that another process may act; a hook has its own time."""
        limit_s = ACTS_WITHIN_S + (HOOK_TIMEOUT_S if self._options.fence_hook is not None else 0.0)
        try:
            async with asyncio.timeout(limit_s):
                return await work
        except TimeoutError as error:
            raise FenceNotProven(
                f"{self._flow.source} took more than {limit_s:g} s to change its fence.",
                remedy="Call the same verb again: it goes on from the fence's record.",
            ) from error

    async def _sample(self, topics: Sequence[str]) -> FenceSample:
        """Look once. Raises: FenceNotProven, something did not answer, or may not be read yet."""
        sample = await self._inquiry.sample(topics, self._pair.clock.monotonic())
        if sample.unread:
            raise FenceNotProven(f"{sample.unread[0].rstrip('.')}.", remedy="Ask again.")
        return sample

    def _fallen(self, why: str) -> FenceNotProven:
        return FenceNotProven(
            f"The fence on {self._flow.source} does not stand as it was set: {why}.",
            remedy="Nothing was switched. Find out who changed it, and begin again.",
        )


def ends_of(sample: FenceSample) -> PartitionOffsets:
    """Return the ends of a look, by partition as ``orders-3``."""
    return {f"{topic}-{number}": end for (topic, number), end in sorted(sample.ends.items())}


def missing_bindings(record: FenceRecord, acls: KnownAcls | None) -> list[FenceBinding]:
    """Return the bindings of a fence that the cluster does not have (any more)."""
    if acls is None:
        return list(record.bindings)
    there = {
        *((FencedKind.TOPIC, acl) for acl in acls.topics),
        *((FencedKind.TRANSACTIONAL_ID, acl) for acl in acls.transactional_ids),
    }
    return [one for one in record.bindings if (one.kind, one.acl) not in there]


def refuse_plan(plan: FencePlan, *, accepts_unproven: bool) -> None:
    """Raises: CutoverRefused, if a fence must not be raised, or proves too little."""
    if plan.refused:
        raise CutoverRefused(plan.refused[0].what, remedy=plan.refused[0].remedy)
    if plan.unproven and not accepts_unproven:
        more = f" And {len(plan.unproven) - 1} more." if len(plan.unproven) > 1 else ""
        raise CutoverRefused(
            f"The fence cannot be proven: {plan.unproven[0].what}{more}",
            remedy=f"{plan.unproven[0].remedy} Or accept it: --accept-unproven-fence.",
        )
